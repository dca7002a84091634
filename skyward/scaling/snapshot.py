"""What a policy sees, and what it answers: values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from skyward.values.needs import NOTHING, Needs, Resources

__all__ = ["Counts", "Decision", "Demand", "Group", "NodeLoad", "Policy", "Snapshot", "Staying"]

type NodeStage = Literal["booting", "active", "leaving"]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are alike, as far as scaling cares.

    Attributes:
        min, max: how many of them there may be.
        slots: tasks that each runs at once.
        resources: what each has, in all.
        capabilities: what each can do.
        hourly_price: of each, USD.
        idle_timeout: seconds without a task before one may go; None for the pool's.
    """

    name: str
    min: int = 0
    max: int = 1
    slots: int = 1
    resources: Resources = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()
    hourly_price: float = 0.0
    idle_timeout: float | None = None

    def can_hold(self, needs: Needs) -> bool:
        """Whether an empty node of the group could take such a task."""
        return needs.fit(self.resources, self.capabilities)


@dataclass(frozen=True, slots=True)
class Counts:
    """One group at one moment.

    Attributes:
        active, booting, leaving: nodes that take tasks, that will, and that will not again.
        busy: tasks that run on its nodes.
        desired: nodes that were decided on last.
    """

    active: int = 0
    booting: int = 0
    leaving: int = 0
    busy: int = 0
    desired: int = 0


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One node at one moment.

    Attributes:
        rank: its number; 0 is the head.
        busy: tasks that it holds.
        free: what of its resources is left.
        idle_for: seconds since it last held a task; 0 while it holds one.
    """

    rank: int
    group: str
    stage: NodeStage
    busy: int = 0
    free: Resources = field(default_factory=dict)
    idle_for: float = 0.0


@dataclass(frozen=True, slots=True)
class Demand:
    """Waiting tasks of one shape; for `Snapshot.floor`, shapes that must fit whether they are used or not."""

    count: int
    needs: Needs = NOTHING


@dataclass(frozen=True, slots=True)
class Staying:
    """Nodes of a group that scaling down does not take, as they keep values: how many, and `why`, for people."""

    nodes: int
    why: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One pool at one moment.

    Attributes:
        now: seconds of a steady clock.
        groups: in the order they were given; ties go to the first.
        counts: of every group, by name.
        demands: the tasks that wait, by shape, oldest shape first.
        gangs: tasks that can only run together, each a list of shapes.
        floor: what `request_resources` asked for.
        idle_for: seconds since the pool last held a task; 0 while it does.
        idle_timeout: seconds that a node, or the pool, stays idle before it may shrink.
        max_nodes: the most nodes over all groups; None for no limit but theirs.
        boot_seconds, task_seconds: recent means, None while unknown.
        staying: of the groups that have such nodes, those that keep values for later tasks.
        nodes: every node, by rank. May be made on demand: do not look unless needed.
    """

    now: float
    groups: tuple[Group, ...]
    counts: Mapping[str, Counts]
    demands: tuple[Demand, ...] = ()
    gangs: tuple[tuple[Needs, ...], ...] = ()
    floor: tuple[Demand, ...] = ()
    idle_for: float = 0.0
    idle_timeout: float = 60.0
    max_nodes: int | None = None
    boot_seconds: float | None = None
    task_seconds: float | None = None
    staying: Mapping[str, Staying] = field(default_factory=dict)
    nodes: Sequence[NodeLoad] = ()

    @property
    def queued(self) -> int:
        """Tasks that wait."""
        return sum(demand.count for demand in self.demands)

    @property
    def inflight(self) -> int:
        """Tasks that run."""
        return sum(counts.busy for counts in self.counts.values())

    @property
    def capacity(self) -> int:
        """Slots of the active nodes."""
        return sum(self.counts[group.name].active * group.slots for group in self.groups)

    @property
    def desired(self) -> dict[str, int]:
        """Nodes decided on last, by group."""
        return {group.name: self.counts[group.name].desired for group in self.groups}


@dataclass(frozen=True, slots=True)
class Decision:
    """How many nodes there should be, and why.

    Attributes:
        desired: by group; a group that is left out stays as it is.
        reason: for people, with the numbers in it: "12 queued / 2 slots -> +6".
        victims: ranks that should go first if nodes must go; the rest goes by highest rank.
        settled: the decision to shrink rests on a time of observation already, so no more is waited for.
        infeasible: shapes that wait and that no group can ever hold.
    """

    desired: Mapping[str, int]
    reason: str
    victims: tuple[int, ...] = ()
    settled: bool = False
    infeasible: tuple[Needs, ...] = ()


class Policy(Protocol):
    """How many nodes there should be. Has no clock and does no I/O; it may keep what it saw."""

    @property
    def name(self) -> str:
        """What the decision log calls it."""

    @property
    def interval(self) -> float | None:
        """Seconds between looks while nothing happens; None for the pool's `autoscale_cooldown`."""

    def decide(self, snapshot: Snapshot) -> Decision:
        """The decision for `snapshot`. Bounds, cooldown and budget are applied to it afterwards."""
