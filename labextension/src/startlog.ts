import { JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { icon } from './icon';
import { equivalent } from './model/equivalent';
import { KernelLink } from './model/link';
import { Translation } from './model/panel';

/** Milliseconds between two polls while the node is starting. */
const PAUSE = 1000;

/**
 * Show the startup log of a node in a tab, which is reused if it is open. `area` is the area for tabs: the main area of
 * Notebook 7 has room for the notebook only.
 */
export function openStartLog(
  app: JupyterFrontEnd,
  link: KernelLink,
  pool: string,
  node: number,
  trans: Translation,
  area: 'main' | 'down'
): void {
  const id = `skyward-log-${link.kernel.id}-${pool}-${node}`;
  const open = [...app.shell.widgets(area)].find(each => each.id === id) as MainAreaWidget<StartLog> | undefined;
  if (open) {
    open.content.refresh();
  } else {
    const main = new MainAreaWidget({ content: new StartLog(link, pool, node, trans) });
    main.id = id;
    main.title.label = trans.__('node %1 of %2', node, pool);
    main.title.caption = equivalent({ command: 'logs', arguments: { pool, node } });
    main.title.icon = area === 'main' ? icon : undefined;
    app.shell.add(main, area);
  }
  app.shell.activateById(id);
}

/** The startup log of a node, polled while the node is starting. */
class StartLog extends Widget {
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
