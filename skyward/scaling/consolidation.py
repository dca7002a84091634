"""Consolidation: the cheaper nodes that could take the place of dear ones, and whether that pays.

The dear nodes cost what they cost until their tasks have ended. Until then, the cheaper ones cost in addition: while
they boot, and while these tasks run. After that each hour costs less. It is done if the difference has paid for the
additional costs within `Snapshot.consolidate_within`, and if the work is expected to last for as long: waiting tasks
for their run time, and a stream of tasks for as long again as it has lasted.

Decides only, about one snapshot and the history of what was needed; `skyward.scaling.replacing` carries it out.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import cycle, islice
from math import ceil

from skyward.formatting import count_text, money_text
from skyward.scaling.need_history import NeedHistory
from skyward.scaling.snapshot import Group, NodeWork, Snapshot
from skyward.scaling.snapshot.fitting import at_once
from skyward.scaling.snapshot.gang_placement import Seats, place_gang
from skyward.scaling.snapshot.work import rough_text
from skyward.values.needs import Needs

__all__ = ["Replacement", "find_replacement"]

MOST_TASKS = 256
"""Tasks for which nodes are replaced at a time."""

MOST_PRICES = 16
"""Prices of nodes that are looked at, those by which the most is spent: each node of a spot market may have its own."""

STREAM = 0.5
"""Part of the tasks at once that new tasks must explain for these to be a stream, which is expected to go on."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """Nodes that can leave once cheaper ones are there.

    Attributes:
        group: group of the nodes that leave.
        victims: their ranks, the first to go first.
        price: USD per hour of each.
        launch: by group, the nodes that are launched for them; empty if those that are there have room.
        costs: USD per hour of each of these, by group.
        lasts: seconds for which the work is expected to last.
        waits: True if that is known from waiting tasks.
        overlap: seconds for which both run.
        payback: seconds within which the difference pays for that, after it.
        saving: USD per hour that are saved, without nodes that would idle and go anyway.
    """

    group: str
    victims: tuple[int, ...]
    price: float
    launch: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    lasts: float = 0.0
    waits: bool = False
    overlap: float = 0.0
    payback: float = 0.0
    saving: float = 0.0

    @property
    def dear_text(self) -> str:
        """The nodes that leave, with their price."""
        return f"{count_text(len(self.victims))} of {self.group!r} at {money_text(self.price)} per hour"

    @property
    def cheap_text(self) -> str:
        """The nodes that are launched, with their prices."""
        return " and ".join(
            f"{number} of {name!r} at {money_text(self.costs[name])}" for name, number in self.launch.items()
        )

    @property
    def reason(self) -> str:
        """Reason of the decision: why the change pays."""
        if self.waits:
            work = f"{rough_text(self.lasts)} of work remain"
        else:
            work = f"{'its' if len(self.victims) == 1 else 'their'} tasks have kept coming for {rough_text(self.lasts)}"
        if not self.launch:
            verb = "is" if len(self.victims) == 1 else "are"
            return f"{self.dear_text} {verb} not needed: {work}, and cheaper nodes have room for them"
        return (
            f"{self.dear_text} can be replaced by {self.cheap_text}: {work}, and the change pays back in "
            f"{rough_text(self.overlap + self.payback)}, for the first {rough_text(self.overlap)} of which both run"
        )


def find_replacement(
    snapshot: Snapshot,
    history: NeedHistory,
    resting: Collection[str] = (),
    failed: Collection[str] = (),
    settled: Collection[str] | None = None,
) -> Replacement | None:
    """Return the replacement that saves most per hour of those that pay; None if none does.

    Args:
        resting: groups whose nodes are not replaced.
        failed: groups of which the last replacement has failed: one node is tried first.
        settled: groups whose number of nodes does not change now, None for all: no others take part.
    """
    if not snapshot.consolidate_within or snapshot.gangs or snapshot.pinned or snapshot.floor:
        return None
    groups = [group for group in snapshot.groups if settled is None or group.name in settled]
    groups = [group for group in groups if not snapshot.counts[group.name].booting]
    offers = [offer for group in groups if (offer := _offer(group, snapshot)) is not None]
    alike: dict[tuple[str, float], list[NodeWork]] = {}
    for node in snapshot.work:
        if node.rank and node.price > 0 and node.ends_in is not None and node.ends_in <= snapshot.consolidate_within:
            alike.setdefault((node.group, node.price), []).append(node)
    able = {group.name: group for group in groups if group.name not in resting and group.name not in snapshot.retained}
    spent = {(name, price): price * len(nodes) for (name, price), nodes in alike.items() if name in able}
    found: list[Replacement] = []
    for name, price in nlargest(MOST_PRICES, spent, key=spent.__getitem__):
        nodes = alike[name, price]
        sizes = range(1, len(nodes) + 1) if name in failed else _halved(len(nodes))
        found += _of_nodes(able[name], price, nodes, sizes, offers, snapshot, history)
    return max(found, key=lambda each: each.saving, default=None)


@dataclass(frozen=True, slots=True)
class _Offer:
    """A group of which nodes can be launched now: their price, and how many."""

    group: Group
    price: float
    room: int


def _offer(group: Group, snapshot: Snapshot) -> _Offer | None:
    """Return what can be launched of a group now; None for nothing, or if its price is unknown."""
    counts, price = snapshot.counts[group.name], snapshot.price_of(group)
    room = group.max - counts.active - counts.booting
    if snapshot.max_nodes is not None:
        total = sum(each.active + each.booting for each in snapshot.counts.values())
        room = min(room, snapshot.max_nodes - total)
    if room <= 0 or price <= 0 or not group.can_launch or snapshot.pauses.get(group.name, 0.0) > 0:
        return None
    return _Offer(group, price, room)


def _halved(number: int) -> Iterable[int]:
    """Yield a number, its half, and so on down to 1."""
    while number:
        yield number
        number //= 2


def _of_nodes(
    group: Group,
    price: float,
    nodes: Sequence[NodeWork],
    sizes: Iterable[int],
    offers: Sequence[_Offer],
    snapshot: Snapshot,
    history: NeedHistory,
) -> Iterable[Replacement]:
    """Yield the first replacement that pays of so many of these nodes, which are alike."""
    order = sorted(nodes, key=lambda node: (node.ends_in, -node.rank))
    for number in sizes:
        found = _of_these(group, price, order[:number], offers, snapshot, history)
        if found is not None:
            yield found
            return


def _of_these(
    group: Group,
    price: float,
    victims: Sequence[NodeWork],
    offers: Sequence[_Offer],
    snapshot: Snapshot,
    history: NeedHistory,
) -> Replacement | None:
    """Return the cheapest replacement of exactly these nodes; None if there is none that pays."""
    counts = snapshot.counts[group.name]
    shapes = history.shapes(group, snapshot)
    per_node = max(1, min(at_once(group, needs) or group.slots for needs in shapes))
    stay = (counts.active - len(victims)) * per_node
    used = min(counts.active * max(1, group.slots), history.peak(group.name, snapshot)) - stay
    if used <= 0:
        return None  # the tasks fit on the other nodes of the group, and these will idle
    tasks = _tasks(victims, used, shapes)
    if len(tasks) > MOST_TASKS:
        return None
    others = [each for each in offers if each.group.name != group.name or each.price < price]
    placed = _place(tasks, price / max(1, group.slots), group.name, others, snapshot, history)
    if placed is None:
        return None
    launch, costs = placed
    if counts.active - len(victims) + launch.get(group.name, 0) < group.min:
        return None
    work, waits = _lasts(group, stay + ceil(used / 2), snapshot, history)
    per_hour = sum(number * costs[name] for name, number in launch.items())
    saving = ceil(used / per_node) * price - per_hour
    if saving <= 0:
        return None
    both = max((snapshot.boot_of(each) for each in snapshot.groups if each.name in launch), default=0.0)
    both += sum(node.ends_in or 0.0 for node in victims) / len(victims)
    payback = per_hour * both / saving
    least = both + payback if launch else max(both, snapshot.boot_of(group))
    if payback > snapshot.consolidate_within or work < least:
        return None
    ranks = tuple(node.rank for node in victims)
    return Replacement(group.name, ranks, price, launch, costs, work, waits, both, payback, saving)


def _tasks(victims: Sequence[NodeWork], used: int, shapes: Sequence[Needs]) -> list[Needs]:
    """Return the shapes of the tasks that others must be able to run at once in place of these nodes."""
    running = [needs for node in victims for needs, number in node.shapes.items() for _ in range(number)]
    missing = [needs for needs in shapes if needs not in running]
    tasks = [*running, *missing]
    return [*tasks, *islice(cycle(tasks), max(0, used - len(tasks)))]


def _place(
    tasks: Sequence[Needs],
    price_per_slot: float,
    leaving: str,
    offers: Sequence[_Offer],
    snapshot: Snapshot,
    history: NeedHistory,
) -> tuple[dict[str, int], dict[str, float]] | None:
    """Return the cheapest nodes to launch for these tasks, with their prices, by group; None if no group has them."""
    free = _free_seats(price_per_slot, leaving, snapshot, history)
    if free and place_gang(free, tasks, "pack") is not None:
        return {}, {}
    best: tuple[float, str, int, float] | None = None
    for offer in offers:
        empty = Seats(max(1, offer.group.slots), offer.group.resources, offer.group.capabilities)
        most, least = min(offer.room, len(tasks)), 0
        if place_gang([*free, *[empty] * most], tasks, "pack") is None:
            continue
        while most - least > 1:
            half = (least + most) // 2
            if place_gang([*free, *[empty] * half], tasks, "pack") is None:
                least = half
            else:
                most = half
        if best is None or most * offer.price < best[0]:
            best = most * offer.price, offer.group.name, most, offer.price
    return None if best is None else ({best[1]: best[2]}, {best[1]: best[3]})


def _free_seats(price_per_slot: float, leaving: str, snapshot: Snapshot, history: NeedHistory) -> list[Seats]:
    """Return the room on nodes that stay: the head's, and that of cheaper nodes beyond what was lately used there."""
    groups = {group.name: group for group in snapshot.groups}
    prices = {node.rank: node.price for node in snapshot.work}
    spare = {
        name: snapshot.counts[name].active * max(1, group.slots) - history.peak(name, snapshot)
        for name, group in groups.items()
    }
    if not any(room > 0 for name, room in spare.items() if name != leaving):
        return []
    seats: list[Seats] = []
    for node in snapshot.nodes:
        if node.stage != "active" or node.group == leaving or node.rank not in prices:
            continue
        group = groups[node.group]
        slots = max(1, group.slots)
        room = min(slots - node.busy, spare[node.group])
        if room > 0 and (not node.rank or prices[node.rank] / slots < price_per_slot):
            spare[node.group] -= room
            seats.append(Seats(room, node.free, group.capabilities))
    return seats


def _lasts(group: Group, level: int, snapshot: Snapshot, history: NeedHistory) -> tuple[float, bool]:
    """Return the seconds for which the work is expected to last, and whether that follows from waiting tasks.

    Args:
        level: number of tasks at once for which the nodes are needed.
    """
    able = [each for each in snapshot.demands if each.count and at_once(group, each.needs)]
    nodes = {name: counts.active + counts.booting for name, counts in snapshot.counts.items()}
    waiting = 0.0
    for demand in able:
        slots = sum(nodes[each.name] * at_once(each, demand.needs) for each in snapshot.groups)
        waiting += demand.count * (demand.seconds or 0.0) / max(1, slots)
    lasted = history.lasted(group.name, level, snapshot.now)
    if lasted <= waiting or lasted <= 0:
        return waiting, True
    mean = _mean_seconds(snapshot)
    goes_on = mean is not None and history.rate(group.name, lasted / 2, snapshot) * mean >= STREAM * level
    return (lasted, False) if goes_on else (waiting, True)


def _mean_seconds(snapshot: Snapshot) -> float | None:
    """Return the mean run time of the running tasks; None if none of their functions has ended."""
    known = [each for each in snapshot.running if each.seconds is not None]
    if not known:
        return snapshot.task_seconds
    return sum(each.count * (each.seconds or 0.0) for each in known) / sum(each.count for each in known)
