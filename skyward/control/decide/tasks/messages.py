"""Messages and effects of the task manager."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from skyward.control.effect import CausedEffect
from skyward.scaling.snapshot import GangDemand
from skyward.values.needs import NOTHING, Needs, Resources
from skyward.wire.protocol.messages import Collective, GangMember

__all__ = [
    "Abandon",
    "Broadcast",
    "BroadcastEnded",
    "CancelBroadcast",
    "CancelTasks",
    "CheckPrefetched",
    "Delivered",
    "Dispatch",
    "Dropped",
    "EndGang",
    "EndInfeasible",
    "EndPinned",
    "Ended",
    "MeetingOpened",
    "MeetingsDue",
    "Member",
    "MemberArrived",
    "Overdue",
    "RankDraining",
    "RankJoined",
    "RankLost",
    "RankRemoved",
    "Recall",
    "Released",
    "Requeue",
    "Settle",
    "SettleOutcome",
    "StartedOnNode",
    "Stop",
    "StopUnfunded",
    "Stored",
    "SubmitGang",
    "Submitted",
    "TaskManagerEffect",
    "TaskManagerMessage",
    "TasksFound",
    "Together",
    "UniqueResults",
    "Withheld",
]

# Messages.


@dataclass(frozen=True, slots=True)
class Submitted:
    """New tasks of one shape, in order.

    Attributes:
        target: the only rank that may run them; None for any.
        replayable: True if they may run again from the start.
        needs: resources that each of them needs.
        retries: retries of each after it raised.
        kept: keys of the values on their target that they use: they end with that node.
        blobs: by task, the sizes by key of the blobs that its node must have; tasks without any are left out.
        functions: for each, the function that it runs, by which run times are measured; empty if they are not known.
    """

    tasks: tuple[int, ...]
    target: int | None = None
    replayable: bool = True
    needs: Needs = NOTHING
    retries: int = 0
    kept: tuple[str, ...] = ()
    blobs: Mapping[int, Mapping[bytes, int]] = field(default_factory=dict)
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubmitGang:
    """New tasks that start together or not at all, in the order of their ranks in the gang.

    Attributes:
        gang: number of the gang, lower than those of its tasks.
        demand: needs of each, and their placement.
        retries: for each, the retries after it raised.
        blobs: as in `Submitted`.
        functions: for each, the function that it runs, by which run times are measured.
    """

    gang: int
    tasks: tuple[int, ...]
    demand: GangDemand
    retries: tuple[int, ...] = ()
    blobs: Mapping[int, Mapping[bytes, int]] = field(default_factory=dict)
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Together:
    """The terms of a broadcast whose members work together: all of them run, or none does.

    Attributes:
        procs: members on each node.
        restarts: times that the broadcast is run again after a member was lost.
        within: seconds that the members have to find each other, once each has a process.
    """

    procs: int = 1
    restarts: int = 0
    within: float = 60.0


@dataclass(frozen=True, slots=True)
class Broadcast:
    """One task on every active node, and on those that join while any of these tasks runs.

    The nodes at the start share the data; nodes that join later get an empty share. If there is no node yet, the
    broadcast waits for the first. Nodes that can never hold its `needs` are left out.

    Attributes:
        retries: as in `Submitted`.
        ranks: the only nodes that take part, active or booting; None for every node.
        kept: keys of values on these nodes that it uses: each member ends with its node.
        together: terms of a collective, whose members are those of the start; None for independent members.
        function: the function that its tasks run, by which run times are measured.
    """

    broadcast: int
    needs: Needs = NOTHING
    retries: int = 0
    ranks: tuple[int, ...] | None = None
    kept: tuple[str, ...] = ()
    together: Together | None = None
    function: str = ""


@dataclass(frozen=True, slots=True)
class RankJoined:
    """Report that a node can take `slots` tasks at once, as far as its resources go.

    Attributes:
        is_extra: True for a node that is there only while others are replaced: broadcasts that have begun skip it.
    """

    rank: int
    slots: int
    group: str = ""
    resources: Resources = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()
    is_extra: bool = False


@dataclass(frozen=True, slots=True)
class TasksFound:
    """Report tasks that a joined node already has, which cannot be replayed; numbers up to `last` are taken."""

    tasks: tuple[int, ...]
    rank: int
    last: int


@dataclass(frozen=True, slots=True)
class RankDraining:
    """Request that a node takes no more tasks and finishes those it has."""

    rank: int


@dataclass(frozen=True, slots=True)
class RankLost:
    """Report that a node died; another may take its rank."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """Report that a node does not answer and has overdue tasks: these end, and the node is lost."""

    tasks: tuple[int, ...]
    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class RankRemoved:
    """Report that a rank has no node for now; tasks that need this very node end. Others are requeued."""

    rank: int
    reason: str
    outcome: Literal["lost", "unfunded"] = "lost"


@dataclass(frozen=True, slots=True)
class StartedOnNode:
    """Report that a task left its node's queue."""

    task: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """Report that part of a task's stream reached its caller."""

    task: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Report that a node has these blobs."""

    rank: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """Report that a node drops these blobs."""

    rank: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """Report that a task ended on its node.

    Attributes:
        seconds: how long it ran.
        retry: the exception, if the task's retry policy covers it; empty otherwise.
        follows_loss: True if it is a member of a collective, and raised because another one was lost or had failed.
        raised: True if it returned a value that has an exception: a cell that raised.
    """

    task: int
    rank: int
    outcome: Literal["value", "error", "timeout", "cancelled", "returned", "lost"]
    seconds: float
    retry: str = ""
    follows_loss: bool = False
    raised: bool = False


@dataclass(frozen=True, slots=True)
class MemberArrived:
    """Report that a member of a collective is ready to meet the others; the first one says where."""

    task: int
    rank: int
    address: str = ""


@dataclass(frozen=True, slots=True)
class MeetingsDue:
    """Report that the time for a meeting is over."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """Report that a task was not sent, since an input was lost: it waits for `Released`, without a slot."""

    task: int
    rank: int


@dataclass(frozen=True, slots=True)
class Released:
    """Report that a withheld task can be sent. `broken`: it ends with an error, since its input cannot be restored."""

    task: int
    broken: bool = False


@dataclass(frozen=True, slots=True)
class UniqueResults:
    """Report the number of results that only this node has, which keep it from being terminated as empty."""

    rank: int
    count: int


@dataclass(frozen=True, slots=True)
class CancelTasks:
    """Request to cancel these tasks."""

    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StopUnfunded:
    """Request to stop every task on a node, because the budget is reached: each ends as "unfunded"."""

    reason: str


@dataclass(frozen=True, slots=True)
class CancelBroadcast:
    """Request to cancel a broadcast: its members, and those of nodes that join later."""

    broadcast: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Report that no node can be launched, or paid, for what waits.

    Attributes:
        shapes: only tasks of these shapes end that wait for any node that fits; None for all that waits.
    """

    reason: str
    outcome: Literal["abandoned", "unfunded"] = "abandoned"
    shapes: frozenset[Needs] | None = None


@dataclass(frozen=True, slots=True)
class EndPinned:
    """Report that the node of a rank cannot be launched, or paid: the tasks that wait for this very node end."""

    rank: int
    outcome: Literal["abandoned", "unfunded"]
    reason: str


@dataclass(frozen=True, slots=True)
class EndInfeasible:
    """Report that no successor of a node comes for tasks that it can never hold: those pinned to it end.

    Attributes:
        needs: what the tasks need that end.
        bound: True if only those of them end that use values on the node.
        reason: why no successor comes that could hold them; empty if none would.
    """

    rank: int
    needs: Needs
    bound: bool = False
    outcome: Literal["infeasible", "abandoned", "unfunded"] = "infeasible"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EndGang:
    """Report that a waiting gang can never start: all its tasks end."""

    gang: int
    outcome: Literal["infeasible", "abandoned", "unfunded"]
    reason: str


@dataclass(frozen=True, slots=True)
class CheckPrefetched:
    """Report that time has passed."""


type TaskManagerMessage = (
    Submitted
    | SubmitGang
    | Broadcast
    | RankJoined
    | TasksFound
    | RankDraining
    | RankLost
    | RankRemoved
    | Overdue
    | StartedOnNode
    | Delivered
    | Stored
    | Dropped
    | Ended
    | MemberArrived
    | MeetingsDue
    | Withheld
    | Released
    | UniqueResults
    | CancelTasks
    | StopUnfunded
    | CancelBroadcast
    | Abandon
    | EndGang
    | EndPinned
    | EndInfeasible
    | CheckPrefetched
)

type SettleOutcome = Literal[
    "value",
    "raised",
    "error",
    "timeout",
    "cancelled",
    "lost",
    "unmet",
    "unkept",
    "infeasible",
    "abandoned",
    "unfunded",
    "stuck",
]
"""End of a task. "raised": a result that carries the exception of a cell. "unmet": it did not meet the other members
of its collective in time. "unkept": its node was lost, with a kept value that it uses. "infeasible": no node could ever
hold it. "abandoned": the nodes that it waited for cannot be launched. "unfunded": they cannot be paid, or the task was
stopped for the budget. "stuck": paused streams hold the slots that it waited for."""


# Effects.


@dataclass(frozen=True, slots=True)
class Dispatch(CausedEffect):
    """Send a task to a node.

    Attributes:
        share: its position in a broadcast or gang, and the size of that.
        collective: its place in a collective; the name of the generation is unique in the pool.
        gang: its place in a gang.
    """

    task: int
    rank: int
    attempt: int
    share: tuple[int, int] | None = None
    collective: Collective | None = None
    gang: GangMember | None = None


@dataclass(frozen=True, slots=True)
class Member(CausedEffect):
    """Report a new member of a broadcast: `task`, on node `rank`, `local` among its members there."""

    broadcast: int
    task: int
    rank: int
    local: int = 0


@dataclass(frozen=True, slots=True)
class MeetingOpened(CausedEffect):
    """Tell a member of a collective where all of them meet."""

    task: int
    rank: int
    address: str


@dataclass(frozen=True, slots=True)
class Recall(CausedEffect):
    """Recall a task from a node, if it has not started there."""

    task: int
    rank: int


@dataclass(frozen=True, slots=True)
class Requeue(CausedEffect):
    """Report that a task is queued again: its node or its process was lost, or it raised an exception that its retry
    policy covers. `retries`: how often so far.
    """

    task: int
    rank: int
    retries: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stop(CausedEffect):
    """Stop a task on its node."""

    task: int
    rank: int


@dataclass(frozen=True, slots=True)
class Settle(CausedEffect):
    """End a task. `reason` is given if it has neither a result nor an exception of its own."""

    task: int
    outcome: SettleOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BroadcastEnded(CausedEffect):
    """Report that every member of a broadcast has ended; it takes no more."""

    broadcast: int


type TaskManagerEffect = Dispatch | Member | MeetingOpened | Recall | Requeue | Stop | Settle | BroadcastEnded
