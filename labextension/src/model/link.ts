import { Kernel, KernelMessage } from '@jupyterlab/services';
import { UUID } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { COMMAND_TARGET, Message, STATE_COMM, VERSION } from '../protocol';
import { Wish } from './equivalent';
import { Store } from './store';
import { subshell } from './subshell';

/**
 * How a kernel is reached: not known yet; it has no Skyward; its state arrives; it restarts or does not answer; it is
 * gone; or it speaks another version of the protocol.
 */
export type Contact =
  | 'looking'
  | 'absent'
  | 'live'
  | 'restarting'
  | 'gone'
  | 'foreign';

/** How contact was lost: the kernel restarts, is gone, or the way to it is cut for now. */
export type Lost = 'restarting' | 'gone' | 'cut';

/** The name of the comm that a kernel with the extension lists, so that nothing is opened where there is none. */
const STATE_TARGET = STATE_COMM;

/** Milliseconds after which a kernel that did not say that it heard a command counts as blocked. */
export const PATIENCE = 1000;

/** What the kernel says to a command: that it was carried out or not, or what was asked for. */
export type Reply = Exclude<Message, { kind: 'snapshot' | 'delta' }>;

/** What became of a command. */
export interface Outcome {
  state: 'done' | 'refused' | 'unheard' | 'interrupted';
  text: string;
  /** What was asked for, where something was. */
  reply?: Reply;
}

type Listener = (reply: Reply) => void;

/** One kernel: what it tells of its pools, and the way for commands. */
export class KernelLink implements IDisposable {
  /** `lost`: whether the kernel before it, of the same notebook, had pools. */
  constructor(
    readonly kernel: Kernel.IKernelConnection,
    private readonly _client: string,
    lost = false
  ) {
    this._lost = lost;
    kernel.iopubMessage.connect(this._onIOPub, this);
    kernel.statusChanged.connect(this._onStatus, this);
    kernel.connectionStatusChanged.connect(this._onConnection, this);
    kernel.disposed.connect(this.dispose, this);
    void this.look();
  }

  readonly store = new Store();

  /** Something is different. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get contact(): Contact {
    return this._contact;
  }

  /** What there is of pools is what the kernel told before contact was lost; null while it is not. */
  get lost(): Lost | null {
    if (!this.store.rows.pools.size) {
      return null;
    }
    switch (this._contact) {
      case 'gone':
      case 'restarting':
        return this._contact;
      default:
        return this._cut ? 'cut' : null;
    }
  }

  /** When contact was lost last, in Unix time. */
  get lostAt(): number {
    return this._lostAt;
  }

  /** Whether there are pools that the next kernel of the notebook could take over. */
  get hadPools(): boolean {
    return this._lost || this.store.rows.pools.size > 0;
  }

  /** Whether the kernel has lost its pools to a restart, and nobody has loaded Skyward since. */
  get restarted(): boolean {
    return this._lost && this._contact === 'absent';
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this.kernel.iopubMessage.disconnect(this._onIOPub, this);
    this.kernel.statusChanged.disconnect(this._onStatus, this);
    this.kernel.connectionStatusChanged.disconnect(this._onConnection, this);
    this._closeComm();
    this._waiting.clear();
    Signal.clearData(this);
  }

  /** Find out whether the kernel has Skyward, and connect to it if so. A kernel that is busy answers later. */
  async look(): Promise<void> {
    try {
      const reply = await this.kernel.requestCommInfo({
        target_name: STATE_TARGET
      });
      if (reply.content.status === 'ok' && STATE_COMM in reply.content.comms) {
        await this._connect();
      } else if (this._contact === 'looking') {
        this._move('absent');
      }
    } catch {
      // The connection was lost, or the kernel restarted: its status says so.
    }
  }

  /** Have the kernel load Skyward, with no cell that says so. */
  load(): void {
    this.kernel.requestExecute({
      code: '%load_ext skyward',
      store_history: false
    });
  }

  /**
   * Have the kernel carry out a command. Where it hears nothing because a cell blocks it, and the command is to stop
   * work, the kernel is interrupted: that stops the cell, and with it the work.
   */
  send(wish: Wish): Promise<Outcome> {
    const id = UUID.uuid4();
    return new Promise(resolve => {
      const stops = wish.kind === 'cancel-task' || wish.kind === 'cancel-cell';
      const timer = setTimeout(() => {
        if (!stops) {
          resolve({ state: 'unheard', text: '' });
          return;
        }
        this._waiting.delete(id);
        void this.kernel.interrupt().then(
          () => resolve({ state: 'interrupted', text: '' }),
          error => resolve({ state: 'refused', text: String(error) })
        );
      }, PATIENCE);
      this._waiting.set(id, reply => {
        clearTimeout(timer);
        if (reply.kind === 'answer' && reply.state === 'heard') {
          return;
        }
        this._waiting.delete(id);
        resolve(
          reply.kind === 'answer'
            ? { state: reply.state as Outcome['state'], text: reply.text }
            : { state: 'done', text: '', reply }
        );
      });
      this._post({ ...wish, id });
    });
  }

  private _post(data: object): void {
    if (this._comm && !this._comm.isDisposed) {
      this._comm.send(data as never);
    }
  }

  private async _connect(): Promise<void> {
    if (this._comm || this._isDisposed) {
      return;
    }
    const comm = this.kernel.createComm(COMMAND_TARGET);
    this._comm = comm;
    comm.onClose = () => {
      if (this._comm === comm) {
        this._comm = null;
      }
    };
    await subshell(comm);
    if (this._isDisposed || this._comm !== comm || comm.isDisposed) {
      return;
    }
    comm.open({ client: this._client, version: VERSION });
  }

  private _closeComm(): void {
    const comm = this._comm;
    this._comm = null;
    if (comm && !comm.isDisposed && !this.kernel.isDisposed) {
      try {
        comm.close();
      } catch {
        // The kernel is gone, and the comm with it.
      }
    }
  }

  private _onIOPub(_: unknown, message: KernelMessage.IIOPubMessage): void {
    if (
      message.header.msg_type !== 'comm_msg' ||
      (message.content as { comm_id?: string }).comm_id !== STATE_COMM
    ) {
      return;
    }
    const data = (message.content as { data: unknown }).data as Message;
    if (data.kind !== 'snapshot' && data.kind !== 'delta') {
      this._waiting.get(data.id)?.(data);
      return;
    }
    if (this._restarting) {
      return; // the kernel that ends has said it
    }
    switch (this.store.apply(data)) {
      case 'foreign':
        this._move('foreign');
        return;
      case 'gap':
        this._post({ kind: 'refresh', id: UUID.uuid4() });
        break;
      case 'taken':
        this._contact = 'live';
        this._lost = false;
        break;
    }
    if (!this._comm) {
      void this._connect();
    }
    this._changed.emit();
  }

  private _onStatus(_: unknown, status: Kernel.Status): void {
    switch (status) {
      case 'restarting':
      case 'autorestarting':
        this._comm = null;
        this._lost ||= this.store.rows.pools.size > 0;
        this._restarting = true;
        this._lostAt = Date.now() / 1000;
        this._move('restarting');
        break;
      case 'dead':
        this._comm = null;
        this._lostAt = Date.now() / 1000;
        this._move('gone');
        break;
      case 'idle':
        if (this._restarting) {
          this._restarting = false;
          this.store.clear();
          this._move('looking');
          void this.look();
        }
        break;
    }
  }

  private _onConnection(_: unknown, status: Kernel.ConnectionStatus): void {
    const cut = status !== 'connected';
    if (cut && !this._cut) {
      this._lostAt = Date.now() / 1000;
    } else if (!cut && this._cut) {
      this._post({ kind: 'refresh', id: UUID.uuid4() }); // what was told meanwhile did not arrive
    }
    this._cut = cut;
    this._changed.emit();
  }

  private _move(contact: Contact): void {
    this._contact = contact;
    this._changed.emit();
  }

  private _contact: Contact = 'looking';
  private _comm: Kernel.IComm | null = null;
  private _isDisposed = false;
  /** From the sign of a restart on, until the next kernel is idle. */
  private _restarting = false;
  private _lost = false;
  private _lostAt = 0;
  private _cut = false;
  private _waiting = new Map<string, Listener>();
  private _changed = new Signal<this, void>(this);
}
