"""Messages and effects of the reconciler."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from skyward.control.decide.machines.sources import MachineSource, RefusalKind
from skyward.control.effect import CausedEffect

__all__ = [
    "Activate",
    "Allocated",
    "Departure",
    "Desired",
    "Drain",
    "DrainRefused",
    "Emptied",
    "Evict",
    "Failed",
    "GiveUp",
    "Install",
    "Joined",
    "Launch",
    "Lost",
    "NodeGone",
    "Priced",
    "Reclaimed",
    "Reconcile",
    "ReconcilerEffect",
    "ReconcilerMessage",
    "Refused",
    "ReplaceOutdated",
    "SetSources",
    "TakenOver",
    "Terminate",
    "Terminated",
]

# Messages. A machine is known by the number that the reconciler gave it in its request.


@dataclass(frozen=True, slots=True)
class Desired:
    """Request for a number of nodes, by group.

    Attributes:
        victims: ranks to remove first, if nodes must go.
        retry_given_up: True to retry ranks that were given up.
        drain: rank of a running node to drain, in preference to any other.
        full: groups that have no room for an additional node of an update any more.
    """

    nodes: Mapping[str, int]
    victims: tuple[int, ...] = ()
    retry_given_up: bool = False
    drain: int | None = None
    full: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SetSources:
    """Request to launch the nodes of a group from other sources from now on.

    Attributes:
        sources: the preferred one first.
        positions: the positions of all sources of the spec; machines of other positions are outdated.
        boot: timeout of the start of a node, in seconds.
    """

    group: str
    sources: tuple[MachineSource, ...]
    positions: range
    boot: float


@dataclass(frozen=True, slots=True)
class ReplaceOutdated:
    """Request of an update of a group.

    Attributes:
        extra: True to have one node more than desired.
        drain: rank of a running outdated node to drain, which its successor gets; None for none.
    """

    group: str
    extra: bool
    drain: int | None = None


@dataclass(frozen=True, slots=True)
class Allocated:
    """Report that the provider allocated a machine."""

    machine: int


@dataclass(frozen=True, slots=True)
class Priced:
    """Report of the price of an allocated machine, USD per hour, where it is not that of its offer, or has changed."""

    machine: int
    hourly_price: float


@dataclass(frozen=True, slots=True)
class Refused:
    """Report that the provider had no such machines, or did not answer.

    Attributes:
        retry_after: seconds that the provider asks to wait.
    """

    machines: tuple[int, ...]
    reason: str
    kind: RefusalKind = "unknown"
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """Report that a machine's worker is connected.

    Attributes:
        found: its resources that its group was not known to have.
        reports: True if a former process started the worker: `TakenOver` follows.
    """

    machine: int
    found: Mapping[str, float] = field(default_factory=dict)
    reports: bool = False


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Report that the tasks and kept values which a former process left on a machine are known."""

    machine: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Report that a machine failed to become a node. `is_final`: so would every other one."""

    machine: int
    reason: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Report that a machine died."""

    machine: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Report that the provider will take a machine back, in so many seconds."""

    machine: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Emptied:
    """Report that the draining node of this rank is empty."""

    rank: int


@dataclass(frozen=True, slots=True)
class DrainRefused:
    """Report that the draining node of this rank gets a new task."""

    rank: int


@dataclass(frozen=True, slots=True)
class Terminated:
    """Report that a machine is terminated."""

    machine: int


@dataclass(frozen=True, slots=True)
class Evict:
    """Request to terminate every machine, whatever runs on it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Report that time has passed."""


type ReconcilerMessage = (
    Desired
    | SetSources
    | ReplaceOutdated
    | Allocated
    | Priced
    | Refused
    | Joined
    | TakenOver
    | Failed
    | Lost
    | Reclaimed
    | Emptied
    | DrainRefused
    | Terminated
    | Evict
    | Reconcile
)


# Effects.

type Departure = Literal["lost", "failed", "refused", "removed"]


@dataclass(frozen=True, slots=True)
class Launch(CausedEffect):
    """Launch these machines. Idempotent for each machine number."""

    group: str
    source: MachineSource
    machines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Install(CausedEffect):
    """Install the worker on an allocated machine, as the node of a rank."""

    machine: int
    rank: int


@dataclass(frozen=True, slots=True)
class Activate(CausedEffect):
    """Let the node of a rank take tasks: it joined, or its drain was cancelled."""

    machine: int
    rank: int
    group: str


@dataclass(frozen=True, slots=True)
class Drain(CausedEffect):
    """Drain the node of a rank: it takes no more tasks, and is removed once it is empty."""

    rank: int
    machine: int = 0


@dataclass(frozen=True, slots=True)
class NodeGone(CausedEffect):
    """Report that the node of a rank is gone.

    Attributes:
        again: True if another node takes its rank.
        machine: the machine that it had.
        departure: it died, did not start, could not be launched, or was removed.
        origin: number of the message for which it was removed.
    """

    rank: int
    reason: str
    again: bool
    machine: int = 0
    departure: Departure = "removed"
    origin: int = field(default=0, kw_only=True, compare=False)


@dataclass(frozen=True, slots=True)
class Terminate(CausedEffect):
    """Terminate a machine in any state; repeated until it is `Terminated`."""

    machine: int
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp(CausedEffect):
    """Report that the node of a rank cannot be launched. It is not retried until the pool is resized.

    Attributes:
        origin: number of the message for which it was to be launched.
    """

    group: str
    rank: int
    reason: str
    machine: int = 0
    origin: int = field(default=0, kw_only=True, compare=False)


type ReconcilerEffect = Launch | Install | Activate | Drain | NodeGone | Terminate | GiveUp
