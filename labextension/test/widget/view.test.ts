import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { StoreUpdate } from '../../src/model/store';
import { CommandReply, PoolRow, VERSION } from '../../src/protocol';
import widget from '../../src/widget/index';
import { AnyModel } from '../../src/widget/kernel';
import { decisionRow, nodeRow, poolRow, volumeRow } from '../rows';

type Call = (message: StoreUpdate | CommandReply) => void;

/** The model of anywidget, whose kernel is the test. */
class FakeModel {
  sent: { kind: string; id?: string; command?: string }[] = [];
  listeners = new Set<Call>();

  constructor(
    private readonly _pool: PoolRow,
    readonly widget_manager?: AnyModel['widget_manager']
  ) {}

  get(name: string): unknown {
    const tables = {
      pools: { train: this._pool },
      nodes: { 'train/100': nodeRow(0) },
      decisions: { 1: decisionRow(1) }
    };
    return name === 'first' ? tables : 'key';
  }

  on(_: string, call: Call): void {
    this.listeners.add(call);
  }

  off(_: string, call: Call): void {
    this.listeners.delete(call);
  }

  send(message: { kind: string; id?: string }): void {
    this.sent.push(message);
  }

  deliver(message: StoreUpdate | CommandReply): void {
    this.listeners.forEach(call => call(message));
  }

  commands(): { kind: string; id?: string; command?: string }[] {
    return this.sent.filter(each => !['look', 'leave'].includes(each.kind));
  }
}

let el: HTMLElement;
let end: () => void = () => undefined;

function open(pool: PoolRow, manager?: AnyModel['widget_manager']): FakeModel {
  const model = new FakeModel(pool, manager);
  end = widget.render({ model: model as unknown as AnyModel, el });
  return model;
}

function button(text: string): HTMLButtonElement {
  const found = [...el.querySelectorAll('button')].filter(each => each.textContent === text);
  return found[found.length - 1];
}

async function until(text: string): Promise<void> {
  await vi.waitFor(() => expect(el.textContent).toContain(text));
}

beforeEach(() => {
  el = document.createElement('div');
  document.body.append(el);
});

afterEach(() => {
  end();
  el.remove();
});

describe('the widget', () => {
  it('shows the first state, and follows the updates of the kernel', async () => {
    const model = open(poolRow());
    await until('2 of 1–4 nodes');
    await until('1 → 4');
    expect(model.sent[0].kind).toBe('look');
    model.deliver({ kind: 'delta', tables: { pools: { train: poolRow({ active: 3, done: 7 }) } }, gone: {} });
    await until('3 of 1–4 nodes');
    await until('7 done');
  });

  it('has a line for a volume with files that wait for their upload, until they are uploaded', async () => {
    const model = open(poolRow());
    await until('2 of 1–4 nodes');
    const deliver = (unflushed: number) => {
      const row = volumeRow(0, { mount: '/results', unflushed, unflushed_bytes: 5 * unflushed });
      model.deliver({ kind: 'delta', tables: { volumes: { 'train/100/results': row } }, gone: {} });
    };
    deliver(2);
    await until('/results 2 files (10 B) wait for upload');
    deliver(0);
    await vi.waitFor(() => expect(el.textContent).not.toContain('/results'));
  });

  it('stops an idle pool at once, and shows the outcome', async () => {
    const model = open(poolRow());
    await until('ready');
    button('Stop').click();
    await until('Terminating the machines.');
    const [{ command, id = '' }] = model.commands();
    expect(command).toBe('down');
    model.deliver({ kind: 'answer', version: VERSION, id, state: 'refused', text: 'It is closed.' });
    await until('It is closed.');
  });

  it('asks before it stops a pool with tasks', async () => {
    const model = open(poolRow({ running: 1 }));
    await until('ready');
    button('Stop').click();
    await until('1 unfinished task will be lost.');
    button('Keep').click();
    await vi.waitFor(() => expect(el.textContent).not.toContain('will be lost'));
    expect(model.commands()).toEqual([]);
    button('Stop').click();
    await until('1 unfinished task will be lost.');
    button('Stop').click();
    await vi.waitFor(() => expect(model.commands().map(each => each.command)).toEqual(['down']));
  });

  it('uses the comm of the model if the kernel does not respond on its own', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'Date'] });
    try {
      const comm = { onClose: undefined, open: vi.fn(), send: vi.fn(), close: vi.fn() };
      const model = open(poolRow(), { kernel: { createComm: () => comm } });
      await vi.waitFor(() => expect(comm.send).toHaveBeenCalledTimes(1));
      vi.advanceTimersByTime(3000);
      expect(comm.close).toHaveBeenCalledTimes(1);
      expect(model.sent.map(each => each.kind)).toEqual(['look', 'look']);
    } finally {
      end();
      vi.useRealTimers();
    }
  });

  it('tells the kernel once that it is gone', async () => {
    const model = open(poolRow());
    await until('ready');
    end();
    end();
    expect(model.sent.map(each => each.kind)).toEqual(['look', 'leave']);
    expect(model.listeners.size).toBe(0);
    expect(el.textContent).toBe('');
  });
});
