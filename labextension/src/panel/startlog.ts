import { Widget } from '@lumino/widgets';

import { KernelLink } from '../kernel/link';
import { equivalent } from '../model/equivalent';
import { Translation } from '../model/translation';

/** Milliseconds between two polls while the node is starting. */
const PAUSE = 1000;

/** The startup log of a node, polled while the node is starting. */
export class StartLog extends Widget {
  constructor(
    private readonly _link: KernelLink,
    private readonly _pool: string,
    private readonly _node: number,
    private readonly _trans: Translation
  ) {
    super();
    this.addClass('skyward-StartLog');
    this._text.tabIndex = 0;
    this._text.setAttribute('aria-label', _trans.__('Startup log of node %1 of pool %2', _node, _pool));
    this._text.textContent = _trans.__('Loading…');
    this.node.append(this._text);
    this.refresh();
  }

  /** Load the log now, and poll until the start is over. */
  refresh(): void {
    window.clearTimeout(this._timer);
    void this._load();
  }

  dispose(): void {
    if (this.isDisposed) {
      return;
    }
    window.clearTimeout(this._timer);
    super.dispose();
  }

  protected onActivateRequest(): void {
    this._text.focus();
  }

  private async _load(): Promise<void> {
    const node = { pool: this._pool, node: this._node };
    const { reply, text } = await this._link.send({ kind: 'ask-start-log', ...node });
    if (this.isDisposed) {
      return;
    }
    const log = reply?.kind === 'start-log' ? reply : null;
    if (log) {
      this._show(log.text || this._trans.__('This node was never started.'));
    } else if (!this._hasLog) {
      this._show(
        text ||
          this._trans.__('The kernel is busy; run %1 in a cell.', equivalent({ command: 'logs', arguments: node }))
      );
    }
    this._hasLog ||= log !== null;
    if (log && !log.over && !this._link.isDisposed) {
      this._timer = window.setTimeout(() => void this._load(), PAUSE);
    }
  }

  /** Show a text, and keep its end in view unless the user has scrolled away from it. */
  private _show(text: string): void {
    const box = this._text;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
    if (box.textContent !== text) {
      box.textContent = text;
    }
    if (atEnd) {
      box.scrollTop = box.scrollHeight;
    }
  }

  private _text = document.createElement('pre');
  private _timer = 0;
  private _hasLog = false;
}
