"""What the task manager is told, and what it says must be done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from skyward.values.needs import NOTHING, Needs, Resources

__all__ = [
    "Abandon",
    "Broadcast",
    "BroadcastEnded",
    "Cancel",
    "CancelBroadcast",
    "CheckDeadlines",
    "Delivered",
    "Dispatch",
    "Dropped",
    "Effect",
    "Ended",
    "Found",
    "Holding",
    "Member",
    "Message",
    "NodeDraining",
    "NodeJoined",
    "NodeLost",
    "NodeRemoved",
    "Outcome",
    "Overdue",
    "Recall",
    "Released",
    "Requeue",
    "Settle",
    "Started",
    "Stop",
    "Stored",
    "Submitted",
    "Withheld",
]

# Messages.


@dataclass(frozen=True, slots=True)
class Submitted:
    """New tasks of one shape, in order.

    Attributes:
        target: the rank they must run on.
        replayable: they may run again from the start.
        needs: what each of them asks of its node.
        retries: how often each may run again after it has raised.
        kept: keys of the values that their target keeps and they use: they end with that node.
        blobs: by task, the sizes by key of the blobs that it must have on its node; tasks without any are left out.
    """

    tasks: tuple[int, ...]
    target: int | None = None
    replayable: bool = True
    needs: Needs = NOTHING
    retries: int = 0
    kept: tuple[str, ...] = ()
    blobs: Mapping[int, Mapping[bytes, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broadcast:
    """One task on every node there is, and on those that join while any of them runs.

    The nodes there are at the start share the data among them; those that join later find their share empty. Where
    there is no node yet, it waits for the first. Nodes that can never hold what it `needs` are left out.

    Attributes:
        retries: as in `Submitted`.
        ranks: the only nodes that it is for, up or on their way; None for every node.
        kept: keys of values that these nodes keep and it uses: each part ends with its node.
    """

    broadcast: int
    needs: Needs = NOTHING
    retries: int = 0
    ranks: tuple[int, ...] | None = None
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node can take `slots` tasks at once, as far as its resources go."""

    rank: int
    slots: int
    group: str = ""
    resources: Resources = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """A node that joined has these already, which cannot be sent again; numbers up to `last` are taken."""

    tasks: tuple[int, ...]
    rank: int
    last: int


@dataclass(frozen=True, slots=True)
class NodeDraining:
    """A node is to take no more tasks and to keep those that run there."""

    rank: int


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node died; another may take its rank."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class Overdue:
    """A node does not answer, and these tasks on it should be over: they are, and the node is lost."""

    tasks: tuple[int, ...]
    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """No node will have this rank again for now: it was scaled away, cannot be started, or cannot be paid any more."""

    rank: int
    reason: str
    outcome: Literal["lost", "unfunded"] = "lost"


@dataclass(frozen=True, slots=True)
class Started:
    """A task left its node's queue."""

    task: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """Part of a task's stream reached its caller, or part of its input was consumed."""

    task: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A node has these blobs from now on."""

    rank: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A node was told to forget these blobs."""

    rank: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """A node is done with a task.

    Attributes:
        seconds: how long it ran.
        retry: what it raised, where it asked to be run again after that; empty otherwise.
    """

    task: int
    rank: int
    outcome: Literal["value", "error", "timeout", "cancelled", "returned", "lost"]
    seconds: float
    retry: str = ""


@dataclass(frozen=True, slots=True)
class Withheld:
    """A task could not be sent to its node, since what it takes was lost: it waits for `Released`, without a slot."""

    task: int
    rank: int


@dataclass(frozen=True, slots=True)
class Released:
    """A task that was withheld can be sent. `broken`: it ends with an error, since what it takes cannot be had."""

    task: int
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """A node has so many results that are nowhere else, so that it is not to be given back as empty."""

    rank: int
    count: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """The caller wants these tasks no more."""

    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CancelBroadcast:
    """The caller wants a broadcast no more: neither the parts that there are, nor those of nodes that join."""

    broadcast: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """What waits will find no node any more: none can be had, or none can be paid. `shapes`: only what needs these."""

    reason: str
    outcome: Literal["abandoned", "unfunded"] = "abandoned"
    shapes: frozenset[Needs] | None = None


@dataclass(frozen=True, slots=True)
class CheckDeadlines:
    """Time has passed."""


type Message = (
    Submitted
    | Broadcast
    | NodeJoined
    | Found
    | NodeDraining
    | NodeLost
    | NodeRemoved
    | Overdue
    | Started
    | Delivered
    | Stored
    | Dropped
    | Ended
    | Withheld
    | Released
    | Holding
    | Cancel
    | CancelBroadcast
    | Abandon
    | CheckDeadlines
)

type Outcome = Literal[
    "value", "raised", "error", "timeout", "cancelled", "lost", "unkept", "infeasible", "abandoned", "unfunded", "stuck"
]
"""How a task ends. "raised": with a result that carries the exception of a cell. "unkept": its node was lost, with a
value there that it uses. "unfit": no node could ever hold it. "abandoned" and "unfunded": the nodes that it waited for
cannot be had, or paid. "stuck": streams hold the slots that it waited for, until it ends."""


# Effects.


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send a task to a node. `share`: its position and size in a broadcast."""

    task: int
    rank: int
    attempt: int
    share: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A broadcast has one task more: `task`, on node `rank`."""

    broadcast: int
    task: int
    rank: int


@dataclass(frozen=True, slots=True)
class Recall:
    """Take a task back from a node, if it has not started there."""

    task: int
    rank: int


@dataclass(frozen=True, slots=True)
class Requeue:
    """A task waits again, because the node that ran it, or its process there, was lost, or because it raised what its
    retries cover. `retries`: how often so far.
    """

    task: int
    rank: int
    retries: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a task that a node has."""

    task: int
    rank: int


@dataclass(frozen=True, slots=True)
class Settle:
    """A task is over. `reason` says why, where it has no result and no exception of its own."""

    task: int
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BroadcastEnded:
    """Every member of a broadcast is over; it takes no more."""

    broadcast: int


type Effect = Dispatch | Member | Recall | Requeue | Stop | Settle | BroadcastEnded
