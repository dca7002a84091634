import { Kernel, KernelMessage } from '@jupyterlab/services';
import { UUID } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { COMMAND_TARGET, Message, MESSAGE_KINDS, Request, STATE_COMM, VERSION } from '../protocol';
import { CommandRequest } from '../model/equivalent';
import { Store } from '../model/store';
import { subshell } from './subshell';

/**
 * State of the contact with a kernel. `absent`: Skyward is not loaded. `live`: its state arrives. `incompatible`: it
 * has another version of the protocol.
 */
export type Contact = 'connecting' | 'absent' | 'live' | 'restarting' | 'dead' | 'incompatible';

/** Reason of a lost contact: the kernel restarts, is dead, or the connection to it is interrupted. */
export type Lost = 'restarting' | 'dead' | 'disconnected';

/** Target name of the comm that a kernel with the extension lists. Without it, no comm is opened. */
const STATE_TARGET = STATE_COMM;

/** Milliseconds after which a kernel that has not acknowledged a command counts as blocked. */
export const ACK_TIMEOUT = 1000;

/** Reply of the kernel to a command: its outcome, or the requested data. */
export type Reply = Exclude<Message, { kind: 'snapshot' | 'delta' }>;

/** Outcome of a command. `pending`: the kernel has not acknowledged it. `interrupted`: the kernel was interrupted. */
export interface Outcome {
  state: 'done' | 'refused' | 'pending' | 'interrupted';
  text: string;
  /** The requested data, if the command is a query. */
  reply?: Reply;
}

type Listener = (reply: Reply) => void;

/** Return whether the data of the state comm is a message. Its fields are those that the same version of Skyward sends. */
function isMessage(data: unknown): data is Message {
  return typeof data === 'object' && data !== null && 'kind' in data && MESSAGE_KINDS.some(kind => kind === data.kind);
}

/** Link to one kernel: the published state of its pools, and the channel for commands. */
export class KernelLink implements IDisposable {
  /** `lost`: true if the previous kernel of the notebook had pools. */
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
    void this.probe();
  }

  readonly store = new Store();

  /** Signal that is emitted when the state has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get contact(): Contact {
    return this._contact;
  }

  /** Reason why contact was lost, if the pools shown are a former state; null otherwise. */
  get lost(): Lost | null {
    if (!this.store.rows.pools.size) {
      return null;
    }
    switch (this._contact) {
      case 'dead':
      case 'restarting':
        return this._contact;
      default:
        return this._disconnected ? 'disconnected' : null;
    }
  }

  /** Unix time at which contact was last lost. */
  get lostAt(): number {
    return this._lostAt;
  }

  /** True if there are pools to which the next kernel of the notebook could attach. */
  get hadPools(): boolean {
    return this._lost || this.store.rows.pools.size > 0;
  }

  /** True if the kernel has lost its pools by a restart, and Skyward has not been loaded since. */
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

  /** Check whether Skyward is loaded in the kernel, and connect if so. A busy kernel answers later. */
  async probe(): Promise<void> {
    try {
      const reply = await this.kernel.requestCommInfo({
        target_name: STATE_TARGET
      });
      if (reply.content.status === 'ok' && STATE_COMM in reply.content.comms) {
        await this._connect();
      } else if (this._contact === 'connecting') {
        this._setContact('absent');
      }
    } catch {
      // The connection was lost, or the kernel restarted: its status says so.
    }
  }

  /** Load Skyward in the kernel, without a cell. */
  load(): void {
    this.kernel.requestExecute({
      code: '%load_ext skyward',
      store_history: false
    });
  }

  /**
   * Send a command to the kernel. If the kernel does not acknowledge it because a cell blocks it, and the command
   * cancels work, interrupt the kernel: that stops the cell, and with it the work.
   */
  send(request: CommandRequest): Promise<Outcome> {
    const id = UUID.uuid4();
    return new Promise(resolve => {
      const isCancel = request.kind === 'run' && request.command === 'cancel';
      const timer = setTimeout(() => {
        if (!isCancel) {
          resolve({ state: 'pending', text: '' });
          return;
        }
        this._waiting.delete(id);
        void this.kernel.interrupt().then(
          () => resolve({ state: 'interrupted', text: '' }),
          error => resolve({ state: 'refused', text: String(error) })
        );
      }, ACK_TIMEOUT);
      this._waiting.set(id, reply => {
        clearTimeout(timer);
        if (reply.kind !== 'answer') {
          resolve({ state: 'done', text: '', reply });
        } else if (reply.state === 'heard') {
          return;
        } else {
          resolve({ state: reply.state, text: reply.text });
        }
        this._waiting.delete(id);
      });
      this._post({ ...request, id });
    });
  }

  private _post(request: Request): void {
    if (this._comm && !this._comm.isDisposed) {
      this._comm.send(request);
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
        // The kernel is dead, and the comm with it.
      }
    }
  }

  private _onIOPub(_: unknown, message: KernelMessage.IIOPubMessage): void {
    if (!KernelMessage.isCommMsgMsg(message) || message.content.comm_id !== STATE_COMM) {
      return;
    }
    const { data } = message.content;
    if (!isMessage(data)) {
      return; // of another version
    }
    if (data.kind !== 'snapshot' && data.kind !== 'delta') {
      this._waiting.get(data.id)?.(data);
      return;
    }
    if (this._restarting) {
      return; // a message of the old kernel
    }
    switch (this.store.apply(data)) {
      case 'incompatible':
        this._setContact('incompatible');
        return;
      case 'gap':
        this._post({ kind: 'refresh', id: UUID.uuid4() });
        break;
      case 'applied':
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
        this._setContact('restarting');
        break;
      case 'dead':
        this._comm = null;
        this._lostAt = Date.now() / 1000;
        this._setContact('dead');
        break;
      case 'idle':
        if (this._restarting) {
          this._restarting = false;
          this.store.clear();
          this._setContact('connecting');
          void this.probe();
        }
        break;
    }
  }

  private _onConnection(_: unknown, status: Kernel.ConnectionStatus): void {
    const disconnected = status !== 'connected';
    if (disconnected && !this._disconnected) {
      this._lostAt = Date.now() / 1000;
    } else if (!disconnected && this._disconnected) {
      this._post({ kind: 'refresh', id: UUID.uuid4() }); // updates of the meantime were lost
    }
    this._disconnected = disconnected;
    this._changed.emit();
  }

  private _setContact(contact: Contact): void {
    this._contact = contact;
    this._changed.emit();
  }

  private _contact: Contact = 'connecting';
  private _comm: Kernel.IComm | null = null;
  private _isDisposed = false;
  /** True from the start of a restart until the next kernel is idle. */
  private _restarting = false;
  private _lost = false;
  private _lostAt = 0;
  private _disconnected = false;
  private _waiting = new Map<string, Listener>();
  private _changed = new Signal<this, void>(this);
}
