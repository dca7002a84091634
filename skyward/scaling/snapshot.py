"""Inputs (snapshot) and outputs (decision) of a policy, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from skyward.values.gangs import GangPlacement
from skyward.values.needs import NOTHING, Needs, Resources

__all__ = ["Counts", "Decision", "Demand", "GangDemand", "Group", "NodeLoad", "Policy", "RetainedNodes", "Snapshot"]

type NodeStage = Literal["booting", "active", "leaving"]


@dataclass(frozen=True, slots=True)
class Group:
    """Group of nodes that are equal for scaling.

    Attributes:
        min, max: bounds of the number of nodes.
        slots: slots per node.
        resources: total resources of each node.
        capabilities: capabilities of each node.
        hourly_price: price of each node, USD per hour.
        idle_timeout: seconds without a task before a node may be removed; None for the pool's.
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
        """Return whether an empty node of the group could take such a task."""
        return needs.fit(self.resources, self.capabilities)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one group at one moment.

    Attributes:
        active, booting, leaving: numbers of nodes that take tasks, that will, and that no longer do.
        busy: number of tasks running on its nodes.
        desired: number of nodes of the last decision.
    """

    active: int = 0
    booting: int = 0
    leaving: int = 0
    busy: int = 0
    desired: int = 0


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """Load of one node at one moment.

    Attributes:
        rank: number of the node; 0 is the head.
        busy: number of its tasks.
        free: its free resources.
        idle_for: seconds since it last had a task; 0 while it has one.
    """

    rank: int
    group: str
    stage: NodeStage
    busy: int = 0
    free: Resources = field(default_factory=dict)
    idle_for: float = 0.0


@dataclass(frozen=True, slots=True)
class Demand:
    """Waiting tasks of one shape; in `Snapshot.floor`, capacity to keep even if unused."""

    count: int
    needs: Needs = NOTHING


@dataclass(frozen=True, slots=True)
class GangDemand:
    """Waiting tasks that start together or not at all.

    Attributes:
        needs: shape of each of them.
        placement: how they are spread over the nodes.
    """

    needs: tuple[Needs, ...]
    placement: GangPlacement = "pack"


@dataclass(frozen=True, slots=True)
class RetainedNodes:
    """Number of nodes of a group that are not removed because they keep values, and the reason for users."""

    nodes: int
    why: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a pool at one moment.

    Attributes:
        now: seconds of a monotonic clock.
        groups: groups in the order given; ties go to the first.
        counts: counts of every group, by name.
        demands: waiting tasks by shape, oldest shape first.
        gangs: waiting gangs, oldest first; their tasks are not in `demands`.
        floor: capacity requested with `request_resources`.
        idle_for: seconds since the pool last had a task; 0 while it has one.
        idle_timeout: seconds that a node, or the pool, must be idle before it scales down.
        max_nodes: maximum number of nodes over all groups; None for only the limits of the groups.
        boot_seconds, task_seconds: recent means, None while unknown.
        retained: by group, nodes that keep values for later tasks.
        nodes: every node, by rank. May be computed on demand: read it only if needed.
    """

    now: float
    groups: tuple[Group, ...]
    counts: Mapping[str, Counts]
    demands: tuple[Demand, ...] = ()
    gangs: tuple[GangDemand, ...] = ()
    floor: tuple[Demand, ...] = ()
    idle_for: float = 0.0
    idle_timeout: float = 60.0
    max_nodes: int | None = None
    boot_seconds: float | None = None
    task_seconds: float | None = None
    retained: Mapping[str, RetainedNodes] = field(default_factory=dict)
    nodes: Sequence[NodeLoad] = ()

    @property
    def queued(self) -> int:
        """Number of waiting tasks, without those of gangs."""
        return sum(demand.count for demand in self.demands)

    @property
    def has_waiting(self) -> bool:
        """True if a task or a gang waits."""
        return bool(self.gangs) or any(demand.count for demand in self.demands)

    @property
    def inflight(self) -> int:
        """Number of running tasks."""
        return sum(counts.busy for counts in self.counts.values())

    @property
    def capacity(self) -> int:
        """Number of slots of the active nodes."""
        return sum(self.counts[group.name].active * group.slots for group in self.groups)

    @property
    def desired(self) -> dict[str, int]:
        """Number of nodes of the last decision, by group."""
        return {group.name: self.counts[group.name].desired for group in self.groups}


@dataclass(frozen=True, slots=True)
class Decision:
    """Desired number of nodes, and the reason.

    Attributes:
        desired: number of nodes by group; an omitted group does not change.
        reason: reason for users, with the numbers: "12 queued / 2 slots -> +6".
        victims: ranks to remove first; the rest is removed by highest rank.
        settled: True if a decision to scale down is based on an idle time: it applies once the cooldown of the last
            change is over; others must also have been wanted for a cooldown.
        infeasible: waiting shapes that no group can hold.
    """

    desired: Mapping[str, int]
    reason: str
    victims: tuple[int, ...] = ()
    settled: bool = False
    infeasible: tuple[Needs, ...] = ()


class Policy(Protocol):
    """Scaling policy, for `policy=` of a pool. Has no clock and does no I/O; may have state.

    Example:
        class OneNodePerTask:
            name = "one-node-per-task"
            interval = None

            def decide(self, snapshot: sky.scaling.Snapshot) -> sky.scaling.Decision:
                nodes = snapshot.queued + snapshot.inflight
                return sky.scaling.Decision({"default": nodes}, f"{nodes} tasks")

        with sky.Compute(nodes=(1, 4), policy=OneNodePerTask()) as small:
            train(10) >> small
    """

    @property
    def name(self) -> str:
        """Name in the decision log."""

    @property
    def interval(self) -> float | None:
        """Seconds between decisions while nothing happens; None for the pool's `autoscale_cooldown`."""

    def decide(self, snapshot: Snapshot) -> Decision:
        """Return the decision for `snapshot`. Bounds, cooldown and budget are applied to it afterwards."""
