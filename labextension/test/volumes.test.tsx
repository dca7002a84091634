// @vitest-environment happy-dom
import { cleanup, fireEvent, render, screen, within } from '@testing-library/react';
import * as React from 'react';
import { afterEach, describe, expect, it } from 'vitest';

import { VolumeNotes } from '../src/components/volumenotes';
import { UNTRANSLATED } from '../src/model/translation';
import {
  access,
  fetched,
  fetchedText,
  reasons,
  reasonText,
  volumesOf,
  volumesSummary,
  volumeState,
  waitingText
} from '../src/model/volumes';
import { Announcer } from '../src/panel/announcer';
import { VolumesSection } from '../src/panel/volumes';
import { VOLUME_STATUSES, VolumeRow } from '../src/protocol';
import { volumeRow } from './rows';

afterEach(() => {
  cleanup();
  window.localStorage.clear();
});

const MIB = 2 ** 20;
const RESULTS = { mount: '/results', source: 's3://lab/results', mode: 'sync', read_only: false } as const;
const BROKEN = { status: 'restarting', mode: 'mount', tool: 's3fs', detail: 's3fs ended with status 1' } as const;

const nodes = (count: number, fields: Partial<VolumeRow> = {}) =>
  Array.from({ length: count }, (_, rank) => volumeRow(rank, fields));
const word = (rows: VolumeRow[]) => volumeState(rows, UNTRANSLATED).word;

describe('volumes', () => {
  it('have the rows of all nodes by rank, and are sorted by mount', () => {
    const rows = [volumeRow(1, RESULTS), volumeRow(1), volumeRow(0), volumeRow(0, RESULTS)];
    expect(volumesOf(rows).map(({ mount, rows }) => [mount, rows.map(row => row.rank)])).toEqual([
      ['/data', [0, 1]],
      ['/results', [0, 1]]
    ]);
  });

  it('of one mount with other sources are apart', () => {
    expect(volumesOf([volumeRow(0), volumeRow(1, { source: 's3://other' })])).toHaveLength(2);
  });

  it('have one state for nodes that are alike, else the number of each, the most urgent first', () => {
    expect(word(nodes(1))).toBe('ready');
    expect(word(nodes(4))).toBe('ready on 4 nodes');
    const mixed = [...nodes(3), volumeRow(3, { status: 'failed' }), volumeRow(4, { status: 'attaching' })];
    expect(volumeState(mixed, UNTRANSLATED)).toEqual({
      ...VOLUME_STATUSES.failed,
      word: '1 failed, 1 attaching, 3 ready'
    });
  });

  it('say how their files are there', () => {
    const of = (fields: Partial<VolumeRow>) => access(volumesOf([volumeRow(0), volumeRow(1, fields)])[0], UNTRANSLATED);
    expect(of({})).toBe('copy · read-only');
    expect(of({ mode: 'mount', tool: 's3fs' })).toBe('copy, mount with s3fs · read-only');
    expect(access(volumesOf([volumeRow(0, RESULTS)])[0], UNTRANSLATED)).toBe('sync');
  });

  it('have the progress of all nodes, and what came from other nodes', () => {
    const text = (rows: VolumeRow[]) => fetchedText(fetched(rows)!, UNTRANSLATED);
    expect(fetched(nodes(2))).toBeNull();
    const done = volumeRow(0, { nbytes: 4 * MIB, total: 4 * MIB });
    expect(text([done])).toBe('4.0 MiB fetched');
    const half = volumeRow(1, { status: 'attaching', nbytes: 2 * MIB, total: 4 * MIB, from_peers: MIB });
    expect(text([done, half])).toBe('6.0 MiB of 8.0 MiB (75%), 1.0 MiB from other nodes');
  });

  it('count the files that wait for their upload', () => {
    expect(waitingText(nodes(2), UNTRANSLATED)).toBe('');
    expect(waitingText([volumeRow(0, { unflushed: 1, unflushed_bytes: 5 })], UNTRANSLATED)).toBe(
      '1 file (5 B) waits for upload'
    );
    expect(waitingText(nodes(600, { unflushed: 2, unflushed_bytes: MIB }), UNTRANSLATED)).toBe(
      '1,200 files (600.0 MiB) wait for upload'
    );
  });

  it('have each reason once, with its nodes, failed ones first', () => {
    const [volume] = volumesOf([...nodes(8, BROKEN), volumeRow(8, { status: 'failed' }), volumeRow(9)]);
    expect(reasons(volume).map(reason => reasonText(reason, UNTRANSLATED))).toEqual([
      'failed on node 8',
      'restarting on nodes 0, 1, 2, 3, 4, 5 and 2 more: s3fs ended with status 1'
    ]);
    const [two] = volumesOf(nodes(2, BROKEN));
    expect(reasons(two).map(reason => reasonText(reason, UNTRANSLATED))).toEqual([
      'restarting on nodes 0, 1: s3fs ended with status 1'
    ]);
  });

  it('are summed up by what is wrong, what waits, or their number', () => {
    const summary = (rows: VolumeRow[]) => volumesSummary(volumesOf(rows), UNTRANSLATED);
    const waits = volumeRow(0, { ...RESULTS, unflushed: 3 });
    expect(summary([volumeRow(0), volumeRow(0, RESULTS)])).toBe('2');
    expect(summary([volumeRow(0), waits])).toBe('3 files wait');
    expect(summary([volumeRow(0, { ...RESULTS, unflushed: 1 })])).toBe('1 file waits');
    expect(summary([waits, ...nodes(2, BROKEN)])).toBe('2 restarting');
  });
});

describe('the section of volumes', () => {
  const shown = (rows: VolumeRow[]) => <VolumesSection rows={rows} trans={UNTRANSLATED} />;

  it('is absent without volumes', () => {
    expect(render(shown([])).container.innerHTML).toBe('');
  });

  it('shows a volume on all nodes, and on a click on each node, until Escape is pressed', () => {
    const waits = volumeRow(1, { ...RESULTS, status: 'flushing', unflushed: 3, unflushed_bytes: 2 * MIB });
    render(shown([...nodes(2), volumeRow(0, RESULTS), waits]));
    const data = screen.getByRole('button', { name: '/data ready on 2 nodes' });
    const results = screen.getByRole('button', { name: '/results 1 unsaved, 1 ready' });
    expect(screen.getByText('s3://lab/results')).toBeTruthy();
    expect(screen.getByText('3 files (2.0 MiB) wait for upload')).toBeTruthy();
    expect(screen.queryByRole('list', { name: /on each node/ })).toBeNull();
    fireEvent.click(results);
    expect(results.getAttribute('aria-expanded')).toBe('true');
    const list = screen.getByRole('list', { name: 'Volume /results on each node' });
    expect(
      within(list)
        .getAllByRole('listitem')
        .map(row => row.textContent)
    ).toEqual(['node 0● ready', 'node 1↑ unsaved3 files (2.0 MiB) wait for upload']);
    fireEvent.click(data);
    expect(screen.getByRole('list', { name: 'Volume /data on each node' })).toBeTruthy();
    expect(screen.queryByRole('list', { name: 'Volume /results on each node' })).toBeNull();
    fireEvent.keyDown(data, { key: 'Escape' });
    expect(screen.queryByRole('list', { name: /on each node/ })).toBeNull();
  });

  it('has a bar while files are fetched, and none afterwards', () => {
    const fetching = { status: 'attaching', nbytes: MIB, total: 4 * MIB } as const;
    const { container, rerender } = render(shown(nodes(1, fetching)));
    expect(container.querySelector<HTMLElement>('.skyward-Bar > span')?.style.width).toBe('25%');
    rerender(shown(nodes(1, { nbytes: 4 * MIB, total: 4 * MIB })));
    expect(container.querySelector('.skyward-Bar')).toBeNull();
    expect(screen.getByText('4.0 MiB fetched')).toBeTruthy();
  });

  it('has the reason why a volume is mounted again, also on its node', () => {
    render(shown([volumeRow(0), volumeRow(1, BROKEN)]));
    expect(screen.getByText('restarting on node 1: s3fs ended with status 1')).toBeTruthy();
    fireEvent.click(screen.getByRole('button', { name: '/data 1 restarting, 1 ready' }));
    expect(screen.getByText('s3fs ended with status 1').title).toBe('s3fs ended with status 1');
  });

  it('draws only the visible nodes of a volume', () => {
    render(shown(nodes(1000)));
    fireEvent.click(screen.getByRole('button', { name: '/data ready on 1,000 nodes' }));
    const rows = within(screen.getByRole('list', { name: /on each node/ })).getAllByRole('listitem');
    expect(rows.length).toBeLessThan(40);
    expect(rows[0].getAttribute('aria-setsize')).toBe('1000');
  });
});

describe('the notes of volumes', () => {
  const lines = (rows: VolumeRow[]) => {
    render(<VolumeNotes rows={rows} trans={UNTRANSLATED} />);
    return screen.queryAllByRole('listitem').map(each => each.textContent);
  };

  it('are absent while nothing fails or waits', () => {
    expect(lines(nodes(2, { nbytes: 5, total: 5 }))).toEqual([]);
  });

  it('are a line for what fails, then for what waits', () => {
    const waits = volumeRow(0, { ...RESULTS, unflushed: 1, unflushed_bytes: 5 });
    expect(lines([waits, volumeRow(1, BROKEN)])).toEqual([
      '▲ /data restarting on node 1: s3fs ended with status 1',
      '↑ /results 1 file (5 B) waits for upload'
    ]);
  });

  it('are counted if there are many', () => {
    const many = Array.from({ length: 9 }, (_, index) => volumeRow(0, { mount: `/v${index}`, unflushed: 1 }));
    expect(lines(many)).toHaveLength(5);
    expect(screen.getByText('5 more')).toBeTruthy();
  });
});

it('a volume that is mounted again or fails is announced, and numbers are not', () => {
  const announcer = (volumes: VolumeRow[]) => (
    <Announcer pools={[]} startup_failures={[]} failed={[]} volumes={volumes} trans={UNTRANSLATED} />
  );
  const { rerender } = render(announcer(nodes(1)));
  rerender(announcer(nodes(1, { unflushed: 7 })));
  expect(screen.getByRole('status').textContent).toBe('');
  rerender(announcer(nodes(3, BROKEN)));
  expect(screen.getByRole('status').textContent).toBe('Volume /data of pool train is mounted again.');
  rerender(announcer(nodes(1, { status: 'failed' })));
  expect(screen.getByRole('status').textContent).toBe('Volume /data of pool train failed.');
});
