"""What the panel and the kernel say to each other: the one schema, from which `labextension/src/protocol.ts` is made.

The kernel speaks on a state channel that it alone writes to: `Snapshot`, then `Delta` with consecutive numbers, and an
`Answer` to each command. The panel speaks on a command comm that it alone writes to. A panel that finds a number
missing sends `Refresh`. Times are Unix time, and what grows with time alone (an age, money) is left to the panel.

A message with another `version` is not for this panel; the field grows when one side could misread the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "COMMANDS",
    "COMMAND_TARGET",
    "KEPT",
    "LOGS",
    "MESSAGES",
    "ROWS",
    "STATE_COMM",
    "VERSION",
    "Answer",
    "CancelCell",
    "CancelTask",
    "Command",
    "DecisionRow",
    "Delta",
    "Drain",
    "FormField",
    "GaugeRow",
    "NewPool",
    "NodeRow",
    "OutputRow",
    "PointRow",
    "PoolRow",
    "Refresh",
    "Row",
    "Scale",
    "Snapshot",
    "StopAll",
    "StopPool",
    "TaskRow",
]

VERSION = 1
STATE_COMM = "skyward.state"
"""Id of the comm that the kernel speaks on. It is never opened: the panel listens for its messages."""

COMMAND_TARGET = "skyward.command"
"""Target of the comm that the panel speaks on. The kernel never answers on it: see reference/jupyter.md."""

KEPT: Mapping[str, int] = {"decisions": 200, "points": 450, "output": 200}
"""Rows that both sides keep of what only ever grows, for each pool."""

LOGS = tuple(KEPT)

# Rows. The key of a row is that of its pool, a slash, and its own number; a pool takes its rows along when it goes.


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A pool. `spent` is what it had cost at `spent_at`; since then `per_hour`."""

    name: str
    state: Literal["idle", "requesting", "provisioning", "ready", "stopping", "closed"]
    provider: str
    policy: str
    min: int
    max: int
    desired: int
    active: int
    queued: int
    running: int
    done: int
    failed: int
    spent: float
    spent_at: float
    per_hour: float
    budget: float | None
    failure: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, by the number of its machine. `price` is USD an hour."""

    pool: str
    machine: int
    rank: int
    state: Literal["idle", "waiting", "active", "draining", "stopping"]
    phase: str
    group: str
    kind: str
    address: str
    price: float
    slots: int
    busy: int
    asked_at: float | None


@dataclass(frozen=True, slots=True)
class GaugeRow:
    """How much of a node is in use, from 0 to 1; None, or no row at all, where it is not known."""

    pool: str
    machine: int
    cpu: float | None = None
    memory: float | None = None
    gpu: float | None = None
    gpu_memory: float | None = None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task. `cell` and `cell_id` say which cell of the notebook sent it, `code` how that begins."""

    pool: str
    number: int
    name: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    node: int | None
    cell: int | None
    cell_id: str
    code: str
    queued_at: float
    started_at: float | None
    ended_at: float | None
    seconds: float | None
    yielded: int
    reason: str


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision about the number of nodes, with what it was made from."""

    pool: str
    number: int
    at: float
    by: Literal["policy", "user", "reconciler", "budget"]
    policy: str
    before: int
    after: int
    reason: str
    held_back: str
    times: int
    queued: int
    inflight: int
    capacity: int
    active: int
    booting: int
    leaving: int
    idle_for: float
    spent: float
    per_hour: float


@dataclass(frozen=True, slots=True)
class PointRow:
    """The pool at one time, for the chart."""

    pool: str
    number: int
    at: float
    queued: int
    running: int
    desired: int
    current: int


@dataclass(frozen=True, slots=True)
class OutputRow:
    """A piece of what a node printed; `task` is 0 for the node itself."""

    pool: str
    number: int
    node: int
    task: int
    stream: Literal["stdout", "stderr"]
    text: str


type Row = PoolRow | NodeRow | GaugeRow | TaskRow | DecisionRow | PointRow | OutputRow

ROWS: Mapping[str, type] = {
    "pools": PoolRow,
    "nodes": NodeRow,
    "gauges": GaugeRow,
    "tasks": TaskRow,
    "decisions": DecisionRow,
    "points": PointRow,
    "output": OutputRow,
}
"""The tables of the panel's state."""

# From the kernel.


@dataclass(frozen=True, slots=True)
class FormField:
    """An option of `%sky up`, for the form of a new pool."""

    flag: str
    metavar: str
    help: str
    choices: tuple[str, ...] = ()
    takes: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything. `session` is another one in every kernel process."""

    session: str
    seq: int
    tables: Mapping[str, Mapping[str, Mapping[str, object]]]
    form: tuple[FormField, ...] = ()
    version: int = VERSION
    kind: Literal["snapshot"] = "snapshot"


@dataclass(frozen=True, slots=True)
class Delta:
    """What is different since message `seq - 1`: rows that are new or other, and keys of rows that are gone."""

    session: str
    seq: int
    tables: Mapping[str, Mapping[str, Mapping[str, object]]]
    gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version: int = VERSION
    kind: Literal["delta"] = "delta"


@dataclass(frozen=True, slots=True)
class Answer:
    """To a command: it was heard, carried out, or refused, with a sentence for the user."""

    id: str
    state: Literal["heard", "done", "refused"]
    text: str = ""
    version: int = VERSION
    kind: Literal["answer"] = "answer"


MESSAGES = (Snapshot, Delta, Answer)

# To the kernel. `id` is the panel's own, for the answer.


@dataclass(frozen=True, slots=True)
class Refresh:
    """Send a snapshot."""

    id: str
    kind: Literal["refresh"] = "refresh"


@dataclass(frozen=True, slots=True)
class CancelTask:
    """Stop a task. `%sky cancel --task N --pool NAME`."""

    id: str
    pool: str
    task: int
    kind: Literal["cancel-task"] = "cancel-task"


@dataclass(frozen=True, slots=True)
class CancelCell:
    """Stop all tasks of a cell. `%sky cancel --cell N`."""

    id: str
    cell: int
    kind: Literal["cancel-cell"] = "cancel-cell"


@dataclass(frozen=True, slots=True)
class Scale:
    """Other bounds. `%sky scale NAME MIN:MAX`."""

    id: str
    pool: str
    min: int
    max: int
    kind: Literal["scale"] = "scale"


@dataclass(frozen=True, slots=True)
class Drain:
    """Let a node finish its tasks and go. `%sky drain NAME NODE`."""

    id: str
    pool: str
    node: int
    kind: Literal["drain"] = "drain"


@dataclass(frozen=True, slots=True)
class StopPool:
    """Give the machines of a pool back. `%sky down NAME`."""

    id: str
    pool: str
    kind: Literal["stop-pool"] = "stop-pool"


@dataclass(frozen=True, slots=True)
class StopAll:
    """Give all machines back. `%sky down --all`."""

    id: str
    kind: Literal["stop-all"] = "stop-all"


@dataclass(frozen=True, slots=True)
class NewPool:
    """Open a pool. `%sky up NAME OPTIONS`; `options` are flags to the texts behind them."""

    id: str
    name: str
    options: Mapping[str, str]
    kind: Literal["new-pool"] = "new-pool"


type Command = Refresh | CancelTask | CancelCell | Scale | Drain | StopPool | StopAll | NewPool

COMMANDS = (Refresh, CancelTask, CancelCell, Scale, Drain, StopPool, StopAll, NewPool)
