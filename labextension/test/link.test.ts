import { Kernel } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import { describe, expect, it } from 'vitest';

import { KernelLink } from '../src/kernel/link';
import { STATE_COMM, VERSION } from '../src/protocol';

/** A kernel that the test drives. */
class FakeKernel {
  isDisposed = false;
  hasComm = false;
  iopubMessage = new Signal<this, unknown>(this);
  statusChanged = new Signal<this, Kernel.Status>(this);
  connectionStatusChanged = new Signal<this, Kernel.ConnectionStatus>(this);
  disposed = new Signal<this, void>(this);

  requestCommInfo(): Promise<unknown> {
    return Promise.resolve({ content: { status: 'ok', comms: this.hasComm ? { [STATE_COMM]: {} } : {} } });
  }

  createComm(): unknown {
    return { open: () => undefined, close: () => undefined, send: () => undefined, isDisposed: false };
  }

  publish(seq: number, pools: object): void {
    const data = { kind: 'snapshot', version: VERSION, session: 's', seq, form: [], tables: { pools } };
    this.iopubMessage.emit({ header: { msg_type: 'comm_msg' }, content: { comm_id: STATE_COMM, data } });
  }
}

async function linked(lost = false): Promise<[FakeKernel, KernelLink]> {
  const kernel = new FakeKernel();
  const link = new KernelLink(kernel as unknown as Kernel.IKernelConnection, 'me', lost);
  await settled();
  return [kernel, link];
}

/** Wait until the requests to the kernel are answered. */
async function settled(): Promise<void> {
  await new Promise(resolve => setTimeout(resolve));
}

describe('the link to a kernel', () => {
  it('remembers after a restart that there were pools', async () => {
    const [kernel, link] = await linked();
    kernel.publish(1, { train: { name: 'train' } });
    expect([link.contact, link.hadPools, link.restarted]).toEqual(['live', true, false]);
    kernel.statusChanged.emit('restarting');
    kernel.statusChanged.emit('idle');
    await settled();
    expect([link.contact, link.hadPools, link.restarted]).toEqual(['absent', true, true]);
  });

  it('ignores messages of a kernel that is restarting', async () => {
    const [kernel, link] = await linked();
    kernel.publish(1, { train: { name: 'train' } });
    kernel.statusChanged.emit('restarting');
    kernel.publish(2, {});
    expect([link.contact, link.lost]).toEqual(['restarting', 'restarting']);
    kernel.statusChanged.emit('idle');
    await settled();
    expect(link.restarted).toBe(true);
  });

  it('knows that the previous kernel had pools', async () => {
    const [, link] = await linked(true);
    expect([link.contact, link.restarted]).toEqual(['absent', true]);
    const [, other] = await linked();
    expect([other.contact, other.restarted]).toEqual(['absent', false]);
  });

  it('applies messages of the next kernel once it is idle', async () => {
    const [kernel, link] = await linked();
    kernel.publish(1, { train: { name: 'train' } });
    kernel.statusChanged.emit('restarting');
    kernel.statusChanged.emit('idle');
    await settled();
    kernel.publish(1, { other: { name: 'other' } });
    expect([link.contact, link.restarted, [...link.store.rows.pools.keys()]]).toEqual(['live', false, ['other']]);
  });
});
