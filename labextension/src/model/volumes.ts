import { Label, VOLUME_STATUSES, VolumeRow } from '../protocol';
import { share, size, whole } from './format';
import { translatedLabel } from './states';
import type { Translation } from './translation';

/** A volume of a pool, with a row for each node, by rank. */
export interface Volume {
  key: string;
  mount: string;
  source: string;
  read_only: boolean;
  rows: VolumeRow[];
}

/** Bytes that were transferred to nodes: of how many, and how many of them came from other nodes. */
export interface Fetched {
  nbytes: number;
  total: number;
  peers: number;
}

/** A reason, and the nodes that have it. */
export interface Reason {
  status: VolumeRow['status'];
  detail: string;
  ranks: number[];
}

function isStatus(name: string): name is VolumeRow['status'] {
  return name in VOLUME_STATUSES;
}

const URGENCY = Object.keys(VOLUME_STATUSES).filter(isStatus);

/** Statuses in which tasks cannot use a volume, and that do not pass as they should. */
const BAD = URGENCY.filter(status => VOLUME_STATUSES[status].tone === 'bad');

/** Number of nodes that are named in a sentence. */
const NAMED = 6;

/** Group rows by volume, sorted by mount. */
export function volumesOf(rows: readonly VolumeRow[]): Volume[] {
  const found = new Map<string, Volume>();
  for (const row of rows) {
    const { mount, source, read_only } = row;
    const key = JSON.stringify([mount, source, read_only]);
    const volume = found.get(key) ?? { key, mount, source, read_only, rows: [] };
    volume.rows.push(row);
    found.set(key, volume);
  }
  const volumes = [...found.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
  volumes.forEach(({ rows }) => rows.sort((a, b) => a.rank - b.rank || a.machine - b.machine));
  return volumes;
}

/** Return the label of a volume on all nodes: `ready on 4 nodes`, or `1 failed, 3 ready`, the most urgent one first. */
export function volumeState(rows: readonly VolumeRow[], trans: Translation): Label {
  const counts = URGENCY.map(status => [status, rows.filter(row => row.status === status).length] as const).filter(
    ([, count]) => count
  );
  const label = translatedLabel(VOLUME_STATUSES[counts[0][0]], trans);
  if (counts.length > 1) {
    const words = counts.map(([status, count]) => `${whole(count)} ${trans.__(VOLUME_STATUSES[status].word)}`);
    return { ...label, word: words.join(', ') };
  }
  return rows.length > 1 ? { ...label, word: trans.__('%1 on %2 nodes', label.word, whole(rows.length)) } : label;
}

/** Return the label of a volume on one node. */
export function volumeStateOn(row: VolumeRow, trans: Translation): Label {
  return translatedLabel(VOLUME_STATUSES[row.status], trans);
}

/** Return how the files of a volume are there: `copy · read-only`, `mount with s3fs`. */
export function access(volume: Volume, trans: Translation): string {
  const modes = volume.rows.map(({ mode, tool }) => (tool ? trans.__('%1 with %2', mode, tool) : mode));
  const distinct = [...new Set(modes)].join(', ');
  return volume.read_only ? `${distinct} · ${trans.__('read-only')}` : distinct;
}

/** Return what was transferred to nodes; null if nothing was, and nothing will be. */
export function fetched(rows: readonly VolumeRow[]): Fetched | null {
  const sum = (count: (row: VolumeRow) => number) => rows.reduce((total, row) => total + count(row), 0);
  const all = { nbytes: sum(row => row.nbytes), total: sum(row => row.total), peers: sum(row => row.from_peers) };
  return all.nbytes || all.total ? all : null;
}

/** Return what was transferred as text: `1.0 GiB of 3.0 GiB (33%), 0.5 GiB from other nodes`. */
export function fetchedText({ nbytes, total, peers }: Fetched, trans: Translation): string {
  const text =
    total > nbytes
      ? trans.__('%1 of %2 (%3)', size(nbytes), size(total), share(nbytes / total))
      : trans.__('%1 fetched', size(nbytes));
  return peers ? `${text}, ${trans.__('%1 from other nodes', size(peers))}` : text;
}

/** Return which files wait for their upload: `3 files (2.1 MiB) wait for upload`; empty if none does. */
export function waitingText(rows: readonly VolumeRow[], trans: Translation): string {
  const files = waitingFiles(rows);
  const nbytes = size(rows.reduce((total, row) => total + row.unflushed_bytes, 0));
  if (!files) {
    return '';
  }
  return files === 1
    ? trans.__('1 file (%1) waits for upload', nbytes)
    : trans.__('%1 files (%2) wait for upload', whole(files), nbytes);
}

/** Count the files that wait for their upload. */
export function waitingFiles(rows: readonly VolumeRow[]): number {
  return rows.reduce((total, row) => total + row.unflushed, 0);
}

/** Return why a volume has failed, is mounted again or has unsaved files on nodes, by reason. */
export function reasons(volume: Volume): Reason[] {
  const found = new Map<string, Reason>();
  for (const { status, detail, rank } of volume.rows) {
    if (detail || BAD.includes(status)) {
      const key = `${status} ${detail}`;
      const reason = found.get(key) ?? { status, detail, ranks: [] };
      reason.ranks.push(rank);
      found.set(key, reason);
    }
  }
  return [...found.values()].sort((a, b) => URGENCY.indexOf(a.status) - URGENCY.indexOf(b.status));
}

/** Return a reason with its nodes: `restarting on node 2: s3fs ended with status 1`. */
export function reasonText({ status, detail, ranks }: Reason, trans: Translation): string {
  const word = trans.__(VOLUME_STATUSES[status].word);
  const named = ranks.slice(0, NAMED).join(', ');
  const where =
    ranks.length === 1
      ? trans.__('%1 on node %2', word, named)
      : ranks.length > NAMED
        ? trans.__('%1 on nodes %2 and %3 more', word, named, whole(ranks.length - NAMED))
        : trans.__('%1 on nodes %2', word, named);
  return detail ? `${where}: ${detail}` : where;
}

/** Return what matters most about all volumes, or else their number: `1 failed`, `3 files wait`. */
export function volumesSummary(volumes: readonly Volume[], trans: Translation): string {
  const rows = volumes.flatMap(volume => volume.rows);
  for (const status of BAD) {
    const count = rows.filter(row => row.status === status).length;
    if (count) {
      return `${whole(count)} ${trans.__(VOLUME_STATUSES[status].word)}`;
    }
  }
  const files = waitingFiles(rows);
  return files === 1
    ? trans.__('1 file waits')
    : files
      ? trans.__('%1 files wait', whole(files))
      : whole(volumes.length);
}
