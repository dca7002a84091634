"""Inputs (snapshot) and outputs (decision) of a policy, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from skyward.values.gangs import GangPlacement
from skyward.values.needs import NOTHING, Needs, Resources

__all__ = [
    "CONSOLIDATE_WITHIN",
    "DEFAULT_IDLE_TIMEOUT",
    "Counts",
    "Decision",
    "Demand",
    "GangDemand",
    "Group",
    "NodeLoad",
    "NodeStage",
    "NodeWork",
    "Policy",
    "RetainedNodes",
    "RunningTasks",
    "Snapshot",
    "TargetWait",
]

DEFAULT_IDLE_TIMEOUT = 60.0
"""Seconds that a node, or the pool, must be idle before it scales down, for policies without a time of their own."""

CONSOLIDATE_WITHIN = 600.0
"""Seconds within which cheaper nodes in place of others must have paid for the time in which both run."""

UNMEASURED_BOOT = 60.0
"""Seconds that a boot is taken to need until one was measured."""

type TargetWait = float | Literal["cheap", "balanced", "fast"]
"""Time that tasks may wait beyond the boot of a node: seconds, or a name whose meaning the policy decides."""

type NodeStage = Literal["booting", "active", "leaving"]


@dataclass(frozen=True, slots=True)
class Group:
    """Group of nodes that are equal for scaling.

    Attributes:
        name: its name.
        min, max: bounds of the number of nodes.
        slots: slots per node.
        resources: total resources of each node.
        capabilities: capabilities of each node.
        hourly_price: price of each node, USD per hour.
        idle_timeout: seconds without a task before a node may be removed; None for the pool's.
        can_launch: False while no more nodes of it can be launched (sold out, unaffordable, or they fail to start) but
            those of another group can; `max` is then the number of nodes that are there or come. It is about whether to
            launch here or elsewhere, so it stays True where there is nowhere else; `Snapshot.pauses` is about when.
    """

    name: str
    min: int = 0
    max: int = 1
    slots: int = 1
    resources: Resources = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()
    hourly_price: float = 0.0
    idle_timeout: float | None = None
    can_launch: bool = True

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
        unrequested: number of booting nodes whose machines are not requested yet; counted only while no source of the
            group may be asked.
        started: number of tasks that were ever sent to its nodes.
        shapes: number of those of its running tasks that take resources of their nodes, by shape.
    """

    active: int = 0
    booting: int = 0
    leaving: int = 0
    busy: int = 0
    desired: int = 0
    unrequested: int = 0
    started: int = 0
    shapes: Mapping[Needs, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """Load of one node at one moment.

    Attributes:
        rank: number of the node; 0 is the head.
        group: name of its group.
        stage: booting, active, or leaving.
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
class NodeWork:
    """Price of an active node, and the tasks that run on it, at one moment.

    Attributes:
        rank: number of the node; 0 is the head.
        group: name of its group.
        price: USD per hour.
        shapes: number of its tasks, by shape.
        ends_in: seconds until the last of its tasks is expected to end; None if the run time of one is unknown.
    """

    rank: int
    group: str
    price: float = 0.0
    shapes: Mapping[Needs, int] = field(default_factory=dict)
    ends_in: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Demand:
    """Waiting tasks of one shape and function; in `Snapshot.floor`, capacity to keep even if unused.

    Attributes:
        count: number of tasks.
        needs: what each of them takes of its node.
        seconds: mean run time of the function's tasks; None while none has ended.
        waited: seconds for which the oldest of them has waited.
        ran: seconds for which tasks of the function have been running; 0 if none runs.
    """

    count: int
    needs: Needs = NOTHING
    seconds: float | None = None
    waited: float = 0.0
    ran: float = 0.0


@dataclass(frozen=True, slots=True)
class RunningTasks:
    """Running tasks of one function.

    Attributes:
        count: number of tasks.
        seconds: mean run time of the function's tasks; None while none has ended.
        age: mean time for which they have been running, in seconds.
        spread: standard deviation of these times.
    """

    count: int
    seconds: float | None = None
    age: float = 0.0
    spread: float = 0.0


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
    """Nodes of a group that are not removed because they keep values.

    Attributes:
        nodes: number of them.
        why: the reason, for users.
    """

    nodes: int
    why: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a pool at one moment.

    Attributes:
        now: seconds of a monotonic clock.
        groups: groups in the order given; ties go to the first.
        counts: counts of every group, by name.
        demands: waiting tasks by shape and function, oldest shape first.
        pinned: number of tasks that wait for one certain node, which may be booting; they are not among the demands.
        running: running tasks by function.
        submitted: number of tasks that were ever submitted, without those that were cancelled before they started.
        gangs: waiting gangs, oldest first; their tasks are not in `demands`.
        floor: capacity requested with `request_resources`.
        idle_for: seconds since the pool last had a task; 0 while it has one.
        idle_timeout: seconds that a node, or the pool, must be idle before it scales down.
        max_nodes: maximum number of nodes over all groups; None for only the limits of the groups.
        idle_timeout_given: True if the user has chosen `idle_timeout`.
        target_wait: how long tasks may wait beyond a boot, as the user has chosen.
        waiting_cost: cost of an hour for which a task waits, USD; None if the user has not given one.
        consolidate_within: seconds within which cheaper nodes in place of others must have paid for the time in which
            both run; 0 for never.
        boot_seconds, task_seconds: recent means, None while unknown.
        boots: by group, recent mean of the time from the request of a machine to its first task; absent while unknown.
        pauses: by group, seconds until a source of it may be asked for machines; 0 or absent for now, infinity for
            never. Of every group, whether or not another can launch nodes in its place, as `Group.can_launch` says.
        prices: by group, USD per hour of a node that is launched now; absent for the group's `hourly_price`.
        retained: by group, nodes that keep values for later tasks.
        head: group of node 0, which stays as long as any other node; None if there is no such node.
        head_boots: group of node 0 while it boots, requested or not, or is to boot again; None otherwise. It is among
            the booting nodes of the group, but as long as any other node stays, fewer nodes are fewer of the others.
        collection_used: True if the client uses a collection, for which it needs a node, whether or not a task waits.
        nodes: every node, by rank. May be computed on demand: read it only if needed.
        idle: active nodes without a task, by rank; computed on demand as well.
        work: what each active node costs and runs, by rank; computed on demand as well.
    """

    now: float
    groups: tuple[Group, ...]
    counts: Mapping[str, Counts]
    demands: tuple[Demand, ...] = ()
    pinned: int = 0
    running: tuple[RunningTasks, ...] = ()
    submitted: int = 0
    gangs: tuple[GangDemand, ...] = ()
    floor: tuple[Demand, ...] = ()
    idle_for: float = 0.0
    idle_timeout: float = DEFAULT_IDLE_TIMEOUT
    idle_timeout_given: bool = False
    target_wait: TargetWait = "balanced"
    waiting_cost: float | None = None
    consolidate_within: float = CONSOLIDATE_WITHIN
    max_nodes: int | None = None
    boot_seconds: float | None = None
    task_seconds: float | None = None
    boots: Mapping[str, float] = field(default_factory=dict)
    pauses: Mapping[str, float] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    retained: Mapping[str, RetainedNodes] = field(default_factory=dict)
    head: str | None = None
    head_boots: str | None = None
    collection_used: bool = False
    nodes: Sequence[NodeLoad] = ()
    idle: Sequence[NodeLoad] = ()
    work: Sequence[NodeWork] = ()

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

    @property
    def usual_boot(self) -> float:
        """Seconds that a boot is expected to take, over all groups."""
        return UNMEASURED_BOOT if self.boot_seconds is None else self.boot_seconds

    def boot_of(self, group: Group) -> float:
        """Return the seconds that a boot of a node of the group is expected to take."""
        return self.boots.get(group.name, self.usual_boot)

    def price_of(self, group: Group) -> float:
        """Return the price of a node of the group that is launched now, USD per hour."""
        return self.prices.get(group.name, group.hourly_price)

    def given_idle_timeout(self, group: Group) -> float | None:
        """Return the idle timeout of the group in seconds, if the user has chosen one."""
        if group.idle_timeout is not None:
            return group.idle_timeout
        return self.idle_timeout if self.idle_timeout_given else None


@dataclass(frozen=True, slots=True)
class Decision:
    """Desired number of nodes, and the reason.

    Attributes:
        desired: number of nodes by group; an omitted group does not change.
        reason: reason for users, a sentence with its numbers and without its full stop: "12 tasks wait and all 2 slots
            are busy, so 6 more nodes are needed".
        victims: ranks to remove first; the rest is removed by highest rank.
        settled: True if a decision to scale down is based on an idle time: it applies once nothing has been added for
            the cooldown; others must also have been wanted for a cooldown in which nothing has changed.
        infeasible: waiting shapes that no group can hold.
        at_once: by group, how many nodes go without the cooldown: booting ones that are given up, and active ones whose
            replacements are active.
        look_in: seconds after which the policy is to be asked again, whatever happens; None for its interval.
    """

    desired: Mapping[str, int]
    reason: str
    victims: tuple[int, ...] = ()
    settled: bool = False
    infeasible: tuple[Needs, ...] = ()
    at_once: Mapping[str, int] = field(default_factory=dict)
    look_in: float | None = None


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
