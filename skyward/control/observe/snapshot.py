"""Snapshots of a pool, its nodes and its tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from skyward.control.lifecycle import NodeState, PoolState
from skyward.control.observe.costs import CellCost
from skyward.control.observe.origin import Origin
from skyward.events.decisions import DecisionEvent
from skyward.events.metrics import NodeMetrics
from skyward.events.volumes import VolumeState
from skyward.providers.protocol import Access, ExecAccess, SSHAccess

__all__ = ["KeptView", "NodeView", "OutputView", "PoolReport", "PoolSnapshot", "StartupFailureView", "TaskView"]


@dataclass(frozen=True, slots=True)
class KeptView:
    """A value that a node keeps for later tasks.

    Attributes:
        key: unique key.
        name: name under which it is kept.
        kind: name of its type.
        nbytes: estimated size.
        node: rank of the node that keeps it.
        until: Unix time from which scaling down may take its node, unless it is used before.
        in_use: True while a task uses it.

    Example:
        >>> for value in pool.kept():
        ...     print(value.name, value.node, value.nbytes)
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
        rank: its number in the pool.
        address: its address; empty before it is known.
        state: lifecycle state; "stopping" from when it left the pool until its machine is terminated.
        phase: current phase of its start; "warm" for a machine that is kept for later nodes.
        slots, busy: number of slots, and of those in use.
        received: bytes of blobs that it received.
        sent: bytes of those that the client sent; the rest came from other nodes.
        group: name of its group.
        hourly_price: USD an hour for its machine.
        age: seconds since its machine was requested.
        metrics: resource usage; None before its first report.
        machine: number of its machine; another one may take the rank later.
        kind: provider, type, zone and market of its machine.
        asked_at: when its machine was requested, in Unix time; None if it was not.
        access: access to its machine; None before that is known.
        phase_at: start of its phase, in Unix time; None once it is active.
        usual: seconds that this phase usually takes; None if unknown.
        kept: values that it keeps for later tasks, oldest first.
        outdated: True if it was launched from an earlier spec of its group; see `Compute.update`.
        volumes: its volumes.

    Example:
        >>> [(node.rank, node.state) for node in pool.snapshot().nodes]
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
    outdated: bool = False
    volumes: tuple[VolumeState, ...] = ()

    @property
    def outlives(self) -> bool:
        """True if it keeps running for a while after the client process ends."""
        return isinstance(self.access, SSHAccess | ExecAccess)


@dataclass(frozen=True, slots=True)
class StartupFailureView:
    """A node that failed to start, and is retried or was given up.

    Attributes:
        rank: its number in the pool.
        group: name of its group.
        phase: phase in which it failed.
        reason: the reason, in one line.
        lines: the last lines of its output.
        at: time of the failure, in Unix time.
        attempt: number of the next attempt, or of the current one.
        attempts: attempts before it is given up; 0 for no limit.
        retry_at: time of the next attempt, in Unix time; None during an attempt, and if it was given up.
        gave_up: True if it is not retried until the pool is resized.

    Example:
        >>> for failure in pool.snapshot().startup_failures:
        ...     print(failure.rank, failure.phase, failure.reason)
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
    """One pool: its nodes by rank, and counts of its tasks.

    Attributes:
        name: its name.
        state: its lifecycle state.
        provider: names of its providers.
        nodes: its nodes, by rank.
        queued, running: numbers of tasks that wait, and that run.
        min, max, desired: numbers of nodes, over all groups.
        desired_in: desired number of nodes, by group.
        policy: name of the scaling policy.
        spent, per_hour, budget: USD; `budget` is None for no limit.
        at: Unix time of this snapshot.
        failure: why nodes cannot be launched, or paid; empty while they can.
        startup_failures: nodes that failed to start, the first few by rank.
        accelerators: accelerators of its machines, such as "A100"; empty for none.
        lease: seconds that nodes keep running without this process; 0 if they do not.
        budget_exhausted: True if its budget is reached, and its nodes drain.
        done, failed, cancelled: number of tasks that returned a value, failed, and were cancelled.

    Example:
        >>> snapshot = pool.snapshot()
        >>> print(f"{len(snapshot.nodes)} nodes, {snapshot.queued} tasks are waiting, ${snapshot.spent:.2f}")
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
    startup_failures: tuple[StartupFailureView, ...] = ()
    accelerators: str = ""
    lease: float = 0.0
    budget_exhausted: bool = False
    cancelled: int = 0
    desired_in: Mapping[str, int] = field(default_factory=dict)

    @property
    def active(self) -> int:
        """Number of its active nodes."""
        return sum(node.state == "active" for node in self.nodes)


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task.

    Attributes:
        number: its number in its pool.
        name: name of its function.
        state: its state.
        node: rank of the node that has it, or had it last.
        origin: the cell that created it.
        queued_at, started_at, ended_at: Unix time; `started_at` is when it was sent to its node.
        seconds: how long it ran, as reported by its node.
        yielded: elements received so far, of a generator function.
        reason: why it failed.
        cost: USD so far: a share of the price of its machine while it ran, see `skyward.control.observe.costs`.
        retries: times that it was requeued, because its node was lost or because it raised.

    Example:
        >>> [task.number for task in pool.report().tasks if task.state == "failed"]
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
    """Output of a node on a standard stream.

    Attributes:
        number: number of the piece in its pool, from 1 on.
        node: rank of the node that wrote it.
        task: number of the task; 0 for the node itself.
        stream: the stream.
        text: the output.

    Example:
        >>> [piece.text for piece in pool.report().output if piece.node == 0]
    """

    number: int
    node: int
    task: int
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, slots=True)
class PoolReport:
    """Everything that a view of a pool shows, at one moment.

    Attributes:
        snapshot: the nodes and the counts of the tasks.
        decisions, output: the requested ones, oldest first.
        tasks: the pending and running ones, and the latest that have ended.
        cells: costs of the cells that created them, in order.

    Example:
        >>> report = pool.report(tasks=10)
        >>> report.snapshot.running, [task.name for task in report.tasks]
    """

    snapshot: PoolSnapshot
    decisions: tuple[DecisionEvent, ...] = ()
    tasks: tuple[TaskView, ...] = ()
    output: tuple[OutputView, ...] = ()
    cells: tuple[CellCost, ...] = ()
