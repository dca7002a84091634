import type { Wish } from '../model/equivalent';
import { Telling } from '../model/store';
import { subshell } from '../model/subshell';
import { Answer, VIEW_TARGET } from '../protocol';

/** Milliseconds until a command that nobody has heard is said to wait. */
const PATIENCE = 500;
/** Milliseconds between two tries to be heard at all: at first, and at most. */
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 60_000;

/** This page; another one after a reload. */
const PAGE = Math.random().toString(36).slice(2);

/** A comm, as JupyterLab has them. */
interface IComm {
  onClose: unknown;
  open(data: object): unknown;
  send(data: object): unknown;
  close(): unknown;
}

/** What anywidget gives a view. The manager is that of the front end: what it has differs. */
export interface Model {
  get(name: string): unknown;
  on(name: string, call: (message: never) => void): void;
  off(name: string, call: (message: never) => void): void;
  send(message: object): void;
  widget_manager?: {
    kernel?: { createComm?: (target: string) => IComm } | null;
  };
}

/** What a view does with what the kernel says. */
export interface Ears {
  /** The pool is other than it was. */
  changed(message: Telling): void;
  /** A sentence for the user on what came of a command. */
  tell(text: string, is_bad: boolean): void;
}

/**
 * The way from one view to the kernel and back. What the kernel says comes over the comm of the model. What is said to
 * it would wait there for the cell that the kernel runs: so it goes over a comm of its own with a subshell, where the
 * front end gives us one, as JupyterLab and Notebook 7 do.
 */
export class KernelWay {
  constructor(
    private readonly _model: Model,
    private readonly _ears: Ears
  ) {
    _model.on('msg:custom', this._hear);
    void this._connect();
  }

  /** Say that somebody looks, or does not; what the pool is like is sent to those that do. */
  look(isLooking: boolean): void {
    this._isLooking = isLooking;
    this._lookedAt = Date.now();
    this._send({ kind: isLooking ? 'look' : 'leave', page: PAGE });
  }

  /** Have the kernel know that somebody looks: in some front ends it is reached later than the view is there. */
  tick(): void {
    if (!this._isHeard && Date.now() > this._lookedAt + this._pause) {
      this._pause = Math.min(LONGEST_PAUSE, this._pause * 2);
      this.look(this._isLooking);
    }
  }

  /** Have the kernel carry out a command; `doing` says what that is. */
  command(wish: Wish, doing: string): void {
    const id = `${this._view}.${this._count++}`;
    this._ears.tell(doing, false);
    if (!this._send({ id, ...wish })) {
      this._ears.tell('There is no kernel behind this view.', true);
      return;
    }
    const late = `${doing} This waits for the cell that the kernel runs, or for you to interrupt it.`;
    this._asked.set(
      id,
      window.setTimeout(() => this._ears.tell(late, false), PATIENCE)
    );
  }

  /** Look no more, and let go of everything. */
  end(): void {
    this.look(false);
    this._isOver = true;
    this._model.off('msg:custom', this._hear);
    this._asked.forEach(timer => window.clearTimeout(timer));
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
          this.look(this._isLooking); // by the other way
        }
      };
      await subshell(comm);
      comm.open({ view: this._model.get('key') });
      this._comm = comm;
      if (this._isOver) {
        this.end();
      } else {
        this.look(this._isLooking);
      }
    } catch {
      // A front end that has something else by this name: the comm of the model is there.
    }
  }

  /** Whether there is somebody to send it to: in a page without a kernel there is not. */
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

  private readonly _hear = (message: Telling | Answer): void => {
    this._isHeard = true;
    if (message.kind !== 'answer') {
      this._ears.changed(message);
    } else if (this._asked.has(message.id)) {
      window.clearTimeout(this._asked.get(message.id));
      if (message.state !== 'heard') {
        this._ears.tell(message.text, message.state === 'refused');
      }
    }
  };

  private readonly _view = Math.random().toString(36).slice(2);
  private readonly _asked = new Map<string, number>();
  private _comm: IComm | null = null;
  private _count = 0;
  private _isHeard = false;
  private _isLooking = false;
  private _isOver = false;
  private _lookedAt = 0;
  private _pause = FIRST_PAUSE;
}
