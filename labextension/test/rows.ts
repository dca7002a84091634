/** Rows of the panel's tables for tests, with defaults for the fields that a test does not care about. */
import { DecisionRow, NodeRow, PoolRow, VolumeRow } from '../src/protocol';

export function poolRow(fields: Partial<PoolRow> = {}): PoolRow {
  return {
    ...{
      name: 'train',
      state: 'ready',
      status: 'ready',
      provider: 'aws',
      policy: 'pressure',
      min: 1,
      max: 4,
      desired: 2,
      active: 2
    },
    ...{
      queued: 0,
      running: 0,
      done: 0,
      failed: 0,
      cancelled: 0,
      spent: 1,
      spent_at: 0,
      per_hour: 0,
      budget: null,
      failure: ''
    },
    ...{ recovered: 0, accelerators: '', lease: 0, budget_exhausted: false },
    ...fields
  };
}

export function nodeRow(rank: number, fields: Partial<NodeRow> = {}): NodeRow {
  return {
    ...{
      pool: 'train',
      machine: rank + 100,
      rank,
      state: 'active',
      status: 'busy',
      phase: 'ready',
      group: '',
      kind: 'aws p5'
    },
    ...{ address: '10.0.0.7', price: 3.2, slots: 4, busy: 1, asked_at: null, phase_at: null, usual: null },
    ...{ terminal_access: '', kept: [], outdated: false },
    ...fields
  };
}

export function volumeRow(rank: number, fields: Partial<VolumeRow> = {}): VolumeRow {
  return {
    ...{ pool: 'train', machine: rank + 100, rank, mount: '/data', source: 's3://lab/data', mode: 'copy', tool: '' },
    ...{ read_only: true, status: 'ready', detail: '', nbytes: 0, from_peers: 0, total: 0 },
    ...{ unflushed: 0, unflushed_bytes: 0 },
    ...fields
  };
}

export function decisionRow(number: number, fields: Partial<DecisionRow> = {}): DecisionRow {
  return {
    ...{ pool: 'train', number, at: 1000, by: 'policy', policy: 'pressure', before: 1, after: 4, reason: '9 queued' },
    ...{ held_back: '', times: 1, queued: 9, inflight: 1, capacity: 1, active: 1, booting: 0, leaving: 0 },
    ...{ idle_for: 0, spent: 1, per_hour: 3.2 },
    ...fields
  };
}
