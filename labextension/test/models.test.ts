import { describe, expect, it } from 'vitest';

import cases from './equivalents.json';
import { outlook, progress } from '../src/model/booting';
import { chart, SPAN } from '../src/model/chart';
import { equivalent, Wish } from '../src/model/equivalent';
import { duration, money, share, spentBy } from '../src/model/format';
import { nodesInOrder, outputLines, tally, tasksInOrder, title } from '../src/model/lists';
import { accounts } from '../src/model/money';
import { Rate } from '../src/model/rate';
import { inOrderOf } from '../src/model/steady';
import { lasts, perHour } from '../src/model/price';
import { nodeState } from '../src/model/states';
import { visible } from '../src/model/window';
import { CellRow, NodeRow, OutputRow, PointRow, PoolRow, Price, TaskRow, StartupFailureRow, VERSION } from '../src/protocol';

describe('numbers', () => {
  it('are written as people read them', () => {
    expect([money(0), money(0.0124), money(1.366), money(1204)]).toEqual(['$0.00', '$0.0124', '$1.37', '$1,204.00']);
    expect([duration(41), duration(724.9), duration(10930), duration(-3)]).toEqual(['0:41', '12:04', '3:02:10', '0:00']);
    expect([share(0.906), share(0), share(null), share(undefined)]).toEqual(['91%', '0%', '–', '–']);
  });

  it('money grows with time, and not backwards', () => {
    const pool = { spent: 1, spent_at: 1000, per_hour: 3.6 };
    expect(spentBy(1010, pool)).toBeCloseTo(1.01);
    expect(spentBy(990, pool)).toBe(1);
  });
});

describe('the line of %sky', () => {
  it.each(cases.map(each => [each.line, each.command] as const))('%s', (line, command) => {
    expect(equivalent(command as unknown as Wish)).toBe(line);
  });
});

describe('what another process has left behind', () => {
  it('is taken over by name, and given back by id', () => {
    expect(equivalent({ kind: 'attach', pool: 'train' })).toBe('%sky attach train');
    expect(equivalent({ kind: 'reap', pool: 'train-0a1b' })).toBe('%sky reap train-0a1b');
  });
});

describe('prices', () => {
  const price = (least: number, most: number): Price => ({
    kind: 'price', version: VERSION, id: '1', min: 1, max: 3, least, most, offers: []
  });

  it('are told for the fewest and the most nodes', () => {
    expect(perHour(price(1.5, 4.5))).toBe('$1.50/h – $4.50/h');
    expect(perHour(price(2, 2))).toBe('$2.00/h');
  });

  it.each([
    ['9', 4.5, '2:00:00'],
    ['', 4.5, ''],
    ['much', 4.5, ''],
    ['9', 0, '']
  ])('a budget of %j lasts, at %d an hour, %j', (budget, most, says) => {
    expect(lasts(price(0, most), budget)).toBe(says);
  });
});

describe('the account of a pool', () => {
  it('has its cells, the latest first, and what none of them has used', () => {
    const pool = { spent: 1, spent_at: 1000, per_hour: 3.6 } as PoolRow;
    const cell = (number: number, cost: number) => ({ pool: 'p', cell: number, cost }) as CellRow;
    const told = accounts(pool, [cell(2, 0.25), cell(7, 0.5)], 1010);
    expect(told.cells.map(row => row.cell)).toEqual([7, 2]);
    expect(told.spent).toBeCloseTo(1.01);
    expect(told.rest).toBeCloseTo(0.26);
    expect(accounts(pool, [cell(2, 5)], 1010).rest).toBe(0);
  });
});

describe('a long list', () => {
  it('draws what is in sight, and a little more', () => {
    expect(visible(1000, 20, 2000, 200)).toEqual({ first: 96, end: 115, height: 20000, above: 1920 });
    expect(visible(3, 20, 0, 200)).toEqual({ first: 0, end: 3, height: 60, above: 0 });
    expect(visible(0, 20, 0, 0)).toEqual({ first: 0, end: 0, height: 0, above: 0 });
  });

  it('makes room for the row that is open, wherever it is', () => {
    for (let open = 0; open < 30; open++) {
      const whole = visible(30, 20, 0, 10_000, open, 90);
      expect(whole).toEqual({ first: 0, end: 30, height: 690, above: 0 });
      for (let top = 0; top <= 490; top += 7) {
        const seen = visible(30, 20, top, 200, open, 90, 0);
        expect(seen.above).toBeLessThanOrEqual(top);
        const below = seen.end * 20 + (open < seen.end ? 90 : 0);
        expect(below).toBeGreaterThanOrEqual(Math.min(690, top + 200));
      }
    }
  });
});

describe('the chart', () => {
  const point = (at: number, queued: number): PointRow => ({
    pool: 'p', number: at, at, queued, running: 0, desired: 2, current: 1
  });

  it('is a staircase from the left edge to now', () => {
    const now = 10_000;
    const { lines, top } = chart([point(now - SPAN, 0), point(now - SPAN / 2, 4)], now, 100, 40);
    expect(top).toBe(4);
    expect(lines.queued).toBe('M0 40H50V0H100');
    expect(lines.current).toBe('M0 30H50V30H100');
  });

  it('begins with what held before its left edge, and is empty without points', () => {
    const now = 10_000;
    const points = [point(1, 9), point(2, 3), point(now - 9, 0)];
    expect(chart(points, now, 900, 30).lines.queued).toBe('M0 0H891V30H900');
    expect(chart([], now, 100, 40).lines.queued).toBe('');
  });

  it('is as long as the pool is old, and never shorter than a minute', () => {
    const now = 10_000;
    expect(chart([point(now - 200, 1), point(now - 100, 0)], now, 100, 40).lines.queued).toBe('M0 20H50V40H100');
    expect(chart([point(now - 30, 1)], now, 100, 40).lines.queued).toBe('M50 20H100');
  });
});

describe('tasks', () => {
  const task = (number: number, state: TaskRow['state']) => ({ number, state, name: 'f', code: 'x = 1' }) as TaskRow;

  it('come in the order in which one looks for them', () => {
    const tasks = [task(1, 'done'), task(2, 'failed'), task(3, 'queued'), task(4, 'queued'), task(5, 'running')];
    expect(tasksInOrder(tasks).map(each => each.number)).toEqual([5, 3, 4, 2, 1]);
    expect(tally(tasks).get('queued')).toBe(2);
  });

  it('of a cell are called what the cell begins with', () => {
    expect(title({ ...task(1, 'done'), name: 'run_cell' })).toBe('x = 1');
    expect(title(task(1, 'done'))).toBe('f');
  });
});

describe('nodes', () => {
  const node = (rank: number, state: NodeRow['state'], kind = 'aws a100', kept: string[] = []) =>
    ({ machine: rank, rank, state, kind, phase: 'ready', group: 'gpu', busy: 0, kept }) as NodeRow;

  it('stay in order, and are filtered by every word', () => {
    const nodes = [node(3, 'stopping'), node(10, 'active'), node(2, 'active', 'aws h100')];
    expect(nodesInOrder(nodes).map(each => each.rank)).toEqual([2, 10, 3]);
    expect(nodesInOrder(nodes, 'GPU h100').map(each => each.rank)).toEqual([2]);
  });

  it('that keep something say so while they run nothing, and are found by its name', () => {
    const words = { __: (text: string) => text };
    const keeper = node(1, 'active', 'aws a100', ['model 1.2 GB']);
    expect(nodeState(keeper, words).word).toBe('keeps');
    expect(nodeState({ ...keeper, busy: 1 }, words).word).toBe('busy');
    expect(nodeState(node(2, 'active'), words).word).toBe('idle');
    expect(nodesInOrder([keeper, node(2, 'active')], 'model')).toEqual([keeper]);
  });
});

describe('a node that boots', () => {
  const node = (phase_at: number | null, usual: number | null) => ({ phase: 'deps', phase_at, usual }) as NodeRow;

  it('is told against the usual time of its phase, if that is known', () => {
    expect(progress(node(1000, 70), 1035)).toEqual({ elapsed: '0:35', usual: '1:10', part: 0.5, late: false });
    expect(progress(node(1000, null), 1041)).toEqual({ elapsed: '0:41', usual: '', part: null, late: false });
    expect(progress(node(1000, 0.4), 1041)?.usual).toBe('');
    expect(progress(node(1000, 10), 1041)).toMatchObject({ part: 1, late: true });
    expect(progress(node(null, 10), 1041)).toBeNull();
  });
});

describe('a node that did not come up', () => {
  const words = { __: (text: string, ...values: (string | number)[]) => text.replace(/%(\d)/g, (_, n) => `${values[n - 1]}`) };
  const trouble = (other: Partial<StartupFailureRow>) =>
    ({ attempt: 2, attempts: 3, retry_at: null, gave_up: false, ...other }) as StartupFailureRow;

  it.each([
    [{ retry_at: 1011.2 }, 'Retrying in 12 s (2 of 3)'],
    [{ retry_at: 999 }, 'Trying again (2 of 3)'],
    [{}, 'Trying again (2 of 3)'],
    [{ attempts: 0, attempt: 7 }, 'Trying again (try 7)'],
    [{ gave_up: true, attempt: 4 }, 'Gave up after 3 tries'],
    [{ gave_up: true }, 'Gave up after 1 try']
  ])('%j: %s', (row, says) => {
    expect(outlook(trouble(row), 1000, words)).toBe(says);
  });
});

describe('rows under the pointer', () => {
  it('keep their order, and what is new comes last', () => {
    const keyOf = (item: string) => item;
    expect(inOrderOf(['d', 'a', 'c', 'e'], ['a', 'b', 'c', 'd'], keyOf)).toEqual(['a', 'c', 'd', 'e']);
  });
});

describe('a rate', () => {
  it('is told over the last seconds, and not before the first is over', () => {
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
    pool: 'p', number, node, task, stream: 'stdout', text
  });
  const texts = (...rows: OutputRow[]) => outputLines(rows).map(line => line.text);

  it('is put together from its pieces, each source for itself', () => {
    expect(texts(piece(1, 'epoch '), piece(2, 'other\n', 2), piece(3, '1\nepoch 2\n'))).toEqual(['epoch 1', 'other', 'epoch 2']);
  });

  it('shows the last state of a line that is written over', () => {
    expect(texts(piece(1, '10%\r20%'), piece(2, '\r30%'), piece(3, '\n'))).toEqual(['30%']);
    expect(texts(piece(1, '10%\r'))).toEqual(['10%']);
  });

  it('keeps the last lines only', () => {
    const many = Array.from({ length: 500 }, (_, index) => `${index}\n`).join('');
    const lines = outputLines([piece(1, many)], 200);
    expect([lines.length, lines[0].text, lines[199].text]).toEqual([200, '300', '499']);
  });
});
