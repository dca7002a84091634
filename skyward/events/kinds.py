"""Kinds of events: what happens to a pool, its nodes and its tasks, and what it costs.

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
        time: when it happened, in Unix time.
    """

    pool: str
    number: int
    time: float


# The pool.


@dataclass(frozen=True, slots=True)
class PoolRequesting(BaseEvent):
    """The pool is being opened and looks for offers."""


@dataclass(frozen=True, slots=True)
class PoolProvisioning(BaseEvent):
    """The pool asks for its first nodes.

    Attributes:
        provider: name of the provider; several are separated by commas.
        nodes: number of nodes that are asked for.
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
    """The pool could not be opened. `PoolClosed` follows when everything was given back.

    Attributes:
        error: name of the error's type, such as "NoOffersError".
        reason: the error's text.
    """

    error: str
    reason: str


@dataclass(frozen=True, slots=True)
class PoolStopping(BaseEvent):
    """The pool is being closed: running tasks are stopped and machines are given back."""


@dataclass(frozen=True, slots=True)
class PoolClosed(BaseEvent):
    """The pool is closed. The last event of a pool.

    Attributes:
        elapsed: seconds since the pool began to open.
        done, failed: number of tasks that returned a value, and that ended in any other way.
        spent: what the pool has cost.
    """

    elapsed: float
    done: int
    failed: int
    spent: float


@dataclass(frozen=True, slots=True)
class PoolNote(BaseEvent):
    """The pool has something to say to its user, such as a field of the spec that a provider does not act on."""

    text: str


# Nodes.


@dataclass(frozen=True, slots=True)
class NodeEvent(BaseEvent):
    """Base of what happens to a node.

    Attributes:
        node: its rank.
        machine: number of its machine in the pool. A rank gets another machine when its node is replaced.
    """

    node: int
    machine: int


@dataclass(frozen=True, slots=True)
class NodeRequested(NodeEvent):
    """A machine was asked for.

    Attributes:
        group: name of the group of the node.
        kind: provider, type, zone and market of the machine.
        hourly_price: of the machine.
    """

    group: str
    kind: str
    hourly_price: float


@dataclass(frozen=True, slots=True)
class NodeAllocated(NodeEvent):
    """The machine is there. It costs money from now on."""


@dataclass(frozen=True, slots=True)
class NodePhaseStarted(NodeEvent):
    """The node began a phase of its start, such as "connecting", "deps" or "worker"."""

    phase: str


@dataclass(frozen=True, slots=True)
class NodePhaseCompleted(NodeEvent):
    """The node completed a phase of its bootstrap.

    Attributes:
        elapsed: seconds that the phase took; 0 where there was nothing to do.
    """

    phase: str
    elapsed: float


@dataclass(frozen=True, slots=True)
class NodeReady(NodeEvent):
    """The node takes tasks.

    Attributes:
        elapsed: seconds since its machine was asked for.
        ready, wanted: number of nodes of the pool that are ready, and that are wanted.
    """

    elapsed: float
    ready: int
    wanted: int


@dataclass(frozen=True, slots=True)
class NodeDraining(NodeEvent):
    """The node finishes its tasks, takes no more, and goes."""


@dataclass(frozen=True, slots=True)
class NodeDrainCancelled(NodeEvent):
    """The draining node is needed after all and takes tasks again."""


@dataclass(frozen=True, slots=True)
class NodeLost(NodeEvent):
    """The node died. What ran there has an event of its own: `TaskRetried` where it is sent again, or its end.

    Attributes:
        replaced: whether another machine takes its rank.
    """

    reason: str
    replaced: bool


@dataclass(frozen=True, slots=True)
class NodeFailed(NodeEvent):
    """The node did not come up.

    Attributes:
        phase: the phase in which it failed; "requested" where there was no machine for it.
        reason: why, in one line.
        log: the last lines that it printed.
        replaced: whether it is tried again.
    """

    phase: str
    reason: str
    log: tuple[str, ...]
    replaced: bool


@dataclass(frozen=True, slots=True)
class NodeGivenUp(NodeEvent):
    """The node failed too often. It is not tried again until the pool is resized."""

    reason: str


@dataclass(frozen=True, slots=True)
class NodeRemoved(NodeEvent):
    """The node left the pool on purpose: it was drained, is not wanted any more, or the pool closes.

    A request that is not answered yet cannot be taken back: its machine may still come, to be given back or, if it is
    wanted again by then, to become the node.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class NodeValuesLost(NodeEvent):
    """The node is gone, and with it values that it kept for later tasks.

    Attributes:
        names: what the values were called.
        reason: why the node is gone.
    """

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class NodeTerminated(NodeEvent):
    """The machine was given back and costs nothing any more. The last event of a machine."""


# Tasks.


@dataclass(frozen=True, slots=True)
class TaskEvent(BaseEvent):
    """Base of what happens to a task.

    Attributes:
        task: its number in the pool, as in `Run.tasks` and `pool.logs(task=...)`.
        name: name of its function.
    """

    task: int
    name: str


@dataclass(frozen=True, slots=True)
class TaskQueued(TaskEvent):
    """The pool has taken the task, which may have to wait for others first. A broadcast is one task for each node."""


@dataclass(frozen=True, slots=True)
class TaskRecovered(TaskEvent):
    """`sky.attach` found the task on a node. Takes the place of `TaskQueued`."""

    node: int


@dataclass(frozen=True, slots=True)
class TaskAssigned(TaskEvent):
    """The task was sent to a node.

    May happen again without a `TaskRetried`: a task that waits behind others on its node moves to a node that is free.
    """

    node: int


@dataclass(frozen=True, slots=True)
class TaskRetried(TaskEvent):
    """The task is queued again, because the node that ran it was lost, or because it raised what its `retries=` cover.

    Attributes:
        node: the node that ran it.
        retries: how often this task was queued again so far, for either cause.
        reason: why the node was lost, or what the task raised.
    """

    node: int
    retries: int
    reason: str


@dataclass(frozen=True, slots=True)
class TaskEnded(TaskEvent):
    """Base of how a task ends. Each task has exactly one event of this kind.

    Attributes:
        node: the node that had it last; None where none had it.
        elapsed: seconds that it ran, as its node says; None where that is not known.
    """

    node: int | None
    elapsed: float | None


@dataclass(frozen=True, slots=True)
class TaskCompleted(TaskEnded):
    """The task returned a value."""


@dataclass(frozen=True, slots=True)
class TaskFailed(TaskEnded):
    """The task raised an exception, as a cell may, or could not be run.

    Attributes:
        error: name of the exception's type, such as "ValueError" or "NodeLostError".
        reason: why it did not run; empty where it raised.
    """

    error: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskTimedOut(TaskEnded):
    """The task ran past its timeout and was stopped."""


@dataclass(frozen=True, slots=True)
class TaskCancelled(TaskEnded):
    """The task was cancelled."""


# How many nodes, and what they cost.


@dataclass(frozen=True, slots=True)
class ScalingDecided(BaseEvent):
    """A decision about the number of nodes, as in `pool.decisions()`. One that is only repeated has no event."""

    decision: "DecisionEvent"


@dataclass(frozen=True, slots=True)
class CostChanged(BaseEvent):
    """The price of the pool per hour changed. Until the next such event, it costs `per_hour`.

    Attributes:
        spent: what the pool has cost so far.
        per_hour: what its machines cost from now on.
    """

    spent: float
    per_hour: float


@dataclass(frozen=True, slots=True)
class BudgetReached(BaseEvent):
    """The budget is reached: the nodes finish their tasks and are given back."""

    spent: float
    budget: float


# The stream itself.


@dataclass(frozen=True, slots=True)
class EventsDropped(BaseEvent):
    """The reader was too slow, and events were dropped. `number` and `time` are those of the last one dropped.

    Attributes:
        count: number of events that were dropped here.
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
