"""Messages and effects of the control plane, apart from those of tasks and machines."""

from collections.abc import Mapping
from dataclasses import dataclass

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.tasks import messages as tasks
from skyward.events.decisions import DecisionEvent
from skyward.kept.registry import KeptEntry
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
    """Request to launch the first nodes."""


@dataclass(frozen=True, slots=True)
class Resize:
    """Request for other bounds, by group: the minimum and the maximum number of nodes."""

    bounds: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Request to drain the node of this rank, and to shrink the pool by one."""

    rank: int


@dataclass(frozen=True, slots=True)
class SetFloor:
    """Demands that must fit from now on, used or not; they replace the earlier ones."""

    demands: tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class SetBudget:
    """A new budget, USD in total; None for no limit."""

    budget: float | None


@dataclass(frozen=True, slots=True)
class Use:
    """Report that the client uses data on the nodes: one node is needed, and the pool is not idle."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Report that a node keeps a value."""

    entry: KeptEntry


@dataclass(frozen=True, slots=True)
class Release:
    """Request to drop these kept values."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """Report that time has passed."""


type MachineMessage = (
    machines.Allocated | machines.Refused | machines.Joined | machines.Failed | machines.Lost | machines.Gone
)
type TaskMessage = (
    tasks.Submitted
    | tasks.TasksFound
    | tasks.Broadcast
    | tasks.Started
    | tasks.Delivered
    | tasks.Stored
    | tasks.Dropped
    | tasks.Ended
    | tasks.Withheld
    | tasks.Released
    | tasks.UniqueResults
    | tasks.Overdue
    | tasks.Cancel
    | tasks.CancelBroadcast
    | tasks.Abandon
    | tasks.NodeDraining
)
type Message = (
    Open | Resize | DrainNode | SetFloor | SetBudget | Use | Keep | Release | Tick | MachineMessage | TaskMessage
)

# Effects.


@dataclass(frozen=True, slots=True)
class Ready:
    """Report that enough nodes are active for work to start."""


@dataclass(frozen=True, slots=True)
class Decided:
    """Publish a decision."""

    event: DecisionEvent


@dataclass(frozen=True, slots=True)
class Forget:
    """Have a node drop these values."""

    rank: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unkept:
    """Report that a node was lost or removed with the values that it kept."""

    rank: int
    machine: int
    entries: tuple[KeptEntry, ...]
    reason: str


type Effect = Ready | Decided | Forget | Unkept | machines.Effect | tasks.Effect
