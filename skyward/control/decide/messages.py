"""What the control plane is told beside what tasks and machines do, and what it says beside what they need."""

from collections.abc import Mapping
from dataclasses import dataclass

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.tasks import messages as tasks
from skyward.events.decisions import DecisionEvent
from skyward.kept.book import KeptEntry
from skyward.scaling.snapshot import Demand

__all__ = [
    "Decided",
    "DrainNode",
    "Effect",
    "Forget",
    "Keep",
    "Message",
    "Open",
    "Ready",
    "Release",
    "Resize",
    "SetBudget",
    "SetFloor",
    "Tick",
    "Unkept",
    "Use",
]

# Messages.


@dataclass(frozen=True, slots=True)
class Open:
    """Get the first nodes."""


@dataclass(frozen=True, slots=True)
class Resize:
    """Other bounds, by group: the fewest and the most nodes."""

    bounds: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DrainNode:
    """The node of this rank is to finish its tasks and go; the pool has one less then."""

    rank: int


@dataclass(frozen=True, slots=True)
class SetFloor:
    """What must fit from now on, whether it is used or not; replaces what was asked for before."""

    demands: tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class SetBudget:
    """Another budget, USD in all; None for no limit."""

    budget: float | None


@dataclass(frozen=True, slots=True)
class Use:
    """The client uses what the nodes keep, so one node is needed and the pool is not idle."""


@dataclass(frozen=True, slots=True)
class Keep:
    """A node keeps a value from now on."""

    entry: KeptEntry


@dataclass(frozen=True, slots=True)
class Release:
    """These kept values are wanted no more."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


type WorldMessage = (
    machines.Allocated | machines.Refused | machines.Joined | machines.Failed | machines.Lost | machines.Gone
)
type TaskMessage = (
    tasks.Submitted
    | tasks.Found
    | tasks.Broadcast
    | tasks.Started
    | tasks.Delivered
    | tasks.Stored
    | tasks.Dropped
    | tasks.Ended
    | tasks.Withheld
    | tasks.Released
    | tasks.Holding
    | tasks.Overdue
    | tasks.Cancel
    | tasks.CancelBroadcast
    | tasks.Abandon
    | tasks.NodeDraining
)
type Message = (
    Open | Resize | DrainNode | SetFloor | SetBudget | Use | Keep | Release | Tick | WorldMessage | TaskMessage
)

# Effects.


@dataclass(frozen=True, slots=True)
class Ready:
    """Enough nodes are up for work to start."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision was made."""

    event: DecisionEvent


@dataclass(frozen=True, slots=True)
class Forget:
    """Have a node forget these values."""

    rank: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unkept:
    """A node is gone, and with it the values that it kept."""

    rank: int
    machine: int
    entries: tuple[KeptEntry, ...]
    reason: str


type Effect = Ready | Decided | Forget | Unkept | machines.Effect | tasks.Effect
