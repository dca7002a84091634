import { Kernel } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import { describe, expect, it } from 'vitest';

import { KernelLink } from '../src/model/link';
import { STATE_COMM, VERSION } from '../src/protocol';

/** A kernel that is somebody else's to drive. */
class FakeKernel {
  isDisposed = false;
  hasComm = false;
  iopubMessage = new Signal<this, unknown>(this);
  statusChanged = new Signal<this, Kernel.Status>(this);
  connectionStatusChanged = new Signal<this, Kernel.ConnectionStatus>(this);
  disposed = new Signal<this, void>(this);

  async requestCommInfo(): Promise<unknown> {
    return { content: { status: 'ok', comms: this.hasComm ? { [STATE_COMM]: {} } : {} } };
  }

  createComm(): unknown {
    return { open: () => undefined, close: () => undefined, send: () => undefined, isDisposed: false };
  }

  tell(seq: number, pools: object): void {
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

/** Let what was asked of the kernel be answered. */
async function settled(): Promise<void> {
  await new Promise(resolve => setTimeout(resolve));
}

describe('the link to a kernel', () => {
  it('knows after a restart that there were pools', async () => {
    const [kernel, link] = await linked();
    kernel.tell(1, { train: { name: 'train' } });
    expect([link.contact, link.hadPools, link.restarted]).toEqual(['live', true, false]);
    kernel.statusChanged.emit('restarting');
    kernel.statusChanged.emit('idle');
    await settled();
    expect([link.contact, link.hadPools, link.restarted]).toEqual(['absent', true, true]);
  });

  it('takes nothing that the kernel still says as it ends', async () => {
    const [kernel, link] = await linked();
    kernel.tell(1, { train: { name: 'train' } });
    kernel.statusChanged.emit('restarting');
    kernel.tell(2, {});
    expect([link.contact, link.lost]).toEqual(['restarting', 'restarting']);
    kernel.statusChanged.emit('idle');
    await settled();
    expect(link.restarted).toBe(true);
  });

  it('knows that the kernel before it had pools', async () => {
    const [, link] = await linked(true);
    expect([link.contact, link.restarted]).toEqual(['absent', true]);
    const [, other] = await linked();
    expect([other.contact, other.restarted]).toEqual(['absent', false]);
  });

  it('takes what the next kernel says once it is idle', async () => {
    const [kernel, link] = await linked();
    kernel.tell(1, { train: { name: 'train' } });
    kernel.statusChanged.emit('restarting');
    kernel.statusChanged.emit('idle');
    await settled();
    kernel.tell(1, { other: { name: 'other' } });
    expect([link.contact, link.restarted, [...link.store.rows.pools.keys()]]).toEqual(['live', false, ['other']]);
  });
});
