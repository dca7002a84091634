import { describe, expect, it } from 'vitest';

import { Store } from '../src/model/store';
import { Delta, KEPT, PanelSnapshot, VERSION } from '../src/protocol';

function snapshot(seq: number, tables: object, session = 's'): PanelSnapshot {
  return { kind: 'snapshot', version: VERSION, session, seq, form: [], tables };
}

function delta(seq: number, tables: object, gone: Delta['gone'] = {}, session = 's'): Delta {
  return { kind: 'delta', version: VERSION, session, seq, gone, tables };
}

const node = (pool: string, rank: number) => ({ [`${pool}/${rank}`]: { pool, rank, machine: rank } });

describe('the store', () => {
  it('applies snapshots and deltas', () => {
    const store = new Store();
    expect(store.isComplete).toBe(false);
    expect(store.apply(snapshot(5, { pools: { a: { name: 'a' } }, nodes: { ...node('a', 0), ...node('a', 1) } }))).toBe(
      'applied'
    );
    expect(store.apply(delta(6, { nodes: node('a', 2) }, { nodes: ['a/0'] }))).toBe('applied');
    expect(store.of('nodes', 'a').map(row => row.rank)).toEqual([1, 2]);
    expect(store.isComplete).toBe(true);
  });

  it.each([
    ['a missing message', delta(7, {})],
    ['the same message again', delta(5, {})],
    ['a message of another kernel process', delta(6, {}, {}, 'other')]
  ])('detects %s, and is complete again after a snapshot', (_, message) => {
    const store = new Store();
    store.apply(snapshot(5, { pools: { a: { name: 'a' } } }));
    expect(store.apply(message)).toBe('gap');
    expect(store.isComplete).toBe(false);
    expect([...store.rows.pools.keys()]).toEqual(['a']);
    expect(store.apply(delta(6, {}))).toBe('gap');
    expect(store.apply(snapshot(9, {}))).toBe('applied');
    expect([...store.rows.pools.keys()]).toEqual([]);
  });

  it('applies nothing before the first snapshot, and nothing of another version', () => {
    const store = new Store();
    expect(store.apply(delta(1, {}))).toBe('gap');
    expect(store.apply({ ...snapshot(1, { pools: { a: {} } }), version: VERSION + 1 })).toBe('incompatible');
    expect(store.rows.pools.size).toBe(0);
  });

  it('removes the rows of a removed pool', () => {
    const store = new Store();
    const tables = { pools: { a: { name: 'a' }, ab: { name: 'ab' } }, nodes: { ...node('a', 0), ...node('ab', 0) } };
    store.apply(snapshot(1, tables));
    store.apply(delta(2, {}, { pools: ['a'] }));
    expect([...store.rows.nodes.keys()]).toEqual(['ab/0']);
  });

  it('keeps the latest rows of an append-only table for each pool', () => {
    const store = new Store();
    store.apply(snapshot(1, { output: { 'b/1': { pool: 'b', number: 1 } } }));
    for (let number = 1; number <= 1000; number++) {
      store.apply(delta(number + 1, { output: { [`a/${number}`]: { pool: 'a', number } } }));
    }
    const kept = store.of('output', 'a');
    expect(kept.length).toBe(KEPT.output);
    expect(kept[kept.length - 1].number).toBe(1000);
    expect(store.of('output', 'b').length).toBe(1);
  });

  it('ignores tables that it does not know', () => {
    const store = new Store();
    expect(store.apply(snapshot(1, { novelties: { x: {} } }))).toBe('applied');
  });
});
