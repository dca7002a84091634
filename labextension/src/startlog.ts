import { JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { icon } from './icon';
import { equivalent } from './model/equivalent';
import { KernelLink } from './model/link';
import { Words } from './model/panel';

/** Milliseconds between looks at a start that goes on. */
const PAUSE = 1000;

/**
 * Show all that a node has said while it started, in a tab of its own; the one there is, if it is open. `area` is where
 * tabs can be: the main one of Notebook 7 has room for the notebook only.
 */
export function openStartLog(
  app: JupyterFrontEnd,
  link: KernelLink,
  pool: string,
  node: number,
  trans: Words,
  area: 'main' | 'down'
): void {
  const id = `skyward-log-${link.kernel.id}-${pool}-${node}`;
  const there = [...app.shell.widgets(area)].find(each => each.id === id) as MainAreaWidget<StartLog> | undefined;
  if (there) {
    there.content.look();
  } else {
    const main = new MainAreaWidget({ content: new StartLog(link, pool, node, trans) });
    main.id = id;
    main.title.label = trans.__('node %1 of %2', node, pool);
    main.title.caption = equivalent({ kind: 'ask-start-log', pool, node });
    main.title.icon = area === 'main' ? icon : undefined;
    app.shell.add(main, area);
  }
  app.shell.activateById(id);
}

/** The log of the start of a node, which is looked at again while that goes on. */
class StartLog extends Widget {
  constructor(
    private readonly _link: KernelLink,
    private readonly _pool: string,
    private readonly _node: number,
    private readonly _trans: Words
  ) {
    super();
    this.addClass('skyward-StartLog');
    this._text.tabIndex = 0;
    this._text.setAttribute('aria-label', _trans.__('What node %1 of pool %2 said while it started', _node, _pool));
    this._text.textContent = _trans.__('Asking the kernel…');
    this.node.append(this._text);
    this.look();
  }

  /** Look now, and then again and again until the start is over. */
  look(): void {
    window.clearTimeout(this._timer);
    void this._look();
  }

  dispose(): void {
    window.clearTimeout(this._timer);
    super.dispose();
  }

  protected onActivateRequest(): void {
    this._text.focus();
  }

  private async _look(): Promise<void> {
    const wish = { kind: 'ask-start-log', pool: this._pool, node: this._node } as const;
    const { reply, text } = await this._link.send(wish);
    if (this.isDisposed) {
      return;
    }
    const log = reply?.kind === 'start-log' ? reply : null;
    if (log) {
      this._show(log.text || this._trans.__('This node was never started.'));
    } else if (!this._told) {
      this._show(text || this._trans.__('The kernel is busy; run %1 in a cell.', equivalent(wish)));
    }
    this._told ||= log !== null;
    if (log && !log.over && !this._link.isDisposed) {
      this._timer = window.setTimeout(() => void this._look(), PAUSE);
    }
  }

  /** Put a text in, and keep its end in sight unless somebody has scrolled away from it. */
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
  private _told = false;
}
