import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Kernel } from '@jupyterlab/services';
import { UUID } from '@lumino/coreutils';
import { ISignal, Signal } from '@lumino/signaling';

import { CommandRequest, equivalent } from '../model/equivalent';
import { Translation } from '../model/translation';
import { FailedPoolRow, OrphanRow, PoolRow, RunRequest } from '../protocol';
import { INotebookPools, INotice } from '../tokens';
import { KernelLink, Outcome, Reply } from './link';

const CLIENT = 'skyward-client';

/** The notebook in focus and the pools of its kernel. Links to the kernels of other notebooks are kept. */
export class NotebookPools implements INotebookPools {
  constructor(
    private readonly _tracker: INotebookTracker,
    private readonly _trans: Translation
  ) {
    _tracker.currentChanged.connect(this._follow, this);
    this._follow();
  }

  /** Signal that is emitted when the state has changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get notebook(): NotebookPanel | null {
    return this._notebook;
  }

  get link(): KernelLink | null {
    return this._link;
  }

  get notice(): INotice | null {
    return this._notice;
  }

  get pools(): PoolRow[] {
    return this._link ? [...this._link.store.rows.pools.values()] : [];
  }

  /** The orphaned pools, the latest first. */
  get orphans(): OrphanRow[] {
    const rows = [...(this._link?.store.rows.orphans.values() ?? [])];
    return rows.sort((a, b) => b.seen_at - a.seen_at);
  }

  /** The pools that failed to open, the latest first. */
  get failedPools(): FailedPoolRow[] {
    const rows = [...(this._link?.store.rows.failed_pools.values() ?? [])];
    return rows.sort((a, b) => b.at - a.at);
  }

  /** True if the form of a new pool is open. */
  get isFormOpen(): boolean {
    return this._isFormOpen;
  }

  set isFormOpen(isOpen: boolean) {
    this._isFormOpen = isOpen;
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

  /** Send a command, and show its outcome as a notice. Return true if it was executed. */
  async send(request: RunRequest): Promise<boolean> {
    const link = this._link;
    const outcome = await link?.send(request);
    if (outcome && link === this._link) {
      this._show(request, outcome);
    }
    return outcome?.state === 'done' || outcome?.state === 'interrupted';
  }

  /** Send a command, and show its outcome as a notice, unless it was refused. Return the reason if it was, else ''. */
  async submit(request: RunRequest): Promise<string> {
    const link = this._link;
    const outcome = await link?.send(request);
    if (!outcome || link !== this._link) {
      return '';
    }
    if (outcome.state === 'refused') {
      return outcome.text;
    }
    this._show(request, outcome);
    return '';
  }

  /** Show the outcome of a command as a notice. */
  private _show(request: RunRequest, { state, text }: Outcome): void {
    switch (state) {
      case 'done':
        this.notify(text ? { text, kind: 'info' } : null);
        break;
      case 'refused':
        this.notify({ text, kind: 'error' });
        break;
      case 'interrupted':
        this.notify({
          text: this._trans.__('The kernel did not respond to the panel, so it was interrupted.'),
          kind: 'info'
        });
        break;
      case 'pending':
        this.notify({
          text: this._trans.__('The kernel is busy and will run this when its cell ends: %1', equivalent(request)),
          kind: 'info'
        });
        break;
    }
  }

  /** Send a query to the kernel. Return its reply, or the reason why there is none. */
  async ask(request: CommandRequest): Promise<Reply | string> {
    const outcome = await this._link?.send(request);
    return outcome?.reply ?? outcome?.text ?? '';
  }

  /** Stop showing a pool that failed to open. */
  dismiss(pool: string): void {
    void this._link?.send({ kind: 'dismiss', pool });
  }

  /** Show a notice; null hides it. */
  notify(notice: INotice | null): void {
    this._notice = notice;
    this._changed.emit();
  }

  /** Scroll to a cell of the notebook in focus. */
  openCell(id: string): void {
    const content = this._notebook?.content;
    const index = content?.widgets.findIndex(cell => cell.model.id === id);
    if (content && index !== undefined && index >= 0) {
      content.activeCellIndex = index;
      void content.scrollToItem(index, 'smart');
    } else {
      this.notify({ text: this._trans.__('That cell is no longer in this notebook.'), kind: 'info' });
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
    this._notice = null;
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

  /** Return the link of a kernel connection; create it if necessary. */
  private _linkTo(kernel: Kernel.IKernelConnection, notebook: NotebookPanel): KernelLink {
    const known = this._links.get(kernel);
    if (known) {
      return known;
    }
    const link = new KernelLink(kernel, client(), this._lostPools.delete(notebook));
    link.changed.connect(this._onLink, this);
    kernel.disposed.connect(() => {
      this._links.delete(kernel);
      if (link.hadPools) {
        this._lostPools.add(notebook);
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
  private _notice: INotice | null = null;
  private _links = new Map<Kernel.IKernelConnection, KernelLink>();
  /** Notebooks whose last kernel is dead, and had pools. */
  private _lostPools = new WeakSet<NotebookPanel>();
  private _isFormOpen = false;
  private _isDisposed = false;
  private _changed = new Signal<this, void>(this);
}

/** Return the id of this page, which survives a reload. */
function client(): string {
  let name = window.sessionStorage.getItem(CLIENT);
  if (!name) {
    name = UUID.uuid4();
    window.sessionStorage.setItem(CLIENT, name);
  }
  return name;
}
