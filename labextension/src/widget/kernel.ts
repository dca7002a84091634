import { StoreUpdate } from '../model/store';
import { ISubshellComm, subshell } from '../kernel/subshell';
import { CommandReply, Tables, VIEW_TARGET, RunRequest } from '../protocol';

/** Milliseconds after which an unacknowledged command is reported as waiting. */
const ACK_TIMEOUT = 500;
/** Milliseconds between two attempts to reach the kernel: initial and maximum. */
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 60_000;

/** Id of this page; a reload changes it. */
const PAGE = Math.random().toString(36).slice(2);

/** A comm of JupyterLab. */
interface IComm extends ISubshellComm {
  onClose: unknown;
  open(data: object): unknown;
  send(data: object): unknown;
  close(): unknown;
}

/** A message of the kernel to a view. */
type ViewMessage = StoreUpdate | CommandReply;

/** The model that anywidget passes to a view. The features of `widget_manager` depend on the front end. */
export interface AnyModel {
  get(name: 'first'): Tables;
  get(name: 'key'): string;
  on(name: 'msg:custom', call: (message: ViewMessage) => void): void;
  off(name: 'msg:custom', call: (message: ViewMessage) => void): void;
  send(message: object): void;
  widget_manager?: {
    kernel?: { createComm?: (target: string) => IComm } | null;
  };
}

/** Receiver of the kernel's messages. */
export interface KernelListener {
  /** Called when the state of the pool has changed. */
  changed(message: StoreUpdate): void;
  /** Show the user a sentence about the outcome of a command. */
  notify(text: string, isError: boolean): void;
}

/**
 * Connection between one view and the kernel. Messages of the kernel arrive over the comm of the model. Messages to the
 * kernel would be blocked there by a running cell, so they use a separate comm with a subshell, if the front end
 * supports it, as JupyterLab and Notebook 7 do.
 */
export class KernelConnection {
  constructor(
    private readonly _model: AnyModel,
    private readonly _listener: KernelListener
  ) {
    _model.on('msg:custom', this._onMessage);
    void this._connect();
  }

  /** Tell the kernel whether the view is visible; updates are sent to visible views only. */
  setVisible(isVisible: boolean): void {
    this._isVisible = isVisible;
    this._sentAt = Date.now();
    this._send({ kind: isVisible ? 'look' : 'leave', page: PAGE });
  }

  /**
   * Repeat the last visibility message until the kernel responds: some front ends connect to it late. The repetitions
   * use the comm of the model.
   */
  tick(): void {
    if (!this._isConnected && Date.now() > this._sentAt + this._pause) {
      const comm = this._comm;
      this._comm = null;
      if (comm) {
        comm.onClose = undefined;
        comm.close();
      }
      this._pause = Math.min(LONGEST_PAUSE, this._pause * 2);
      this.setVisible(this._isVisible);
    }
  }

  /** Send a command to the kernel; `description` is shown meanwhile. */
  command(request: RunRequest, description: string): void {
    const id = `${this._view}.${this._count++}`;
    this._listener.notify(description, false);
    if (!this._send({ id, ...request })) {
      this._listener.notify('This view is not connected to a kernel.', true);
      return;
    }
    const late = `${description} Waiting for the running cell to end or to be interrupted.`;
    this._pending.set(
      id,
      window.setTimeout(() => this._listener.notify(late, false), ACK_TIMEOUT)
    );
  }

  /** Tell the kernel that the view is hidden, and release everything. Idempotent. */
  dispose(): void {
    if (this._isOver) {
      return;
    }
    this._isOver = true;
    this.setVisible(false);
    this._model.off('msg:custom', this._onMessage);
    this._pending.forEach(timer => window.clearTimeout(timer));
    this._comm?.close();
    this._comm = null;
  }

  private async _connect(): Promise<void> {
    try {
      const comm = this._model.widget_manager?.kernel?.createComm?.(VIEW_TARGET);
      if (!comm) {
        return;
      }
      comm.onClose = () => {
        this._comm = null;
        if (!this._isOver) {
          this.setVisible(this._isVisible); // over the comm of the model
        }
      };
      await subshell(comm);
      comm.open({ view: this._model.get('key') });
      if (this._isOver) {
        comm.close();
      } else {
        this._comm = comm;
        this.setVisible(this._isVisible);
      }
    } catch {
      // The front end has an incompatible `createComm`: use the comm of the model.
    }
  }

  /** Send a message. Return false if the page has no kernel. */
  private _send(message: object): boolean {
    const whole = { view: this._view, ...message };
    try {
      if (this._comm) {
        this._comm.send(whole);
      } else {
        this._model.send(whole);
      }
      return true;
    } catch {
      return false;
    }
  }

  private readonly _onMessage = (message: ViewMessage): void => {
    this._isConnected = true;
    if (message.kind !== 'answer') {
      this._listener.changed(message);
    } else if (this._pending.has(message.id)) {
      window.clearTimeout(this._pending.get(message.id));
      if (message.state !== 'heard') {
        this._listener.notify(message.text, message.state === 'refused');
      }
    }
  };

  private readonly _view = Math.random().toString(36).slice(2);
  private readonly _pending = new Map<string, number>();
  private _comm: IComm | null = null;
  private _count = 0;
  private _isConnected = false;
  private _isVisible = false;
  private _isOver = false;
  private _sentAt = 0;
  private _pause = FIRST_PAUSE;
}
