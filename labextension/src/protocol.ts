// Made by scripts/panel_types.py from skyward_kernel/protocol.py: change that one.

export const VERSION = 4;
export const STATE_COMM = 'skyward.state';
export const COMMAND_TARGET = 'skyward.command';
export const VIEW_TARGET = 'skyward.view';

/** Rows that are kept of what only ever grows, for each pool. */
export const KEPT: { [table: string]: number } = {
  decisions: 200,
  points: 450,
  output: 200
};

/** A pool. `spent` is what it had cost at `spent_at`; since then `per_hour`. `recovered`: how many tasks of a former kernel it was found with. `lease`: seconds that its nodes run on without the kernel, 0 where they do not. `budget_exhausted`: its budget is reached, and its nodes go once their tasks are over. */
export interface PoolRow {
  name: string;
  state: 'idle' | 'requesting' | 'provisioning' | 'ready' | 'stopping' | 'closed';
  provider: string;
  policy: string;
  min: number;
  max: number;
  desired: number;
  active: number;
  queued: number;
  running: number;
  done: number;
  failed: number;
  spent: number;
  spent_at: number;
  per_hour: number;
  budget: number | null;
  failure: string;
  recovered: number;
  accelerators: string;
  lease: number;
  budget_exhausted: boolean;
}

/** A node, by the number of its machine. `price` is USD an hour. `way_in`: how a terminal gets there, if one can. While it boots, `phase_at` is when its phase began, and `usual` how many seconds that takes, if it is known. `kept`: what it keeps for later tasks, each with its size. */
export interface NodeRow {
  pool: string;
  machine: number;
  rank: number;
  state: 'idle' | 'waiting' | 'active' | 'draining' | 'stopping';
  phase: string;
  group: string;
  kind: string;
  address: string;
  price: number;
  slots: number;
  busy: number;
  asked_at: number | null;
  phase_at: number | null;
  usual: number | null;
  way_in: '' | 'here' | 'ssh' | 'exec';
  kept: string[];
}

/** A node that did not come up, by its rank: the phase, why, and the last lines that it printed. It is tried again at `retry_at`, or is tried now if that is None, for the time number `attempt` of `attempts` (0: of any number); unless it was given up. */
export interface StartupFailureRow {
  pool: string;
  rank: number;
  group: string;
  phase: string;
  reason: string;
  lines: string[];
  at: number;
  attempt: number;
  attempts: number;
  retry_at: number | null;
  gave_up: boolean;
}

/** How much of a node is in use, from 0 to 1; None, or no row at all, where it is not known. `gpu_gb`: memory of its GPUs that is in use, in GB. */
export interface GaugeRow {
  pool: string;
  machine: number;
  cpu: number | null;
  memory: number | null;
  gpu: number | null;
  gpu_memory: number | null;
  gpu_gb: number | null;
}

/** A task. `cell` and `cell_id` say which cell of the notebook sent it, `code` how that begins, `former` whether that ran in a kernel before this one. `cost`: USD, once it is over; while it runs, it grows with time alone. */
export interface TaskRow {
  pool: string;
  number: number;
  name: string;
  state: 'queued' | 'running' | 'done' | 'failed' | 'cancelled';
  node: number | null;
  queued_at: number;
  started_at: number | null;
  ended_at: number | null;
  seconds: number | null;
  yielded: number;
  reason: string;
  cost: number;
  cell: number | null;
  cell_id: string;
  code: string;
  former: boolean;
}

/** A decision about the number of nodes, with what it was made from. */
export interface DecisionRow {
  pool: string;
  number: number;
  at: number;
  by: 'policy' | 'user' | 'reconciler' | 'budget';
  policy: string;
  before: number;
  after: number;
  reason: string;
  held_back: string;
  times: number;
  queued: number;
  inflight: number;
  capacity: number;
  active: number;
  booting: number;
  leaving: number;
  idle_for: number;
  spent: number;
  per_hour: number;
}

/** The pool at one time, for the chart. */
export interface PointRow {
  pool: string;
  number: number;
  at: number;
  queued: number;
  running: number;
  desired: number;
  current: number;
}

/** A piece of what a node printed; `task` is 0 for the node itself. */
export interface OutputRow {
  pool: string;
  number: number;
  node: number;
  task: number;
  stream: 'stdout' | 'stderr';
  text: string;
}

/** What the tasks of a cell have cost so far in a pool, USD. `tasks`: how many it has, but for those that wait. `former`: whether the cell ran in a kernel before this one. */
export interface CellRow {
  pool: string;
  cell: number;
  cell_id: string;
  code: string;
  former: boolean;
  tasks: number;
  cost: number;
}

/** A pool that a process has left behind, by its id. Its nodes end by themselves at `ends_at`, or after their work. `attachable`: it has nodes that can be taken over. */
export interface OrphanRow {
  id: string;
  name: string;
  host: string;
  pid: number;
  machines: number;
  per_hour: number;
  seen_at: number;
  ends_at: number;
  attachable: boolean;
}

/** An option of `%sky up`, for the form of a new pool. */
export interface FormField {
  flag: string;
  metavar: string;
  help: string;
  choices: string[];
  takes: string;
}

/** A kind of machine that fits, and what one costs an hour, in USD. */
export interface OfferView {
  place: string;
  per_hour: number;
}

/** Everything. `session` is another one in every kernel process. */
export interface Snapshot {
  session: string;
  seq: number;
  tables: { [key: string]: { [key: string]: { [key: string]: unknown } } };
  form: FormField[];
  version: number;
  kind: 'snapshot';
}

/** What is different since message `seq - 1`: rows that are new or other, and keys of rows that are gone. */
export interface Delta {
  session: string;
  seq: number;
  tables: { [key: string]: { [key: string]: { [key: string]: unknown } } };
  gone: { [key: string]: string[] };
  version: number;
  kind: 'delta';
}

/** To a command: it was heard, carried out, or refused, with a sentence for the user. */
export interface Answer {
  id: string;
  state: 'heard' | 'done' | 'refused';
  text: string;
  version: number;
  kind: 'answer';
}

/** To `AskPrice`: USD an hour for the fewest and the most nodes, and what fits, what is tried first coming first. */
export interface Price {
  id: string;
  min: number;
  max: number;
  least: number;
  most: number;
  offers: OfferView[];
  version: number;
  kind: 'price';
}

/** To `AskShell`: the folder that a terminal opens in, and the line that is then entered; either may be empty. */
export interface Shell {
  id: string;
  folder: string;
  line: string;
  version: number;
  kind: 'shell';
}

/** To `AskOutput`: the last that was written. */
export interface Printed {
  id: string;
  rows: OutputRow[];
  version: number;
  kind: 'printed';
}

/** To `AskStartLog`: all that is known of how a node started; it may go on unless that is `over`. */
export interface StartLog {
  id: string;
  text: string;
  over: boolean;
  version: number;
  kind: 'start-log';
}

/** Send a snapshot. */
export interface Refresh {
  id: string;
  kind: 'refresh';
}

/** Stop a task. `%sky cancel --task N --pool NAME`. */
export interface CancelTask {
  id: string;
  pool: string;
  task: number;
  kind: 'cancel-task';
}

/** Stop all tasks of a cell. `%sky cancel --cell N`. */
export interface CancelCell {
  id: string;
  cell: number;
  kind: 'cancel-cell';
}

/** Other bounds. `%sky scale NAME MIN:MAX`. */
export interface Scale {
  id: string;
  pool: string;
  min: number;
  max: number;
  kind: 'scale';
}

/** Let a node finish its tasks and go. `%sky drain NAME NODE`. */
export interface Drain {
  id: string;
  pool: string;
  node: number;
  kind: 'drain';
}

/** Give the machines of a pool back. `%sky down NAME`. */
export interface StopPool {
  id: string;
  pool: string;
  kind: 'stop-pool';
}

/** Give all machines back. `%sky down --all`. */
export interface StopAll {
  id: string;
  kind: 'stop-all';
}

/** Open a pool. `%sky up NAME OPTIONS`; `options` are flags to the texts behind them. */
export interface NewPool {
  id: string;
  name: string;
  options: { [key: string]: string };
  kind: 'new-pool';
}

/** Take over a pool that another process has left behind. `%sky attach NAME`. */
export interface Attach {
  id: string;
  pool: string;
  kind: 'attach';
}

/** Give back what another process has left behind; `pool` is its id. `%sky reap ID`. */
export interface Reap {
  id: string;
  pool: string;
  kind: 'reap';
}

/** Say what `NewPool` with these would cost; nothing is started. Answered with `Price`. */
export interface AskPrice {
  id: string;
  name: string;
  options: { [key: string]: string };
  kind: 'ask-price';
}

/** Say how a terminal gets to a node. Answered with `Shell`. */
export interface AskShell {
  id: string;
  pool: string;
  node: number;
  kind: 'ask-shell';
}

/** Send the last that a node has written, or a task; None for any. Answered with `Printed`. */
export interface AskOutput {
  id: string;
  pool: string;
  node: number | null;
  task: number | null;
  kind: 'ask-output';
}

/** Send what a node said while it started, the last few times: `%sky logs NAME NODE`. Answered with `StartLog`. */
export interface AskStartLog {
  id: string;
  pool: string;
  node: number;
  kind: 'ask-start-log';
}

/** The rows of each table. */
export interface Tables {
  pools: PoolRow;
  nodes: NodeRow;
  troubles: StartupFailureRow;
  gauges: GaugeRow;
  tasks: TaskRow;
  decisions: DecisionRow;
  points: PointRow;
  output: OutputRow;
  cells: CellRow;
  orphans: OrphanRow;
}

export type Message =
  | Snapshot
  | Delta
  | Answer
  | Price
  | Shell
  | Printed
  | StartLog;

export type Command =
  | Refresh
  | CancelTask
  | CancelCell
  | Scale
  | Drain
  | StopPool
  | StopAll
  | NewPool
  | Attach
  | Reap
  | AskPrice
  | AskShell
  | AskOutput
  | AskStartLog;
