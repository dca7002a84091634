// Made by scripts/panel_types.py from skyward_kernel and skyward/views: change those.

export const VERSION = 5;
export const STATE_COMM = 'skyward.state';
export const COMMAND_TARGET = 'skyward.command';
export const VIEW_TARGET = 'skyward.view';

/** Rows that are kept of what only ever grows, for each pool. */
export const KEPT = {
  decisions: 200,
  points: 450,
  output: 200
} as const;

export const LOGS = ['decisions', 'points', 'output'] as const;

/** Label of a status: an icon and a word, never colour alone. */
export type Label = {
  word: string;
  icon: string;
  tone: 'good' | 'busy' | 'bad' | 'quiet';
};

export const PHASE_WORDS: { [phase: string]: string } = {
  "volumes": "attaching volumes"
};

export const POOL_STATUSES: { [status in PoolRow['status']]: Label } = {
  new: { word: 'not open', icon: '○', tone: 'quiet' },
  starting: { word: 'starting', icon: '◔', tone: 'busy' },
  ready: { word: 'ready', icon: '●', tone: 'good' },
  failing: { word: 'failing', icon: '▲', tone: 'bad' },
  budget_reached: { word: 'budget reached', icon: '◒', tone: 'bad' },
  stopping: { word: 'stopping', icon: '◌', tone: 'busy' },
  closed: { word: 'closed', icon: '○', tone: 'quiet' }
};

export const NODE_STATUSES: { [status in NodeRow['status']]: Label } = {
  queued: { word: 'queued', icon: '◌', tone: 'quiet' },
  requested: { word: 'requested', icon: '◌', tone: 'quiet' },
  starting: { word: 'starting', icon: '◔', tone: 'busy' },
  idle: { word: 'idle', icon: '○', tone: 'quiet' },
  keeping: { word: 'keeps', icon: '◆', tone: 'quiet' },
  busy: { word: 'busy', icon: '●', tone: 'good' },
  draining: { word: 'draining', icon: '◒', tone: 'busy' },
  stopping: { word: 'stopping', icon: '◌', tone: 'quiet' },
  warm: { word: 'kept warm', icon: '◌', tone: 'quiet' }
};

export const TASK_STATUSES: { [status in TaskRow['state']]: Label } = {
  queued: { word: 'queued', icon: '◌', tone: 'quiet' },
  running: { word: 'running', icon: '▶', tone: 'good' },
  done: { word: 'done', icon: '✓', tone: 'quiet' },
  failed: { word: 'failed', icon: '✗', tone: 'bad' },
  cancelled: { word: 'cancelled', icon: '⊘', tone: 'quiet' }
};

export const VOLUME_STATUSES: { [status in VolumeRow['status']]: Label } = {
  failed: { word: 'failed', icon: '✗', tone: 'bad' },
  restarting: { word: 'restarting', icon: '▲', tone: 'bad' },
  attaching: { word: 'attaching', icon: '◔', tone: 'busy' },
  flushing: { word: 'unsaved', icon: '↑', tone: 'busy' },
  ready: { word: 'ready', icon: '●', tone: 'good' },
  detached: { word: 'detached', icon: '○', tone: 'quiet' }
};

/** A pool: its lifecycle `state`, and its `status` in views. `spent` is its cost at `spent_at`, USD; it has grown by `per_hour` since then. `recovered`: number of tasks of a previous kernel. `lease`: seconds that its nodes outlive the kernel, 0 if they do not. `budget_exhausted`: the budget is spent, and the nodes terminate once their tasks are done. */
export type PoolRow = {
  name: string;
  state: 'new' | 'requesting' | 'provisioning' | 'ready' | 'stopping' | 'closed';
  status: 'new' | 'starting' | 'ready' | 'failing' | 'budget_reached' | 'stopping' | 'closed';
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
  cancelled: number;
  spent: number;
  spent_at: number;
  per_hour: number;
  budget: number | null;
  failure: string;
  recovered: number;
  accelerators: string;
  lease: number;
  budget_exhausted: boolean;
};

/** A node, by the number of its machine: its lifecycle `state`, and its `status` in views. `price`: USD per hour. `terminal_access`: how a terminal reaches it, empty if it cannot. While it boots, `phase_at` is the start of its phase, and `usual` the usual duration of the phase in seconds, if known. `kept`: names and sizes of the values that it keeps for later tasks. `outdated`: it was launched from an earlier spec of its group. */
export type NodeRow = {
  pool: string;
  machine: number;
  rank: number;
  state: 'vacant' | 'waiting' | 'active' | 'draining' | 'stopping';
  status: 'queued' | 'requested' | 'starting' | 'idle' | 'keeping' | 'busy' | 'draining' | 'stopping' | 'warm';
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
  terminal_access: '' | 'here' | 'ssh' | 'exec';
  kept: string[];
  outdated: boolean;
};

/** A node that failed to start, by its rank: the phase, the reason, and the last lines that it printed. Unless `gave_up`, the start is retried at `retry_at`, or is being retried now if that is None: attempt number `attempt` of `attempts` (0: unlimited). */
export type StartupFailureRow = {
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
};

/** Utilization of a node, from 0 to 1; None, or no row at all, if unknown. `memory_bytes`, `gpu_bytes`: used memory of the node and of its GPUs, rounded. `memory_total`: bytes. */
export type GaugeRow = {
  pool: string;
  machine: number;
  cpu: number | null;
  memory: number | null;
  gpu: number | null;
  gpu_memory: number | null;
  gpu_bytes: number | null;
  memory_bytes: number | null;
  memory_total: number | null;
};

/** A volume on a node, by the number of its machine: its `status`, and in `detail` the reason of that. `tool`: the program that mounts it, empty for files on the node's disk. `nbytes`: bytes that were transferred to the node so far, of `total` bytes, 0 if unknown; `from_peers` of them came from other nodes. `unflushed`: number of the files that wait for their upload, and `unflushed_bytes` their size. */
export type VolumeRow = {
  pool: string;
  machine: number;
  rank: number;
  mount: string;
  source: string;
  mode: string;
  tool: string;
  read_only: boolean;
  status: 'attaching' | 'ready' | 'restarting' | 'flushing' | 'failed' | 'detached';
  detail: string;
  nbytes: number;
  from_peers: number;
  total: number;
  unflushed: number;
  unflushed_bytes: number;
};

/** A task. `title`: its function, or the first line of its cell. `cell` and `cell_id` identify the notebook cell that sent it, `code` is its first line, and `former` is true if the cell ran in a previous kernel. `cost`: USD, 0 until the task has ended. */
export type TaskRow = {
  pool: string;
  number: number;
  title: string;
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
};

/** A scaling decision, with its inputs. */
export type DecisionRow = {
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
};

/** A point of the chart: the pool at one time. */
export type PointRow = {
  pool: string;
  number: number;
  at: number;
  queued: number;
  running: number;
  desired: number;
  current: number;
};

/** A piece of the output of a node; `task` is 0 for the node itself. */
export type OutputRow = {
  pool: string;
  number: number;
  node: number;
  task: number;
  stream: 'stdout' | 'stderr';
  text: string;
};

/** Cost of the tasks of a cell in a pool so far, USD. `tasks`: number of its tasks, without the queued ones. `former`: true if the cell ran in a previous kernel. */
export type CellRow = {
  pool: string;
  cell: number;
  cell_id: string;
  code: string;
  former: boolean;
  tasks: number;
  cost: number;
};

/** An orphaned pool, by its id. Its nodes terminate by themselves at `ends_at`, or once their tasks are done. `attachable`: it has nodes that can be attached to. `warm`: it was closed, and keeps machines until then for later pools. */
export type OrphanRow = {
  id: string;
  name: string;
  host: string;
  pid: number;
  machines: number;
  per_hour: number;
  seen_at: number;
  ends_at: number;
  attachable: boolean;
  warm: boolean;
};

/** A pool that failed to open, by its name: the reason, which may have lines of a log, and the time. */
export type FailedPoolRow = {
  name: string;
  reason: string;
  at: number;
};

/** An option of `%sky up`, for the form of a new pool. */
export type FormField = {
  flag: string;
  metavar: string;
  help: string;
  choices: string[];
  takes: string;
};

/** A matching offer: its hardware, its price in USD per hour, and the usual seconds until a node is active. */
export type OfferView = {
  place: string;
  per_hour: number;
  hardware: string;
  start: number | null;
};

/** All rows. `session` is unique to the kernel process. */
export type PanelSnapshot = {
  session: string;
  seq: number;
  tables: Tables;
  form: FormField[];
  version: number;
  kind: 'snapshot';
};

/** Changes since message `seq - 1`: new and changed rows, and keys of removed rows. */
export type Delta = {
  session: string;
  seq: number;
  tables: Tables;
  gone: Keys;
  version: number;
  kind: 'delta';
};

/** Reply to a request: received ("heard"), executed ("done") or failed ("refused"), with a sentence for the user. */
export type CommandReply = {
  id: string;
  state: 'heard' | 'done' | 'refused';
  text: string;
  version: number;
  kind: 'answer';
};

/** Reply to `AskCheck`: sentences by the flag of the wrong option, `name`, or empty if the options conflict. */
export type Checked = {
  id: string;
  wrong: { [key: string]: string };
  version: number;
  kind: 'checked';
};

/** Reply to `AskPrice`: USD per hour for `min` and `max` nodes, and the matching offers in order of preference. `notes`: a sentence about each provider that did not list its offers. */
export type Price = {
  id: string;
  min: number;
  max: number;
  least: number;
  most: number;
  offers: OfferView[];
  notes: string[];
  version: number;
  kind: 'price';
};

/** Reply to `AskShell`: the folder of the terminal, and the command line to run in it; either may be empty. */
export type ShellReply = {
  id: string;
  folder: string;
  line: string;
  version: number;
  kind: 'shell';
};

/** Reply to `AskOutput`: the latest output. */
export type Printed = {
  id: string;
  rows: OutputRow[];
  version: number;
  kind: 'printed';
};

/** Reply to `AskStartLog`: the startup log of a node; `over` if the node is not starting any more. */
export type StartLog = {
  id: string;
  text: string;
  over: boolean;
  version: number;
  kind: 'start-log';
};

/** Send a snapshot. */
export type Refresh = {
  id: string;
  kind: 'refresh';
};

/** Stop showing a pool that failed to open. */
export type Dismiss = {
  id: string;
  pool: string;
  kind: 'dismiss';
};

/** Check the name and the options of a new pool; nothing is started. Answered with `Checked`. */
export type AskCheck = {
  id: string;
  name: string;
  options: { [key: string]: string };
  kind: 'ask-check';
};

/** Estimate the cost of a new pool with these options; nothing is started. Answered with `Price`. */
export type AskPrice = {
  id: string;
  name: string;
  options: { [key: string]: string };
  kind: 'ask-price';
};

/** Request the command that opens a terminal on a node. Answered with `ShellReply`. */
export type AskShell = {
  id: string;
  pool: string;
  node: number;
  kind: 'ask-shell';
};

/** Request the latest output of a node or a task; None for any. Answered with `Printed`. */
export type AskOutput = {
  id: string;
  pool: string;
  node: number | null;
  task: number | null;
  kind: 'ask-output';
};

/** Request the logs of the last starts of a node: `%sky logs NAME NODE`. Answered with `StartLog`. */
export type AskStartLog = {
  id: string;
  pool: string;
  node: number;
  kind: 'ask-start-log';
};

/** The type of the rows of each table. */
export type RowTypes = {
  pools: PoolRow;
  nodes: NodeRow;
  startup_failures: StartupFailureRow;
  gauges: GaugeRow;
  volumes: VolumeRow;
  tasks: TaskRow;
  decisions: DecisionRow;
  points: PointRow;
  output: OutputRow;
  cells: CellRow;
  orphans: OrphanRow;
  failed_pools: FailedPoolRow;
};

export const TABLES = [
  'pools',
  'nodes',
  'startup_failures',
  'gauges',
  'volumes',
  'tasks',
  'decisions',
  'points',
  'output',
  'cells',
  'orphans',
  'failed_pools'
] as const;

export type TableName = keyof RowTypes;

/** Rows by table and key; a message may leave out tables. */
export type Tables = { [T in TableName]?: { [key: string]: RowTypes[T] } };

/** Keys of rows, by table. */
export type Keys = { [T in TableName]?: string[] };

export type Message =
  | PanelSnapshot
  | Delta
  | CommandReply
  | Checked
  | Price
  | ShellReply
  | Printed
  | StartLog;

export const MESSAGE_KINDS = ['snapshot', 'delta', 'answer', 'checked', 'price', 'shell', 'printed', 'start-log'] as const;

/** The arguments of each command of `%sky` that the panel, the widget or the palette offers. */
export interface CommandArguments {
  up: { pool: string; options: { [flag: string]: string } };
  down: { pool: string } | { every: true };
  status: { pool: string };
  offers: Record<string, never>;
  decisions: { pool: string };
  scale: { pool: string; nodes: string };
  attach: { pool: string };
  reap: { pools: string[] };
  kept: Record<string, never>;
  drain: { pool: string; node: number };
  logs: { pool: string; node: number };
  tasks: { pool: string };
  cancel: { pool: string; task: number } | { cell: number };
  costs: Record<string, never>;
  doctor: Record<string, never>;
  config: { pool: string };
  help: Record<string, never>;
}

/** A command with its arguments. */
export type CommandLine = {
  [C in keyof CommandArguments]: { command: C; arguments: CommandArguments[C] };
}[keyof CommandArguments];

/** A request to run a command, without its id. */
export type RunRequest =
  | { kind: 'run'; command: 'up'; arguments: { pool: string; options: { [flag: string]: string } } }
  | { kind: 'run'; command: 'down'; arguments: { pool: string } | { every: true } }
  | { kind: 'run'; command: 'scale'; arguments: { pool: string; nodes: string } }
  | { kind: 'run'; command: 'attach'; arguments: { pool: string } }
  | { kind: 'run'; command: 'reap'; arguments: { pools: string[] } }
  | { kind: 'run'; command: 'drain'; arguments: { pool: string; node: number } }
  | { kind: 'run'; command: 'cancel'; arguments: { pool: string; task: number } | { cell: number } };

/** Run a command of `%sky` with these arguments: see `skyward_kernel.commands.registry`. */
export type RunCommand = RunRequest & { id: string };

/** The line of a command: its positional arguments, in order, and the flags of the others. */
export const COMMAND_WORDS: {
  [C in keyof CommandArguments]: { words: string[]; flags: { [name: string]: string } };
} = {
  "up": {
    "words": [
      "pool"
    ],
    "flags": {
      "quiet": "--quiet"
    }
  },
  "down": {
    "words": [
      "pool"
    ],
    "flags": {
      "every": "--all"
    }
  },
  "status": {
    "words": [
      "pool"
    ],
    "flags": {}
  },
  "offers": {
    "words": [],
    "flags": {
      "accelerator": "--gpu",
      "vcpus": "--vcpus",
      "memory_gb": "--memory",
      "region": "--region",
      "max_hourly_cost": "--max-cost",
      "provider": "--provider",
      "spot": "--spot",
      "limit": "--limit"
    }
  },
  "decisions": {
    "words": [
      "pool"
    ],
    "flags": {}
  },
  "scale": {
    "words": [
      "pool",
      "nodes"
    ],
    "flags": {
      "group": "--group",
      "wait": "--wait",
      "quiet": "--quiet"
    }
  },
  "attach": {
    "words": [
      "pool"
    ],
    "flags": {
      "budget": "--budget"
    }
  },
  "reap": {
    "words": [
      "pools"
    ],
    "flags": {
      "warm": "--warm"
    }
  },
  "kept": {
    "words": [
      "name"
    ],
    "flags": {
      "pool": "--pool"
    }
  },
  "drain": {
    "words": [
      "pool",
      "node"
    ],
    "flags": {}
  },
  "logs": {
    "words": [
      "pool",
      "node"
    ],
    "flags": {}
  },
  "tasks": {
    "words": [
      "pool"
    ],
    "flags": {}
  },
  "cancel": {
    "words": [
      "number"
    ],
    "flags": {
      "every": "--all",
      "task": "--task",
      "cell": "--cell",
      "pool": "--pool"
    }
  },
  "costs": {
    "words": [],
    "flags": {
      "days": "--days"
    }
  },
  "doctor": {
    "words": [
      "providers"
    ],
    "flags": {
      "policy": "--policy"
    }
  },
  "config": {
    "words": [
      "pool"
    ],
    "flags": {}
  },
  "help": {
    "words": [
      "about"
    ],
    "flags": {}
  }
};

/** The arguments that the user chooses in the dialogs of the palette; those of other choices are empty. */
export interface Chosen {
  pool: string;
  pools: string[];
  nodes: string;
  node: number;
  task: number;
  cell: number;
}

/** An entry of the command palette. It runs a command, or inserts its line into the notebook. */
export interface PaletteEntry {
  name: string;
  label: string;
  question: string;
  choice: '' | 'pool' | 'node' | 'drainable node' | 'task' | 'cell' | 'orphan';
  arguments: string[];
  run?: (chosen: Chosen) => RunRequest;
  line?: (chosen: Chosen) => CommandLine;
}

export const PALETTE: PaletteEntry[] = [
  {
    name: 'new-pool',
    label: 'New Pool…',
    question: '',
    choice: '',
    arguments: ['pool', 'options'],
    run: chosen => ({ kind: 'run', command: 'up', arguments: { pool: chosen.pool, options: {} } })
  },
  {
    name: 'stop-pool',
    label: 'Stop a Pool…',
    question: 'Stop which pool?',
    choice: 'pool',
    arguments: ['pool'],
    run: chosen => ({ kind: 'run', command: 'down', arguments: { pool: chosen.pool } })
  },
  {
    name: 'stop-all',
    label: 'Stop All Pools of This Notebook',
    question: '',
    choice: '',
    arguments: ['every'],
    run: () => ({ kind: 'run', command: 'down', arguments: { every: true } })
  },
  {
    name: 'insert-status',
    label: 'Insert %sky status…',
    question: 'Show the status of which pool?',
    choice: 'pool',
    arguments: ['pool'],
    line: chosen => ({ command: 'status', arguments: { pool: chosen.pool } })
  },
  {
    name: 'insert-offers',
    label: 'Insert %sky offers',
    question: '',
    choice: '',
    arguments: [],
    line: () => ({ command: 'offers', arguments: {  } })
  },
  {
    name: 'insert-decisions',
    label: 'Insert %sky decisions…',
    question: 'Show the scaling decisions of which pool?',
    choice: 'pool',
    arguments: ['pool'],
    line: chosen => ({ command: 'decisions', arguments: { pool: chosen.pool } })
  },
  {
    name: 'scale-pool',
    label: 'Scale a Pool…',
    question: 'Scale which pool?',
    choice: 'pool',
    arguments: ['pool', 'nodes'],
    run: chosen => ({ kind: 'run', command: 'scale', arguments: { pool: chosen.pool, nodes: chosen.nodes } })
  },
  {
    name: 'attach',
    label: 'Reattach a Pool…',
    question: 'Reattach which pool?',
    choice: 'orphan',
    arguments: ['pool'],
    run: chosen => ({ kind: 'run', command: 'attach', arguments: { pool: chosen.pool } })
  },
  {
    name: 'reap',
    label: 'Stop an Orphaned Pool…',
    question: 'Stop which pool?',
    choice: 'orphan',
    arguments: ['pools'],
    run: chosen => ({ kind: 'run', command: 'reap', arguments: { pools: chosen.pools } })
  },
  {
    name: 'insert-kept',
    label: 'Insert %sky kept',
    question: '',
    choice: '',
    arguments: [],
    line: () => ({ command: 'kept', arguments: {  } })
  },
  {
    name: 'drain-node',
    label: 'Drain a Node…',
    question: 'Drain which node?',
    choice: 'drainable node',
    arguments: ['pool', 'node'],
    run: chosen => ({ kind: 'run', command: 'drain', arguments: { pool: chosen.pool, node: chosen.node } })
  },
  {
    name: 'show-log',
    label: 'Show the Startup Log of a Node…',
    question: 'Show the startup log of which node?',
    choice: 'node',
    arguments: ['pool', 'node'],
    line: chosen => ({ command: 'logs', arguments: { pool: chosen.pool, node: chosen.node } })
  },
  {
    name: 'insert-tasks',
    label: 'Insert %sky tasks…',
    question: 'Show the tasks of which pool?',
    choice: 'pool',
    arguments: ['pool'],
    line: chosen => ({ command: 'tasks', arguments: { pool: chosen.pool } })
  },
  {
    name: 'cancel-task',
    label: 'Stop a Task…',
    question: 'Stop which task?',
    choice: 'task',
    arguments: ['pool', 'task'],
    run: chosen => ({ kind: 'run', command: 'cancel', arguments: { pool: chosen.pool, task: chosen.task } })
  },
  {
    name: 'cancel-cell',
    label: 'Stop All Tasks of a Cell…',
    question: 'Stop the tasks of which cell?',
    choice: 'cell',
    arguments: ['cell'],
    run: chosen => ({ kind: 'run', command: 'cancel', arguments: { cell: chosen.cell } })
  },
  {
    name: 'insert-costs',
    label: 'Insert %sky costs',
    question: '',
    choice: '',
    arguments: [],
    line: () => ({ command: 'costs', arguments: {  } })
  },
  {
    name: 'insert-doctor',
    label: 'Insert %sky doctor',
    question: '',
    choice: '',
    arguments: [],
    line: () => ({ command: 'doctor', arguments: {  } })
  },
  {
    name: 'insert-config',
    label: 'Insert %sky config…',
    question: 'Show the settings of which pool?',
    choice: 'pool',
    arguments: ['pool'],
    line: chosen => ({ command: 'config', arguments: { pool: chosen.pool } })
  },
  {
    name: 'insert-help',
    label: 'Insert %sky help',
    question: '',
    choice: '',
    arguments: [],
    line: () => ({ command: 'help', arguments: {  } })
  }
];

export type Request =
  | Refresh
  | Dismiss
  | RunCommand
  | AskCheck
  | AskPrice
  | AskShell
  | AskOutput
  | AskStartLog;
