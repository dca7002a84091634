import { describe, expect, it } from 'vitest';

import cases from './equivalents.json';
import order from '../../tests/cases/order.json';
import { retryStatus, progress } from '../src/model/booting';
import { chart, SPAN } from '../src/model/chart';
import { equivalent, run } from '../src/model/equivalent';
import { share, spentBy } from '../src/model/format';
import { isDrainable, nodesInOrder, outputLines, tally, tasksInOrder } from '../src/model/lists';
import { costBreakdown } from '../src/model/cost';
import { Rate } from '../src/model/rate';
import { stableOrder } from '../src/model/order';
import { budgetDuration, perHour } from '../src/model/price';
import { nodeState, poolState, taskState } from '../src/model/states';
import { UNTRANSLATED } from '../src/model/translation';
import {
  CellRow,
  NodeRow,
  OutputRow,
  PALETTE,
  PointRow,
  PoolRow,
  Price,
  TaskRow,
  StartupFailureRow,
  VERSION,
  RunRequest
} from '../src/protocol';

describe('numbers', () => {
  it('are formatted for display', () => {
    expect([share(0.906), share(0), share(null), share(undefined)]).toEqual(['91%', '0%', '–', '–']);
  });

  it('cost grows with time, and never decreases', () => {
    const pool = { spent: 1, spent_at: 1000, per_hour: 3.6 };
    expect(spentBy(1010, pool)).toBeCloseTo(1.01);
    expect(spentBy(990, pool)).toBe(1);
  });
});

describe('the line of %sky', () => {
  it.each(cases.map(each => [each.line, each.command] as const))('%s', (line, command) => {
    expect(equivalent(command as unknown as RunRequest)).toBe(line);
  });
});

describe('an orphaned pool', () => {
  it('is attached to by name, and reaped by id', () => {
    expect(equivalent(run('attach', { pool: 'train' }))).toBe('%sky attach train');
    expect(equivalent(run('reap', { pools: ['train-0a1b'] }))).toBe('%sky reap train-0a1b');
  });
});

describe('the registry of commands', () => {
  it('has the lines of commands that the panel does not send', () => {
    expect(equivalent({ command: 'logs', arguments: { pool: 'train', node: 3 } })).toBe('%sky logs train 3');
    expect(equivalent({ command: 'kept', arguments: {} })).toBe('%sky kept');
  });

  it('makes a wrong command a type error', () => {
    // @ts-expect-error -- the panel cannot send this command
    run('status', { pool: 'train' });
    // @ts-expect-error -- a missing argument
    run('drain', { pool: 'train' });
    // @ts-expect-error -- an argument of another type
    run('drain', { pool: 'train', node: '3' });
  });

  it('has one entry of the palette for each name', () => {
    const names = PALETTE.map(entry => entry.name);
    expect(new Set(names).size).toBe(names.length);
  });
});

describe('prices', () => {
  const price = (least: number, most: number): Price => ({
    kind: 'price',
    version: VERSION,
    id: '1',
    min: 1,
    max: 3,
    least,
    most,
    offers: [],
    notes: []
  });

  it('are shown for the minimum and the maximum number of nodes', () => {
    expect(perHour(price(1.5, 4.5))).toBe('$1.50/h – $4.50/h');
    expect(perHour(price(2, 2))).toBe('$2.00/h');
  });

  it.each([
    ['9', 4.5, '2 h 0 min'],
    ['', 4.5, ''],
    ['much', 4.5, ''],
    ['9', 0, '']
  ])('a budget of %j lasts, at %d an hour, %j', (budget, most, says) => {
    expect(budgetDuration(price(0, most), budget)).toBe(says);
  });
});

describe('the cost breakdown of a pool', () => {
  it('has its cells, the latest first, and the rest', () => {
    const pool = { spent: 1, spent_at: 1000, per_hour: 3.6 } as PoolRow;
    const cell = (number: number, cost: number) => ({ pool: 'p', cell: number, cost }) as CellRow;
    const costs = costBreakdown(pool, [cell(2, 0.25), cell(7, 0.5)], 1010);
    expect(costs.cells.map(row => row.cell)).toEqual([7, 2]);
    expect(costs.spent).toBeCloseTo(1.01);
    expect(costs.rest).toBeCloseTo(0.26);
    expect(costBreakdown(pool, [cell(2, 5)], 1010).rest).toBe(0);
  });
});

describe('the chart', () => {
  const point = (at: number, queued: number): PointRow => ({
    pool: 'p',
    number: at,
    at,
    queued,
    running: 0,
    desired: 2,
    current: 1
  });

  it('is a step function from the left edge to now', () => {
    const now = 10_000;
    const { lines, top } = chart([point(now - SPAN, 0), point(now - SPAN / 2, 4)], now, 100, 40);
    expect(top).toBe(4);
    expect(lines.queued).toBe('M0 40H50V0H100');
    expect(lines.current).toBe('M0 30H50V30H100');
  });

  it('begins with the value before its left edge, and is empty without points', () => {
    const now = 10_000;
    const points = [point(1, 9), point(2, 3), point(now - 9, 0)];
    expect(chart(points, now, 900, 30).lines.queued).toBe('M0 0H891V30H900');
    expect(chart([], now, 100, 40).lines.queued).toBe('');
  });

  it('spans the age of the pool, and at least a minute', () => {
    const now = 10_000;
    expect(chart([point(now - 200, 1), point(now - 100, 0)], now, 100, 40).lines.queued).toBe('M0 20H50V40H100');
    expect(chart([point(now - 30, 1)], now, 100, 40).lines.queued).toBe('M50 20H100');
  });
});

describe('tasks', () => {
  const tasks = order.tasks as unknown as (TaskRow & { place: number })[];

  it('are sorted as the library sorts them', () => {
    expect(tasksInOrder(tasks).map(each => (each as (typeof tasks)[0]).place)).toEqual(tasks.map((_, index) => index));
    expect(tally(tasks).get('queued')).toBe(2);
  });

  it('show their state, and their node while they run', () => {
    const word = (state: TaskRow['state']) => taskState({ state, node: 3 } as TaskRow, UNTRANSLATED).word;
    expect(word('running')).toBe('node 3');
    expect(word('failed')).toBe('failed');
  });
});

describe('nodes', () => {
  const node = (rank: number, status: NodeRow['status'], kind = 'aws a100', kept: string[] = []) =>
    ({ machine: rank, rank, state: 'active', status, kind, phase: 'deps', group: 'gpu', kept }) as unknown as NodeRow;

  it('are sorted as the library sorts them', () => {
    const nodes = order.nodes.map(each => ({ ...node(0, 'idle'), ...each }) as NodeRow & { place: number });
    expect(nodesInOrder(nodes).map(each => (each as (typeof nodes)[0]).place)).toEqual(nodes.map((_, index) => index));
  });

  it('are filtered by every word, also by the names of kept values', () => {
    const nodes = [node(3, 'busy'), node(10, 'keeping', 'aws a100', ['model 1.2 GiB']), node(2, 'idle', 'aws h100')];
    expect(nodesInOrder(nodes, 'GPU h100').map(each => each.rank)).toEqual([2]);
    expect(nodesInOrder(nodes, 'model').map(each => each.rank)).toEqual([10]);
    expect(nodesInOrder(nodes, 'busy').map(each => each.rank)).toEqual([3]);
  });

  it('can be drained while they are active, except the head', () => {
    const leaving = { ...node(1, 'draining'), state: 'draining' } as NodeRow;
    expect([node(0, 'idle'), node(1, 'idle'), leaving].map(isDrainable)).toEqual([false, true, false]);
  });

  it('show their status, and their phase while they start', () => {
    expect(nodeState(node(1, 'keeping'), UNTRANSLATED)).toEqual({ icon: '◆', word: 'keeps', tone: 'quiet' });
    expect(nodeState(node(1, 'starting'), UNTRANSLATED)).toEqual({ icon: '◔', word: 'deps', tone: 'busy' });
    const outdated = { ...node(1, 'busy'), outdated: true };
    expect(nodeState(outdated, UNTRANSLATED)).toEqual({ icon: '●', word: 'busy, outdated', tone: 'good' });
    expect(nodesInOrder([node(0, 'busy'), outdated], 'outdated')).toEqual([outdated]);
  });
});

describe('a pool', () => {
  it('shows its status, translated', () => {
    const translation = { __: (text: string) => text.toUpperCase() };
    expect(poolState({ status: 'budget_reached' } as PoolRow, translation).word).toBe('BUDGET REACHED');
  });
});

describe('a node that boots', () => {
  const node = (phase_at: number | null, usual: number | null) => ({ phase: 'deps', phase_at, usual }) as NodeRow;

  it('shows the usual duration of its phase, if known', () => {
    expect(progress(node(1000, 70), 1035)).toEqual({ elapsed: '35 s', usual: '1 min 10 s', part: 0.5, late: false });
    expect(progress(node(1000, null), 1041)).toEqual({ elapsed: '41 s', usual: '', part: null, late: false });
    expect(progress(node(1000, 0.4), 1041)?.usual).toBe('');
    expect(progress(node(1000, 10), 1041)).toMatchObject({ part: 1, late: true });
    expect(progress(node(null, 10), 1041)).toBeNull();
  });
});

describe('a node that failed to start', () => {
  const failed = (other: Partial<StartupFailureRow>) =>
    ({ attempt: 2, attempts: 3, retry_at: null, gave_up: false, ...other }) as StartupFailureRow;

  it.each([
    [{ retry_at: 1011.2 }, 'Retrying in 12 s (2 of 3)'],
    [{ retry_at: 999 }, 'Retrying (2 of 3)'],
    [{}, 'Retrying (2 of 3)'],
    [{ attempts: 0, attempt: 7 }, 'Retrying (attempt 7)'],
    [{ gave_up: true, attempt: 4 }, 'Gave up after 3 attempts'],
    [{ gave_up: true }, 'Gave up after 1 attempt']
  ])('%j: %s', (row, says) => {
    expect(retryStatus(failed(row), 1000, UNTRANSLATED)).toBe(says);
  });
});

describe('rows under the pointer', () => {
  it('keep their order, with new ones last', () => {
    const keyOf = (item: string) => item;
    expect(stableOrder(['d', 'a', 'c', 'e'], ['a', 'b', 'c', 'd'], keyOf)).toEqual(['a', 'c', 'd', 'e']);
  });
});

describe('a rate', () => {
  it('covers the last seconds, and is unknown in the first one', () => {
    const rate = new Rate();
    expect(rate.at(100, 10)).toBeNull();
    expect(rate.at(100.5, 60)).toBeNull();
    expect(rate.at(102, 210)).toBeCloseTo(100);
    for (let second = 3; second < 20; second++) {
      rate.at(100 + second, 210);
    }
    expect(rate.at(120, 210)).toBe(0);
  });
});

describe('output', () => {
  const piece = (number: number, text: string, task = 1, node = 0): OutputRow => ({
    pool: 'p',
    number,
    node,
    task,
    stream: 'stdout',
    text
  });
  const texts = (...rows: OutputRow[]) => outputLines(rows).map(line => line.text);

  it('is assembled from its pieces, per source', () => {
    expect(texts(piece(1, 'epoch '), piece(2, 'other\n', 2), piece(3, '1\nepoch 2\n'))).toEqual([
      'epoch 1',
      'other',
      'epoch 2'
    ]);
  });

  it('shows the last state of an overwritten line', () => {
    expect(texts(piece(1, '10%\r20%'), piece(2, '\r30%'), piece(3, '\n'))).toEqual(['30%']);
    expect(texts(piece(1, '10%\r'))).toEqual(['10%']);
  });

  it('keeps only the last lines', () => {
    const many = Array.from({ length: 500 }, (_, index) => `${index}\n`).join('');
    const lines = outputLines([piece(1, many)], 200);
    expect([lines.length, lines[0].text, lines[199].text]).toEqual([200, '300', '499']);
  });
});
