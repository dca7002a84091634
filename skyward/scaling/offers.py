"""Offers of the groups of a pool to waiting tasks, in numbers of nodes, while a decision is made: arithmetic only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from skyward.scaling.snapshot import Demand, Group, Snapshot
from skyward.scaling.snapshot.fitting import at_once
from skyward.scaling.snapshot.gang_placement import GangPlan
from skyward.scaling.snapshot.work import ended_share, starts_of_busy, starts_of_free
from skyward.values.needs import Needs

__all__ = ["SLACK", "GroupOffer", "WaitingWork", "buy", "offer_of", "reserve", "use_existing", "waiting_tasks"]

CHEAP_WAIT = 900.0
"""Seconds that tasks may wait beyond a boot, for the target "cheap"."""

SLACK = 0.5
"""Tasks for which no node is launched: estimates are not that exact."""


@dataclass(slots=True)
class GroupOffer:
    """A group during one decision.

    Attributes:
        boot: seconds from a request to the first task.
        pause: seconds until a source may be asked.
        price: USD per hour of a new node.
        wait: seconds that tasks may wait beyond a boot.
        active: number of its active nodes.
        free, busy: parts of their slots without and with tasks, in nodes.
        running, planned: tasks that take resources of these nodes, by shape: those that run, and those that are to.
        booting: booting nodes that waiting tasks may use.
        coming: all booting nodes, without those that cannot be requested for longer than tasks are to wait.
        room: nodes that may be launched.
        new: nodes to launch.
        for_gangs: those of them that waiting gangs lack.
        kept: booting nodes that waiting tasks use.
        ended: parts of the active nodes that waiting tasks use as others end.
        held: booting nodes that are to replace dearer ones.
        head: 1 if node 0 is among the booting nodes, requested or not; it goes only with all others.
    """

    group: Group
    boot: float
    pause: float
    price: float
    wait: float
    active: int
    free: float
    busy: float
    booting: float
    coming: int
    room: int
    new: int = 0
    for_gangs: int = 0
    kept: float = 0.0
    held: int = 0
    head: int = 0
    running: Mapping[Needs, int] = field(default_factory=dict)
    planned: dict[Needs, float] = field(default_factory=dict)
    ended: float = 0.0

    @property
    def window(self) -> float:
        """Seconds within which waiting tasks are to start."""
        return self.boot + self.wait

    @property
    def is_sold_out(self) -> bool:
        """True if no node can be requested before the tasks are to start."""
        return self.pause > self.wait

    def free_for(self, needs: Needs) -> float:
        """Return the part of its active nodes that is free for tasks of a shape, in nodes."""
        if not needs.resources:
            return self.free
        taken = self._taken_from(needs, self.running) + self._taken_from(needs, self.planned)
        return max(0.0, min(self.free, self.active - taken))

    def busy_for(self, needs: Needs) -> float:
        """Return the part of its active nodes that becomes free for tasks of a shape as others end, in nodes."""
        if not needs.resources:
            return self.busy
        return max(0.0, self.busy, min(self.active, self._taken_from(needs, self.running)) - self.ended)

    def use_free(self, needs: Needs, nodes: float) -> None:
        """Use a free part of the active nodes for tasks of a shape."""
        self.free -= nodes
        if needs.resources:
            self.planned[needs] = self.planned.get(needs, 0.0) + nodes * at_once(self.group, needs)

    def use_busy(self, nodes: float) -> None:
        """Use a part of the active nodes that becomes free."""
        self.busy -= nodes
        self.ended += nodes

    def _taken_from(self, needs: Needs, tasks: Mapping[Needs, float]) -> float:
        """Return the part of the active nodes that tasks keep from those of a shape, in nodes."""
        return sum(number * self._share(needs, other) for other, number in tasks.items())

    def _share(self, needs: Needs, other: Needs) -> float:
        """Return the part of a node that a task of another shape keeps from those of a shape."""
        if other == needs:
            return 1 / (at_once(self.group, needs) or 1)
        total = self.group.resources
        shared = [
            amount / total[name]
            for name, amount in other.resources.items()
            if total.get(name) and name in needs.resources
        ]
        return min(1.0, max(shared, default=0.0))


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """Waiting tasks of one shape and function, with the run time that is assumed.

    Attributes:
        known: True if `seconds` is a measured mean, or derived from how long they have been running.
    """

    demand: Demand
    seconds: float
    known: bool

    def at_once(self, offer: GroupOffer) -> int:
        """Return how many of the tasks a node of a group runs at once."""
        return at_once(offer.group, self.demand.needs)

    def started(self, offer: GroupOffer, within: float) -> float:
        """Return how many of the tasks a node of a group without other tasks starts within some seconds."""
        return self.at_once(offer) * starts_of_free(within, self.seconds)


def offer_of(group: Group, snapshot: Snapshot) -> GroupOffer:
    counts = snapshot.counts[group.name]
    slots = max(1, group.slots)
    pause = snapshot.pauses.get(group.name, 0.0)
    boot = snapshot.boot_of(group)
    match snapshot.target_wait:
        case "cheap":
            wait = CHEAP_WAIT
        case "balanced":
            wait = boot
        case "fast":
            wait = 0.0
        case seconds:
            wait = float(seconds)
    coming = counts.booting - (counts.unrequested if pause > wait else 0)
    return GroupOffer(
        group,
        boot,
        pause,
        snapshot.price_of(group),
        wait,
        counts.active,
        free=max(0, counts.active * slots - counts.busy) / slots,
        busy=min(counts.busy, counts.active * slots) / slots,
        booting=coming,
        coming=coming,
        room=0 if pause == inf else max(0, group.max - counts.active - coming),
        running=counts.shapes,
        head=int(snapshot.head_boots == group.name and counts.booting > 0),
    )


def reserve(offers: dict[str, GroupOffer], gangs: GangPlan) -> None:
    """Launch what the waiting gangs lack, and leave the tasks what gangs will not use."""
    for name, offer in offers.items():
        launched = gangs.launch.get(name, 0)
        offer.new = offer.for_gangs = launched
        offer.room = max(0, offer.room - launched)
        if (use := gangs.uses.get(name)) is not None:
            offer.free = max(0.0, offer.free - use.free / max(1, offer.group.slots))
            offer.planned.update(use.shapes)
            offer.booting = max(0.0, offer.booting + launched - use.starting)
            offer.kept = float(use.starting_nodes)


def waiting_tasks(snapshot: Snapshot) -> list[WaitingWork]:
    """Return the waiting tasks, those that fit the fewest groups first."""
    found: list[WaitingWork] = []
    boot = snapshot.usual_boot
    for demand in snapshot.demands:
        if not demand.count:
            continue
        if demand.seconds is not None:
            found.append(WaitingWork(demand, max(demand.seconds, 1e-6), True))
        elif demand.ran >= boot:
            found.append(WaitingWork(demand, 2 * demand.ran, True))  # halfway through, as far as is known
        else:
            found.append(WaitingWork(demand, boot, False))
    if len(snapshot.groups) > 1:
        found.sort(key=lambda each: sum(at_once(group, each.demand.needs) > 0 for group in snapshot.groups))
    return found


def use_existing(each: WaitingWork, able: Iterable[GroupOffer], snapshot: Snapshot) -> float:
    """Use the nodes that exist for waiting tasks: free slots first, then booting nodes, then busy slots.

    Returns:
        The number of tasks that they do not start in time.
    """
    left, needs = float(each.demand.count), each.demand.needs
    able = list(able)
    is_helped = any(offer.coming for offer in able)
    # shorter tasks get a slot before a node has booted; longer ones have shown that the free slots do not fit them
    may_be_late = bool(able) and each.seconds >= min(offer.boot for offer in able)
    is_overdue = bool(able) and each.demand.waited > max(offer.window for offer in able)
    is_late = may_be_late and is_overdue
    for offer in able:
        starts = each.started(offer, offer.window)
        used = 0.0 if is_late else min(offer.free_for(needs), left / starts)
        offer.use_free(needs, used)
        left -= used * starts
    for offer in able:
        starts = each.started(offer, offer.wait)
        used = min(offer.booting, left / starts)
        offer.booting -= used
        offer.kept += min(used, left / each.at_once(offer))
        left -= used * starts
    busy = 0.0
    ended = sum(
        offer.busy_for(needs) * each.at_once(offer) * ended_share(snapshot.running, offer.window) for offer in able
    )
    for offer in able if ended >= 1 - 1e-9 else ():  # less than one slot that becomes free is not counted on
        starts = each.at_once(offer) * starts_of_busy(snapshot.running, offer.window, each.seconds)
        if starts <= 0:
            continue
        used = min(offer.busy_for(needs), left / starts)
        offer.use_busy(used)
        left -= used * starts
        busy += used * starts
    if is_overdue and not is_helped and left <= SLACK and busy > 0:
        left = min(1.0, busy)  # what they wait for did not come: the estimate was wrong
    return max(0.0, left)


def buy(each: WaitingWork, left: float, able: Sequence[GroupOffer], most: float) -> dict[str, int]:
    """Return the nodes to launch for `left` tasks, by group: where a task costs least, then where it costs next."""
    bought: dict[str, int] = {}
    while left > SLACK and most > 0:
        best, best_key = None, (True, inf, 0)
        for order, offer in enumerate(able):
            if offer.room - bought.get(offer.group.name, 0) <= 0:
                continue
            served = min(left, each.started(offer, offer.wait))
            busy = offer.boot + each.seconds * max(1.0, served / each.at_once(offer))
            key = (offer.is_sold_out, offer.price * busy / served, order)
            if best is None or key < best_key:
                best, best_key = offer, key
        if best is None:
            break
        name = best.group.name
        tasks = each.started(best, best.wait)
        whole = max(1, int(left / tasks + 1e-9))
        nodes = int(min(whole, best.room - bought.get(name, 0), most))
        if nodes <= 0:
            break
        bought[name] = bought.get(name, 0) + nodes
        left -= nodes * tasks
        most -= nodes
    return bought
