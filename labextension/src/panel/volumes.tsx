import * as React from 'react';

import { Bar } from '../components/gauge';
import { LongList } from '../components/list';
import { Section } from '../components/section';
import { State } from '../components/state';
import { Translation } from '../model/translation';
import {
  access,
  fetched,
  fetchedText,
  reasons,
  reasonText,
  Volume,
  volumesOf,
  volumesSummary,
  volumeState,
  volumeStateOn,
  waitingText
} from '../model/volumes';
import { VolumeRow } from '../protocol';

/** Heights in pixels: of the row of a node, and of the list of nodes. */
const ROW = 22;
const MOST = 176;

/** Maximum number of reasons that are shown of a volume. */
const SHOWN = 3;

/** Progress of the transfers of a volume, and its files that wait for their upload. */
function Transfers(props: { rows: readonly VolumeRow[]; trans: Translation }): JSX.Element {
  const { rows, trans } = props;
  const got = fetched(rows);
  const waiting = waitingText(rows, trans);
  return (
    <>
      {got && (
        <p className="skyward-Volume-fetched">
          <span>{fetchedText(got, trans)}</span>
          {got.total > got.nbytes && <Bar value={got.nbytes / got.total} />}
        </p>
      )}
      {waiting && <p className="skyward-Volume-waiting">{waiting}</p>}
    </>
  );
}

/** A volume on one node. */
function VolumeOnNode(props: { row: VolumeRow; trans: Translation }): JSX.Element {
  const { row, trans } = props;
  const got = fetched([row]);
  const text = [row.detail, waitingText([row], trans), got ? fetchedText(got, trans) : ''].filter(Boolean).join(' · ');
  return (
    <div className="skyward-VolumeNode">
      <span className="skyward-VolumeNode-rank">{trans.__('node %1', row.rank)}</span>
      <State {...volumeStateOn(row, trans)} />
      <span className="skyward-VolumeNode-text" title={text}>
        {text}
      </span>
    </div>
  );
}

/** A volume on all nodes of a pool; a click shows it on each node. */
function VolumeItem(props: { volume: Volume; isOpen: boolean; onOpen: (open: boolean) => void; trans: Translation }) {
  const { volume, isOpen, trans } = props;
  const why = reasons(volume);
  return (
    <li
      className="skyward-Volume"
      data-mount={volume.mount}
      onKeyDown={event => {
        if (event.key === 'Escape' && isOpen) {
          event.stopPropagation();
          props.onOpen(false);
        }
      }}
    >
      <button
        type="button"
        className="skyward-Volume-head"
        aria-expanded={isOpen}
        onClick={() => props.onOpen(!isOpen)}
      >
        <span className="skyward-Volume-mount" title={volume.mount}>
          {volume.mount}
        </span>
        <State {...volumeState(volume.rows, trans)} />
      </button>
      <p className="skyward-Volume-source" title={volume.source}>
        <span>{volume.source}</span>
        <span>{access(volume, trans)}</span>
      </p>
      <Transfers rows={volume.rows} trans={trans} />
      {why.slice(0, SHOWN).map(reason => (
        <p key={`${reason.status} ${reason.detail}`} className="skyward-Volume-reason">
          {reasonText(reason, trans)}
        </p>
      ))}
      {why.length > SHOWN && <p className="skyward-Empty">{trans.__('%1 more reasons', why.length - SHOWN)}</p>}
      {isOpen && (
        <LongList
          label={trans.__('Volume %1 on each node', volume.mount)}
          items={volume.rows}
          row={ROW}
          most={MOST}
          keyOf={row => `${row.machine}`}
          render={row => <VolumeOnNode row={row} trans={trans} />}
          trans={trans}
        />
      )}
    </li>
  );
}

/** The section with the volumes of a pool; nothing if it has none. */
export function VolumesSection(props: { rows: readonly VolumeRow[]; trans: Translation }): JSX.Element | null {
  const { trans } = props;
  const [open, setOpen] = React.useState<string | null>(null);
  const volumes = volumesOf(props.rows);
  if (!volumes.length) {
    return null;
  }
  return (
    <Section name="volumes" title={trans.__('Volumes')} summary={volumesSummary(volumes, trans)}>
      <ul className="skyward-Volumes">
        {volumes.map(volume => (
          <VolumeItem
            key={volume.key}
            volume={volume}
            isOpen={open === volume.key}
            onOpen={isOpen => setOpen(isOpen ? volume.key : null)}
            trans={trans}
          />
        ))}
      </ul>
    </Section>
  );
}
