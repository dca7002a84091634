import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';
import { UUID } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { OrphanRow, PoolRow } from '../protocol';
import { equivalent, Wish } from './equivalent';
import { KernelLink, Reply } from './link';

/** A sentence for the user on what came of a command. */
export interface Notice {
  text: string;
  kind: 'info' | 'error';
}

/** What the panel asks of its words; `trans.__` of JupyterLab's translation. */
export interface Words {
  __(text: string, ...values: (string | number)[]): string;
}

const CLIENT = 'skyward-client';

/** What the panel, and the item of the status bar, show: the notebook in focus and the pools of its kernel. */
export class PanelModel implements IDisposable {
  constructor(
    private readonly _tracker: INotebookTracker,
    private readonly _words: Words
  ) {
    _tracker.currentChanged.connect(this._follow, this);
    this._follow();
  }

  /** Something is different. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get notebook(): NotebookPanel | null {
    return this._notebook;
  }

  get link(): KernelLink | null {
    return this._link;
  }

  get notice(): Notice | null {
    return this._notice;
  }

  get pools(): PoolRow[] {
    return this._link ? [...this._link.store.rows.pools.values()] : [];
  }

  /** The pools that other processes have left behind, the latest first. */
  get orphans(): OrphanRow[] {
    const rows = [...(this._link?.store.rows.orphans.values() ?? [])];
    return rows.sort((a, b) => b.seen_at - a.seen_at);
  }

  /** Whether the form of a new pool is open. */
  get asking(): boolean {
    return this._asking;
  }

  set asking(asking: boolean) {
    this._asking = asking;
    this._changed.emit();
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (this._isDisposed) {
      return;
    }
    this._isDisposed = true;
    this._tracker.currentChanged.disconnect(this._follow, this);
    this._watch(null);
    this._links.forEach(link => link.dispose());
    this._links.clear();
    Signal.clearData(this);
  }

  /** Carry out a command, and say what came of it. */
  async send(wish: Wish): Promise<boolean> {
    const link = this._link;
    if (!link) {
      return false;
    }
    const { state, text } = await link.send(wish);
    switch (state) {
      case 'done':
        this.tell(text ? { text, kind: 'info' } : null);
        return true;
      case 'refused':
        this.tell({ text, kind: 'error' });
        return false;
      case 'interrupted':
        this.tell({
          text: this._words.__(
            'The kernel did not hear the panel, so it was interrupted.'
          ),
          kind: 'info'
        });
        return true;
      case 'unheard':
        this.tell({
          text: this._words.__(
            'The kernel is busy and will do this when its cell ends: %1',
            equivalent(wish)
          ),
          kind: 'info'
        });
        return false;
    }
  }

  /** Ask the kernel something that changes nothing: its reply, or why there is none. */
  async ask(wish: Wish): Promise<Reply | string> {
    const outcome = await this._link?.send(wish);
    return outcome?.reply ?? outcome?.text ?? '';
  }

  /** Show a sentence; null shows none. */
  tell(notice: Notice | null): void {
    this._notice = notice;
    this._changed.emit();
  }

  /** Go to a cell of the notebook in focus. */
  openCell(id: string): void {
    const content = this._notebook?.content;
    const index = content?.widgets.findIndex(cell => cell.model.id === id);
    if (content && index !== undefined && index >= 0) {
      content.activeCellIndex = index;
      void content.scrollToItem(index, 'smart');
    } else {
      this.tell({ text: this._words.__('That cell is not in this notebook any more.'), kind: 'info' });
    }
  }

  private _follow(): void {
    const notebook = this._tracker.currentWidget;
    if (notebook !== this._notebook) {
      this._watch(notebook);
    }
    this._update();
  }

  private _watch(notebook: NotebookPanel | null): void {
    this._notebook?.sessionContext.kernelChanged.disconnect(this._update, this);
    this._notebook?.disposed.disconnect(this._gone, this);
    this._notebook = notebook;
    notebook?.sessionContext.kernelChanged.connect(this._update, this);
    notebook?.disposed.connect(this._gone, this);
  }

  private _gone(): void {
    this._watch(null);
    this._update();
  }

  private _update(): void {
    const kernel = this._notebook?.sessionContext.session?.kernel ?? null;
    this._link = kernel && !kernel.isDisposed ? this._linkTo(kernel, this._notebook!) : null;
    this._changed.emit();
  }

  /** The link to a kernel: the one there is, as long as the connection to it is the same. */
  private _linkTo(kernel: Kernel.IKernelConnection, notebook: NotebookPanel): KernelLink {
    const known = this._links.get(kernel);
    if (known) {
      return known;
    }
    const link = new KernelLink(kernel, client(), this._bereft.delete(notebook));
    link.changed.connect(this._onLink, this);
    kernel.disposed.connect(() => {
      this._links.delete(kernel);
      if (link.hadPools) {
        this._bereft.add(notebook);
      }
    });
    this._links.set(kernel, link);
    return link;
  }

  private _onLink(link: KernelLink): void {
    if (link === this._link) {
      this._changed.emit();
    }
  }

  private _notebook: NotebookPanel | null = null;
  private _link: KernelLink | null = null;
  private _notice: Notice | null = null;
  private _links = new Map<Kernel.IKernelConnection, KernelLink>();
  /** Notebooks whose last kernel is gone, and had pools. */
  private _bereft = new WeakSet<NotebookPanel>();
  private _asking = false;
  private _isDisposed = false;
  private _changed = new Signal<this, void>(this);
}

/** The name of this page, which it keeps when it is reloaded. */
function client(): string {
  let name = window.sessionStorage.getItem(CLIENT);
  if (!name) {
    name = UUID.uuid4();
    window.sessionStorage.setItem(CLIENT, name);
  }
  return name;
}
