"""Messages and effects of the control plane, apart from those of tasks and machines."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.tasks import messages as tasks
from skyward.control.effect import CausedEffect
from skyward.events.decisions import DecisionEvent
from skyward.kept.registry import KeptEntry
from skyward.scaling.snapshot import Demand, Group

__all__ = [
    "CollectionUsed",
    "ContinueSize",
    "Decided",
    "DrainNode",
    "ForgetKept",
    "KeptAdded",
    "KeptValuesLost",
    "Open",
    "PlaneEffect",
    "PlaneMessage",
    "ReleaseKept",
    "Resize",
    "SetBudget",
    "SetFloor",
    "ThresholdReached",
    "Tick",
    "UpdateGroup",
]

# Messages.


@dataclass(frozen=True, slots=True)
class Open:
    """Request to launch the first nodes."""


@dataclass(frozen=True, slots=True)
class Resize:
    """Request for other bounds, by group: the minimum and the maximum number of nodes.

    `nodes`: the desired number of nodes within the bounds, for groups that get another one.
    """

    bounds: Mapping[str, tuple[int, int]]
    nodes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContinueSize:
    """Request to continue with the size that a pool had when its process ended, once its nodes are attached to.

    Attributes:
        nodes: desired number of nodes, by group; those that are left out have as many as they should.
        draining: ranks of the nodes that were draining.
    """

    nodes: Mapping[str, int]
    draining: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DrainNode:
    """Request to drain the node of this rank, and to shrink the pool by one."""

    rank: int


@dataclass(frozen=True, slots=True)
class UpdateGroup:
    """Request to launch the nodes of a group from another spec, and to replace those of the earlier one, one by one.

    Attributes:
        group: the group by its new spec; its bounds are not looked at.
        sources: the sources of its machines, the preferred one first.
        positions: the positions of all sources of the new spec.
        boot: timeout of the start of a node, in seconds.
        fields: names of the fields of the spec that differ.
    """

    group: Group
    sources: tuple[MachineSource, ...]
    positions: range
    boot: float
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetFloor:
    """Demands that must fit from now on, used or not; they replace the earlier ones."""

    demands: tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class SetBudget:
    """A new budget, USD in total; None for no limit."""

    budget: float | None


@dataclass(frozen=True, slots=True)
class CollectionUsed:
    """Report that the client uses data on the nodes: one node is needed, and the pool is not idle."""


@dataclass(frozen=True, slots=True)
class KeptAdded:
    """Report that a node keeps a value."""

    entry: KeptEntry


@dataclass(frozen=True, slots=True)
class ReleaseKept:
    """Request to drop these kept values."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SpareStreams:
    """Report that streams on a node that drains for an update are not read, while tasks wait that it could run.

    Their readers may wait for these tasks, so the node takes tasks until they have ended.
    """

    rank: int
    streams: frozenset[int]


@dataclass(frozen=True, slots=True)
class Tick:
    """Report that time has passed."""


type MachineMessage = (
    machines.Allocated
    | machines.Priced
    | machines.Refused
    | machines.Joined
    | machines.TakenOver
    | machines.Failed
    | machines.Lost
    | machines.Reclaimed
    | machines.Terminated
)
type TaskMessage = (
    tasks.Submitted
    | tasks.SubmitGang
    | tasks.TasksFound
    | tasks.Broadcast
    | tasks.StartedOnNode
    | tasks.Delivered
    | tasks.Stored
    | tasks.Dropped
    | tasks.Ended
    | tasks.MemberArrived
    | tasks.Withheld
    | tasks.Released
    | tasks.UniqueResults
    | tasks.Overdue
    | tasks.CancelTasks
    | tasks.CancelBroadcast
    | tasks.Abandon
    | tasks.RankDraining
)
type PlaneMessage = (
    Open
    | Resize
    | ContinueSize
    | DrainNode
    | UpdateGroup
    | SetFloor
    | SetBudget
    | CollectionUsed
    | KeptAdded
    | ReleaseKept
    | SpareStreams
    | Tick
    | MachineMessage
    | TaskMessage
)

# Effects.


@dataclass(frozen=True, slots=True)
class ThresholdReached(CausedEffect):
    """Report that enough nodes are active for work to start."""


@dataclass(frozen=True, slots=True)
class Decided(CausedEffect):
    """Publish a decision."""

    event: DecisionEvent


@dataclass(frozen=True, slots=True)
class ForgetKept(CausedEffect):
    """Have a node drop these values."""

    rank: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeptValuesLost(CausedEffect):
    """Report that a node was lost or removed with the values that it kept."""

    rank: int
    machine: int
    entries: tuple[KeptEntry, ...]
    reason: str


type PlaneEffect = (
    ThresholdReached | Decided | ForgetKept | KeptValuesLost | machines.ReconcilerEffect | tasks.TaskManagerEffect
)
