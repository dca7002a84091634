"""What a pool looks like at one moment."""

from dataclasses import dataclass, field
from typing import Literal

from skyward.control.lifecycle import NodeState, PoolState
from skyward.control.observe.costs import CellCost
from skyward.control.observe.origin import Origin
from skyward.events.decisions import DecisionEvent
from skyward.events.metrics import NodeMetrics
from skyward.providers.protocol import Access, ExecAccess, SSHAccess

__all__ = ["KeptView", "NodeView", "OutputView", "PoolReport", "PoolSnapshot", "StartupFailureView", "TaskView"]


@dataclass(frozen=True, slots=True)
class KeptView:
    """A value that a node keeps for later tasks.

    Attributes:
        key: its own.
        kind: its type.
        nbytes: its size, as far as that can be told.
        until: Unix time from which scaling down may take its node, unless it is used before.
        in_use: whether a task uses it now.
    """

    key: str
    name: str
    kind: str
    nbytes: int
    node: int
    until: float
    in_use: bool


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    Attributes:
        state: where it is; "stopping" from when it takes no part any more until its machine is gone.
        phase: what it is doing while it waits.
        slots, busy: how many tasks it runs at once, and how many it has.
        received: bytes of blobs that it got.
        sent: those of them that came from here; the others came from other nodes.
        group: of which it is.
        hourly_price: of its machine, USD.
        age: seconds since its machine was asked for.
        metrics: what it uses of its machine; None before it has said so.
        machine: its number; another one may take the rank later.
        kind: what the machine is: provider, type, zone and market.
        asked_at: when it was asked for, in Unix time; None for not yet.
        access: how its machine is entered; None before that is known.
        phase_at: when it came into its phase, in Unix time; None once it is up.
        usual: seconds that this phase usually takes; None where none has been seen.
        kept: what it keeps for later tasks, the oldest first.
    """

    rank: int
    state: NodeState | Literal["stopping"]
    phase: str
    address: str
    slots: int
    busy: int
    received: int
    group: str = ""
    hourly_price: float = 0.0
    age: float = 0.0
    sent: int = 0
    metrics: NodeMetrics | None = None
    machine: int = 0
    kind: str = ""
    asked_at: float | None = None
    access: Access | None = field(default=None, repr=False)
    phase_at: float | None = None
    usual: float | None = None
    kept: tuple[KeptView, ...] = ()

    @property
    def outlives(self) -> bool:
        """Whether it runs on for a while when the process that has the pool ends."""
        return isinstance(self.access, SSHAccess | ExecAccess)


@dataclass(frozen=True, slots=True)
class StartupFailureView:
    """A node that did not come up, and is tried again, or was given up.

    Attributes:
        phase: in which it failed.
        reason: in one line.
        lines: the last that it printed.
        at: when, in Unix time.
        attempt: the number of the next try, or of the one that is under way.
        attempts: after how many it is given up; 0 for never.
        retry_at: when it is tried again, in Unix time; None while it is tried, and where it was given up.
        gave_up: whether it is not tried any more, until the pool is resized.
    """

    rank: int
    group: str
    phase: str
    reason: str
    lines: tuple[str, ...]
    at: float
    attempt: int
    attempts: int
    retry_at: float | None
    gave_up: bool


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """One pool: its nodes by rank, and its tasks by number.

    Attributes:
        min, max, desired: nodes, over all groups.
        policy: what decides how many there are.
        spent, per_hour, budget: USD; `budget` is None for no limit.
        at: Unix time of this snapshot.
        failure: why nodes cannot be had, or paid; empty while they can.
        broke: whether its budget is reached, and its nodes go once their tasks are over.
        troubles: nodes that did not come up, the first few by rank.
        accelerators: of its machines, such as "A100"; empty for none.
        lease: seconds that nodes run on without this process; 0 where they do not.
    """

    name: str
    state: PoolState
    provider: str
    nodes: tuple[NodeView, ...]
    queued: int
    running: int
    done: int
    failed: int
    min: int
    max: int
    desired: int
    policy: str = ""
    spent: float = 0.0
    per_hour: float = 0.0
    budget: float | None = None
    at: float = 0.0
    failure: str = ""
    troubles: tuple[StartupFailureView, ...] = ()
    accelerators: str = ""
    lease: float = 0.0
    budget_exhausted: bool = False


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task.

    Attributes:
        number: in its pool.
        name: of its function.
        node: rank of the node that has it, or had it last.
        origin: the cell that sent it.
        queued_at, started_at, ended_at: Unix time; started when it was sent to its node.
        seconds: how long it ran there, as its node says.
        yielded: elements that have arrived, of a generator function.
        reason: why it failed.
        cost: USD so far: a share of the price of its machine while it ran, see `skyward.control.observe.costs`.
        retries: how often it was queued again, because its node was lost or because it raised.
    """

    number: int
    name: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    node: int | None
    origin: Origin | None
    queued_at: float
    started_at: float | None = None
    ended_at: float | None = None
    seconds: float | None = None
    yielded: int = 0
    reason: str = ""
    cost: float = 0.0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class OutputView:
    """What a node wrote to a standard stream. `number` counts the pieces of a pool; `task` is 0 for the node itself."""

    number: int
    node: int
    task: int
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, slots=True)
class PoolReport:
    """Everything about a pool that a view of it shows, of one moment.

    Attributes:
        decisions, output: those that were asked for, oldest first.
        tasks: those there are, and the latest that are over.
        cells: what those that sent them have cost, in the order in which they did.
    """

    snapshot: PoolSnapshot
    decisions: tuple[DecisionEvent, ...] = ()
    tasks: tuple[TaskView, ...] = ()
    output: tuple[OutputView, ...] = ()
    cells: tuple[CellCost, ...] = ()
