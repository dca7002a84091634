"""What the reconciler is told about machines, and what it says must be done about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from skyward.control.decide.machines.sources import MachineSource

__all__ = [
    "Activate",
    "Allocated",
    "Cause",
    "Desired",
    "Drain",
    "DrainRefused",
    "Effect",
    "Emptied",
    "Evict",
    "Failed",
    "GiveUp",
    "Gone",
    "Install",
    "Joined",
    "Left",
    "Lost",
    "Message",
    "Refused",
    "Request",
    "Terminate",
    "Tick",
]

# Messages. A machine is known by the number that the reconciler gave it when it asked for it.


@dataclass(frozen=True, slots=True)
class Desired:
    """So many nodes are wanted, by group.

    Attributes:
        victims: ranks that should go first where nodes must go.
        afresh: try again, too, what was given up.
        drain: rank of the running node that goes, whatever else could.
    """

    nodes: Mapping[str, int]
    victims: tuple[int, ...] = ()
    afresh: bool = False
    drain: int | None = None


@dataclass(frozen=True, slots=True)
class Allocated:
    """The provider has a machine."""

    machine: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The provider had no such machines, or did not answer."""

    machines: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The worker on a machine is connected. `found`: resources that it has and its group was not known to have."""

    machine: int
    found: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """A machine did not become a node."""

    machine: int
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A machine died."""

    machine: int
    reason: str


@dataclass(frozen=True, slots=True)
class Emptied:
    """The draining node of this rank holds no task any more."""

    rank: int


@dataclass(frozen=True, slots=True)
class DrainRefused:
    """The draining node of this rank is to hold a new task."""

    rank: int


@dataclass(frozen=True, slots=True)
class Gone:
    """A machine was given back, and is no more."""

    machine: int


@dataclass(frozen=True, slots=True)
class Evict:
    """Every machine has to go, whatever runs on it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


type Message = Desired | Allocated | Refused | Joined | Failed | Lost | Emptied | DrainRefused | Gone | Evict | Tick


# Effects.

type Cause = Literal["lost", "failed", "refused", "removed"]


@dataclass(frozen=True, slots=True)
class Request:
    """Launch these machines. To be told twice of the same machine means the same machine."""

    group: str
    place: MachineSource
    machines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Install:
    """A machine is there: make it the node of a rank."""

    machine: int
    rank: int


@dataclass(frozen=True, slots=True)
class Activate:
    """The node of a rank takes tasks: it joined, or its drain was taken back."""

    machine: int
    rank: int
    group: str


@dataclass(frozen=True, slots=True)
class Drain:
    """The node of a rank takes no more tasks; it is asked for when it holds none."""

    rank: int
    machine: int = 0


@dataclass(frozen=True, slots=True)
class Left:
    """The node of a rank is gone.

    Attributes:
        again: whether another is to take its rank.
        machine: the machine that it had.
        cause: whether it died, did not come up, could not be had, or was taken away.
    """

    rank: int
    reason: str
    again: bool
    machine: int = 0
    cause: Cause = "removed"


@dataclass(frozen=True, slots=True)
class Terminate:
    """Give a machine back, in whatever state it is; said again until it is `Gone`."""

    machine: int
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The node of a rank cannot be had. It is not tried again until the pool is resized."""

    group: str
    rank: int
    reason: str
    machine: int = 0


type Effect = Request | Install | Activate | Drain | Left | Terminate | GiveUp
