import { NotebookPanel } from '@jupyterlab/notebook';
import { Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal } from '@lumino/signaling';

import type { KernelLink, Reply } from './kernel/link';
import type { CommandRequest } from './model/equivalent';
import { FailedPoolRow, OrphanRow, PoolRow, RunRequest } from './protocol';

/** A sentence for the user about the outcome of a command. */
export interface INotice {
  text: string;
  kind: 'info' | 'error';
}

/** The pools of the notebook in focus, and the commands to its kernel. */
export interface INotebookPools extends IDisposable {
  /** Signal that is emitted when any of the properties has changed. */
  readonly changed: ISignal<INotebookPools, void>;
  /** The notebook in focus, or the last one that was. */
  readonly notebook: NotebookPanel | null;
  /** The link to its kernel; null without a kernel. */
  readonly link: KernelLink | null;
  readonly pools: PoolRow[];
  /** The orphaned pools, the latest first. */
  readonly orphans: OrphanRow[];
  /** The pools that failed to open, the latest first. */
  readonly failedPools: FailedPoolRow[];
  /** The sentence that the panel shows about the last command. */
  readonly notice: INotice | null;
  /** True if the panel shows the form of a new pool. */
  isFormOpen: boolean;
  /** Send a command, and show its outcome as a notice. Return true if it was executed. */
  send(request: RunRequest): Promise<boolean>;
  /** Send a command, and show its outcome as a notice, unless it was refused. Return the reason if it was, else ''. */
  submit(request: RunRequest): Promise<string>;
  /** Send a query to the kernel. Return its reply, or the reason why there is none. */
  ask(request: CommandRequest): Promise<Reply | string>;
  /** Stop showing a pool that failed to open. */
  dismiss(pool: string): void;
  /** Show a notice; null hides it. */
  notify(notice: INotice | null): void;
  /** Scroll to a cell of the notebook. */
  openCell(id: string): void;
}

/** Actions on notebooks and pools that are confirmed by the user or insert cells. */
export interface IPoolActions {
  /** Insert a cell that loads Skyward. */
  insertLoad(): void;
  /** Insert an empty cell that runs on nodes. */
  insertCell(): void;
  /** Insert a cell with a line of `%sky`. */
  insertLine(line: string): void;
  /** Insert a cell that shows the tasks of a previous kernel. */
  insertRecovered(pool: PoolRow): void;
  /** Stop a pool; if it has work, the user is asked first. */
  stopPool(pool: PoolRow): void;
  /** Stop all pools of the notebook. */
  stopAll(): void;
}

/** Terminals on nodes. */
export interface INodeTerminals {
  /** False if the front end or its server has no terminals. */
  readonly isAvailable: boolean;
  /** Open a terminal on a node. */
  open(pool: string, node: number): void;
}

/** Tabs with the startup logs of nodes. */
export interface IStartLogs {
  /** Show the startup log of a node. */
  open(pool: string, node: number): void;
}

/** The side panel. */
export interface ISidePanel {
  /** Show the panel. */
  show(): void;
}

export const INotebookPools = new Token<INotebookPools>(
  'skyward-panel:INotebookPools',
  'The Skyward pools of the notebook in focus, and the commands to its kernel.'
);

export const IPoolActions = new Token<IPoolActions>(
  'skyward-panel:IPoolActions',
  'Actions on Skyward pools that are confirmed by the user or insert cells.'
);

export const INodeTerminals = new Token<INodeTerminals>(
  'skyward-panel:INodeTerminals',
  'Terminals on the nodes of Skyward pools.'
);

export const IStartLogs = new Token<IStartLogs>(
  'skyward-panel:IStartLogs',
  'Tabs with the startup logs of the nodes of Skyward pools.'
);

export const ISidePanel = new Token<ISidePanel>('skyward-panel:ISidePanel', "Skyward's side panel.");
