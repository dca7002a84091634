import { Store } from '../model/store';
import { PoolRow, RunRequest } from '../protocol';
import { AnyModel, KernelConnection } from './kernel';

/** Milliseconds between two checks that the kernel has answered. */
const TICK = 1000;

/** State of one display of a pool: its tables, and the sentence about the last command. */
export class PoolModel {
  constructor(model: AnyModel) {
    const tables = model.get('first');
    this.store.take({ kind: 'snapshot', tables });
    this._kernel = new KernelConnection(model, {
      changed: message => {
        this.store.take(message);
        this._changed();
      },
      notify: (text, isError) => {
        this.notice = { text, isError };
        this._changed();
      }
    });
    document.addEventListener('visibilitychange', this._onVisibility);
    window.addEventListener('pagehide', this._onHide);
    this._timer = window.setInterval(() => {
      if (document.visibilityState !== 'hidden') {
        this._kernel.tick();
      }
    }, TICK);
    this._onVisibility();
  }

  readonly store = new Store();
  notice = { text: '', isError: false };

  get pool(): PoolRow | undefined {
    return this.store.rows.pools.values().next().value;
  }

  /** Call `listener` after each change, until the returned function is called. */
  readonly subscribe = (listener: () => void): (() => void) => {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  };

  /** Send a command to the kernel; `description` is shown meanwhile. */
  send(request: RunRequest, description: string): void {
    this._kernel.command(request, description);
  }

  /** Disconnect from the kernel. Idempotent. */
  dispose(): void {
    this._kernel.dispose();
    document.removeEventListener('visibilitychange', this._onVisibility);
    window.removeEventListener('pagehide', this._onHide);
    window.clearInterval(this._timer);
    this._listeners.clear();
  }

  private _changed(): void {
    this._listeners.forEach(listener => listener());
  }

  private readonly _onVisibility = () => this._kernel.setVisible(document.visibilityState !== 'hidden');
  private readonly _onHide = () => this._kernel.setVisible(false);
  private readonly _listeners = new Set<() => void>();
  private readonly _kernel: KernelConnection;
  private readonly _timer: number;
}
