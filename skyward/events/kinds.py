"""Kinds of events: of a pool, its nodes, its tasks, and its costs.

Every event is a frozen value. Times are Unix time, durations are seconds, money is USD.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skyward.events.decisions import DecisionEvent

__all__ = [
    "BaseEvent",
    "BudgetReached",
    "CostChanged",
    "Event",
    "EventsDropped",
    "NodeAllocated",
    "NodeDrainCancelled",
    "NodeDraining",
    "NodeEvent",
    "NodeFailed",
    "NodeGivenUp",
    "NodeLost",
    "NodePhaseCompleted",
    "NodePhaseStarted",
    "NodeReady",
    "NodeReclaimed",
    "NodeRemoved",
    "NodeRequested",
    "NodeTerminated",
    "NodeValuesLost",
    "PoolClosed",
    "PoolFailed",
    "PoolNote",
    "PoolProvisioning",
    "PoolReady",
    "PoolRequesting",
    "PoolStopping",
    "ScalingDecided",
    "TaskAssigned",
    "TaskCancelled",
    "TaskCompleted",
    "TaskEnded",
    "TaskEvent",
    "TaskFailed",
    "TaskQueued",
    "TaskRecovered",
    "TaskRetried",
    "TaskTimedOut",
]


@dataclass(frozen=True, slots=True)
class BaseEvent:
    """Base of every event.

    Attributes:
        pool: name of the pool.
        number: position among the events of the pool, from 1 on; later events have higher numbers.
        time: Unix time of the event.
    """

    pool: str
    number: int
    time: float


# Pool.


@dataclass(frozen=True, slots=True)
class PoolRequesting(BaseEvent):
    """The pool is being opened and requests offers."""


@dataclass(frozen=True, slots=True)
class PoolProvisioning(BaseEvent):
    """The pool launches its first nodes. It does not occur when a pool is attached to.

    Attributes:
        provider: name of the provider; several are separated by commas.
        nodes: number of nodes requested.
    """

    provider: str
    nodes: int


@dataclass(frozen=True, slots=True)
class PoolReady(BaseEvent):
    """Enough nodes are ready, and tasks can be sent.

    Attributes:
        nodes: number of nodes that are ready.
        elapsed: seconds since the pool began to open.
    """

    nodes: int
    elapsed: float


@dataclass(frozen=True, slots=True)
class PoolFailed(BaseEvent):
    """The pool could not be opened. `PoolClosed` follows when every machine is terminated.

    Attributes:
        error: name of the error's type, such as "NoOffersError".
        reason: the error's text.
    """

    error: str
    reason: str


@dataclass(frozen=True, slots=True)
class PoolStopping(BaseEvent):
    """The pool is being closed: running tasks are stopped and machines are terminated."""


@dataclass(frozen=True, slots=True)
class PoolClosed(BaseEvent):
    """The pool is closed. The last event of a pool.

    Attributes:
        elapsed: seconds since the pool began to open.
        done, failed: number of tasks that returned a value, and that failed; cancelled ones are neither.
        spent: total cost of the pool.
        left: why machines may be left; empty if none is.
    """

    elapsed: float
    done: int
    failed: int
    spent: float
    left: str = ""


@dataclass(frozen=True, slots=True)
class PoolNote(BaseEvent):
    """A note for the user, such as a field of the spec that a provider ignores."""

    text: str


# Nodes.


@dataclass(frozen=True, slots=True)
class NodeEvent(BaseEvent):
    """Base of events of a node.

    Attributes:
        node: its rank.
        machine: number of its machine in the pool. A rank gets another machine when its node is replaced.
    """

    node: int
    machine: int


@dataclass(frozen=True, slots=True)
class NodeRequested(NodeEvent):
    """A machine was requested.

    Attributes:
        group: name of the group of the node.
        kind: provider, type, zone and market of the machine.
        hourly_price: price of the machine, per hour.
    """

    group: str
    kind: str
    hourly_price: float


@dataclass(frozen=True, slots=True)
class NodeAllocated(NodeEvent):
    """The machine is allocated, and costs money from now on."""


@dataclass(frozen=True, slots=True)
class NodePhaseStarted(NodeEvent):
    """The node started a phase of its start-up, such as "connecting", "deps" or "worker"."""

    phase: str


@dataclass(frozen=True, slots=True)
class NodePhaseCompleted(NodeEvent):
    """The node completed a phase of its start-up.

    Attributes:
        phase: name of the phase.
        elapsed: seconds that the phase took; 0 if there was nothing to do.
    """

    phase: str
    elapsed: float


@dataclass(frozen=True, slots=True)
class NodeReady(NodeEvent):
    """The node takes tasks.

    Attributes:
        elapsed: seconds since its machine was requested.
        ready, wanted: numbers of ready nodes, and of desired nodes, of the pool.
    """

    elapsed: float
    ready: int
    wanted: int


@dataclass(frozen=True, slots=True)
class NodeDraining(NodeEvent):
    """The node drains: it finishes its tasks, takes no more, and is removed."""


@dataclass(frozen=True, slots=True)
class NodeReclaimed(NodeEvent):
    """The provider will take the machine back. The node drains until then, and another is launched.

    Attributes:
        seconds: time that is left.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class NodeDrainCancelled(NodeEvent):
    """The draining node is needed again and takes tasks."""


@dataclass(frozen=True, slots=True)
class NodeLost(NodeEvent):
    """The node died. Each of its tasks has an event of its own: `TaskRetried` if it is requeued, or its end.

    Attributes:
        reason: why it counts as lost.
        replaced: True if another machine takes its rank.
    """

    reason: str
    replaced: bool


@dataclass(frozen=True, slots=True)
class NodeFailed(NodeEvent):
    """The node failed to start.

    Attributes:
        phase: phase in which it failed; "requested" if there was no machine for it.
        reason: the reason, in one line.
        log: the last lines of its output.
        replaced: True if it is retried.
    """

    phase: str
    reason: str
    log: tuple[str, ...]
    replaced: bool


@dataclass(frozen=True, slots=True)
class NodeGivenUp(NodeEvent):
    """The node failed too often. It is not retried until the pool is resized."""

    reason: str


@dataclass(frozen=True, slots=True)
class NodeRemoved(NodeEvent):
    """The node left the pool on purpose: it was drained, is no longer needed, or the pool closes.

    A pending request cannot be cancelled: its machine may still be allocated, and is then terminated or, if it is
    needed again by then, becomes the node.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class NodeValuesLost(NodeEvent):
    """The node is gone, and with it the values that it kept for later tasks.

    Attributes:
        names: names of the values.
        reason: why the node is gone.
    """

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class NodeTerminated(NodeEvent):
    """The machine is terminated and costs nothing any more. The last event of a machine."""


# Tasks.


@dataclass(frozen=True, slots=True)
class TaskEvent(BaseEvent):
    """Base of events of a task.

    Attributes:
        task: its number in the pool, as in `Run.tasks` and `pool.logs(task=...)`.
        name: name of its function.
    """

    task: int
    name: str


@dataclass(frozen=True, slots=True)
class TaskQueued(TaskEvent):
    """The pool accepted the task, which may have to wait for others first. A broadcast is one task for each node."""


@dataclass(frozen=True, slots=True)
class TaskRecovered(TaskEvent):
    """`sky.attach` found the task on a node. Replaces `TaskQueued`."""

    node: int


@dataclass(frozen=True, slots=True)
class TaskAssigned(TaskEvent):
    """The task was sent to a node.

    May happen again without a `TaskRetried`: a task that waits behind others on its node moves to a free node.
    """

    node: int


@dataclass(frozen=True, slots=True)
class TaskRetried(TaskEvent):
    """The task was requeued, because the node that ran it was lost, or because it raised what its `retries=` cover.

    Attributes:
        node: the node that ran it.
        retries: times that this task was requeued so far, for either cause.
        reason: why the node was lost, or the exception that the task raised.
    """

    node: int
    retries: int
    reason: str


@dataclass(frozen=True, slots=True)
class TaskEnded(TaskEvent):
    """Base of the ends of a task. Each task has exactly one event of this kind.

    Attributes:
        node: the node that had it last; None if it was never sent.
        elapsed: seconds that it ran, as reported by its node; None if unknown.
    """

    node: int | None
    elapsed: float | None


@dataclass(frozen=True, slots=True)
class TaskCompleted(TaskEnded):
    """The task returned a value."""


@dataclass(frozen=True, slots=True)
class TaskFailed(TaskEnded):
    """The task raised an exception, or could not be run.

    Attributes:
        error: name of the exception's type, such as "ValueError" or "NodeLostError".
        reason: the first line of the exception's text, shortened, or why it did not run; empty if that has no text.
    """

    error: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskTimedOut(TaskEnded):
    """The task ran past its timeout and was stopped."""


@dataclass(frozen=True, slots=True)
class TaskCancelled(TaskEnded):
    """The task was cancelled."""


# Scaling and costs.


@dataclass(frozen=True, slots=True)
class ScalingDecided(BaseEvent):
    """A decision about the number of nodes, as in `pool.decisions()`. A repeated decision has no event."""

    decision: "DecisionEvent"


@dataclass(frozen=True, slots=True)
class CostChanged(BaseEvent):
    """The price of the pool per hour changed. Until the next such event, it costs `per_hour`.

    Attributes:
        spent: cost of the pool so far.
        per_hour: hourly cost of its machines from now on.
    """

    spent: float
    per_hour: float


@dataclass(frozen=True, slots=True)
class BudgetReached(BaseEvent):
    """The budget is reached: the nodes drain and are terminated.

    Attributes:
        spent, budget: cost so far, and the limit, in USD.
    """

    spent: float
    budget: float


# The stream.


@dataclass(frozen=True, slots=True)
class EventsDropped(BaseEvent):
    """The reader was too slow, and events were dropped. `number` and `time` are those of the last one dropped.

    Attributes:
        count: number of dropped events.
    """

    count: int


type Event = (
    PoolRequesting
    | PoolProvisioning
    | PoolReady
    | PoolFailed
    | PoolStopping
    | PoolClosed
    | PoolNote
    | NodeRequested
    | NodeAllocated
    | NodePhaseStarted
    | NodePhaseCompleted
    | NodeReady
    | NodeDraining
    | NodeReclaimed
    | NodeDrainCancelled
    | NodeLost
    | NodeFailed
    | NodeGivenUp
    | NodeRemoved
    | NodeTerminated
    | NodeValuesLost
    | TaskQueued
    | TaskRecovered
    | TaskAssigned
    | TaskRetried
    | TaskCompleted
    | TaskFailed
    | TaskTimedOut
    | TaskCancelled
    | ScalingDecided
    | CostChanged
    | BudgetReached
    | EventsDropped
)
"""Any event, for an exhaustive `match`."""
