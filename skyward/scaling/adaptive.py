"""Default policy: as many nodes as waiting tasks are worth, from measured run times, boot times and prices.

Waiting tasks are to start within the time that a node takes to boot, plus the target. The nodes that exist, and those
that boot, do what they can by then; nodes are launched for the rest, of the groups where a task costs least. Nothing is
launched for tasks that are done sooner without it. While the run time of a function is unknown, nodes are added one at
a time, twice as many after each boot; once its tasks have run for as long as a boot takes, each is worth a node.

A node that idles is kept for as long as a boot takes, which is what it costs to have it back, until it is known how
long the gaps in its use are (`skyward.scaling.gaps`). Of nodes with several slots, one goes, too, without which there
is room for the load (`skyward.scaling.surplus`).

Waiting gangs come first: the nodes that they lack are launched whatever these cost in time, and no other task counts on
the slots that they will use, nor is a node removed of a group that they use.

Dear nodes whose work is expected to last are replaced by cheaper ones: see `skyward.scaling.consolidation`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, inf
from statistics import fmean

from skyward.formatting import count_text, joined
from skyward.scaling.gaps import Gaps, bucket_of
from skyward.scaling.replacing import Consolidation
from skyward.scaling.snapshot import Decision, Demand, Group, NodeLoad, Snapshot
from skyward.scaling.snapshot.fitting import at_once, never
from skyward.scaling.snapshot.gang_placement import GangPlan, gang_nodes
from skyward.scaling.snapshot.gang_text import gangs_wait
from skyward.scaling.snapshot.wording import idle_text, more_text, of_group
from skyward.scaling.snapshot.work import ended_share, rough_text, starts_of_busy, starts_of_free
from skyward.scaling.surplus import Surplus
from skyward.values.needs import Needs

__all__ = ["Adaptive"]

BOOT = 60.0
"""Seconds that a boot is taken to need until one was measured."""

CHEAP_WAIT = 900.0
"""Seconds that tasks may wait beyond a boot, for the target "cheap"."""

UNPRICED_KEEP = 60.0
"""Seconds that an idle node is kept that costs nothing."""

LEAST_KEEP = 3.0
"""Seconds that an idle node is kept at least."""

PATIENCE = 3.0
"""Times that an idle node is kept within which new tasks must be expected to use a booting node, or it is cancelled."""

MEMORIES = (2.5, 10.0)
"""Boot times over which arrivals of tasks are averaged; the lower average counts, so that a burst is soon forgotten."""

SLACK = 0.5
"""Part of a node that is not launched for: estimates are not that exact."""


@dataclass(slots=True)
class _Offer:
    """A group during one decision.

    Attributes:
        boot: seconds from a request to the first task.
        pause: seconds until a source may be asked.
        price: USD per hour of a new node.
        wait: seconds that tasks may wait beyond a boot.
        free, busy: parts of its active nodes without and with tasks, in nodes.
        booting: booting nodes that waiting tasks may use.
        coming: all booting nodes, without those that cannot be requested for longer than tasks are to wait.
        room: nodes that may be launched.
        new: nodes to launch.
        for_gangs: those of them that waiting gangs lack.
        kept: booting nodes that waiting tasks use.
        held: booting nodes that are to replace dearer ones.
    """

    group: Group
    boot: float
    pause: float
    price: float
    wait: float
    free: float
    busy: float
    booting: float
    coming: int
    room: int
    new: int = 0
    for_gangs: int = 0
    kept: float = 0.0
    held: int = 0

    @property
    def window(self) -> float:
        """Seconds within which waiting tasks are to start."""
        return self.boot + self.wait

    @property
    def is_sold_out(self) -> bool:
        """True if no node can be requested before the tasks are to start."""
        return self.pause > self.wait


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Waiting tasks of one shape and function, with the run time that is assumed.

    Attributes:
        known: True if `seconds` is a measured mean, or derived from how long they have been running.
    """

    demand: Demand
    seconds: float
    known: bool

    def at_once(self, offer: _Offer) -> int:
        """Return how many of the tasks a node of a group runs at once."""
        return at_once(offer.group, self.demand.needs)

    def started(self, offer: _Offer, within: float) -> float:
        """Return how many of the tasks a node of a group without other tasks starts within some seconds."""
        return self.at_once(offer) * starts_of_free(within, self.seconds)


@dataclass(slots=True)
class _Result:
    """Result of assigning the waiting tasks to nodes.

    Attributes:
        short: by shape, tasks that no node starts in time and for which none may be launched.
        look_in: seconds after which more is known about tasks of unknown run time.
    """

    short: dict[Needs, int] = field(default_factory=dict)
    look_in: float = inf


@dataclass(slots=True)
class Adaptive:
    """Scales by the work that waits, the time that a node takes to boot, and the price of each task.

    Attributes:
        packs: new tasks go to the fullest nodes, so that others idle and go.
    """

    name: str = "adaptive"
    interval: float | None = None
    packs: bool = field(default=True, init=False, repr=False)
    _looked_at: float | None = field(default=None, init=False, repr=False)
    _submitted: int = field(default=0, init=False, repr=False)
    _rates: tuple[float, ...] = field(default=(0.0,) * len(MEMORIES), init=False, repr=False)
    _probing_since: float | None = field(default=None, init=False, repr=False)
    _scan_at: float = field(default=0.0, init=False, repr=False)
    _surplus: Surplus = field(default_factory=Surplus, init=False, repr=False)
    _gaps: dict[str, Gaps] = field(default_factory=dict, init=False, repr=False)
    _consolidation: Consolidation = field(default_factory=Consolidation, init=False, repr=False)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Return the decision for `snapshot`, within the bounds of every group and of `max_nodes`."""
        looked_at = snapshot.now if self._looked_at is None else self._looked_at
        self._observe(snapshot)
        gangs = gang_nodes(snapshot)
        offers = {group.name: _offer(group, snapshot) for group in snapshot.groups}
        _reserve(offers, gangs)
        self._consolidation.observe(snapshot)
        _hold(offers, self._consolidation, snapshot)
        waiting = _waiting(snapshot)
        result = self._serve(waiting, offers, snapshot)
        self._observe_load(offers, snapshot, looked_at)
        has_tasks = bool(snapshot.has_waiting or snapshot.inflight or snapshot.pinned)
        is_over = not has_tasks and not any(counts.active + counts.booting for counts in snapshot.counts.values())
        is_empty = not any(counts.active for counts in snapshot.counts.values())
        desired: dict[str, int] = {}
        cancelled: dict[str, int] = {}
        for name, offer in offers.items():
            counts, group = snapshot.counts[name], offer.group
            unneeded = 0 if offer.new or snapshot.pinned else self._unneeded(offer, snapshot)
            if is_empty and unneeded:  # something woke the pool, which may be no task
                unneeded = min(unneeded, offer.coming - 1)
            count = counts.active + offer.coming + offer.new - unneeded
            if counts.desired > counts.active + counts.booting and not is_over:  # nodes that were given up, as the head
                count = max(count, counts.desired - unneeded)
            count = max(count, gangs.least(name))
            desired[name] = max(group.min, min(group.max, count))
            if count < counts.active + counts.booting:
                cancelled[name] = counts.active + counts.booting - max(group.min, count)
        victims, why_removed = self._idle(snapshot, offers, result, gangs)
        for node in victims:
            desired[node.group] = max(offers[node.group].group.min, desired[node.group] - 1)
        if not victims and (surplus := self._surplus_node(snapshot, offers, gangs, desired)) is not None:
            victims, why_removed = [surplus], _surplus_text(surplus, offers[surplus.group])
            desired[surplus.group] -= 1
        if any(not node.rank for node in victims):  # the head goes with all others
            desired = {name: offer.group.min for name, offer in offers.items()}
        if snapshot.max_nodes is not None:
            _cap(desired, snapshot)
        ranks = tuple(node.rank for node in victims if node.rank or len(victims) == 1)
        change = self._consolidation.change(snapshot, desired, ranks)
        look_in = self._look_in(snapshot, offers, result, gangs, bool(victims))
        if change.look_in < inf:
            look_in = min(change.look_in, inf if look_in is None else look_in)
        texts = "; ".join(filter(None, (why_removed, change.reason)))
        return Decision(
            change.desired,
            _reason(snapshot, waiting, offers, result, change.desired, cancelled, texts),
            victims=change.victims,
            settled=True,
            infeasible=never(snapshot),
            cancelled=cancelled,
            replaced=change.replaced,
            look_in=look_in,
        )

    def _observe(self, snapshot: Snapshot) -> None:
        """Update the rates at which tasks arrive, in tasks per second."""
        if self._looked_at is not None:
            arrived = max(0, snapshot.submitted - self._submitted)
            passed = max(0.0, snapshot.now - self._looked_at)
            memories = [boots * max(10.0, snapshot.boot_seconds or BOOT) for boots in MEMORIES]
            self._rates = tuple(
                rate * exp(-passed / memory) + arrived / memory
                for rate, memory in zip(self._rates, memories, strict=True)
            )
        self._looked_at, self._submitted = snapshot.now, snapshot.submitted

    def _observe_load(self, offers: dict[str, _Offer], snapshot: Snapshot, looked_at: float) -> None:
        """Record the load of each group: the running tasks, and the slots that boot for waiting ones.

        A load fell when nodes began to idle, or halfway since the last look, if none did.
        """
        for name, offer in offers.items():
            load = snapshot.counts[name].busy + (ceil(offer.kept - 1e-9) + offer.new) * offer.group.slots
            gaps, fell_at = self._gaps.setdefault(name, Gaps()), None
            if load < gaps.load:
                passed = snapshot.now - looked_at
                idle = [node.idle_for for node in snapshot.idle if node.group == name and node.idle_for <= passed]
                fell_at = snapshot.now - (fmean(idle) if idle else passed / 2)
            gaps.observe(load, snapshot.now, fell_at)

    # Tasks that wait.

    def _serve(self, waiting: Sequence[_Waiting], offers: dict[str, _Offer], snapshot: Snapshot) -> _Result:
        """Assign the waiting tasks to nodes that exist, and launch nodes for the rest."""
        result = _Result()
        most = inf if snapshot.max_nodes is None else float(snapshot.max_nodes)
        total = sum(counts.active + counts.booting for counts in snapshot.counts.values())
        total += sum(offer.for_gangs for offer in offers.values())
        unknown = [each for each in waiting if not each.known]
        if not unknown:
            self._probing_since = None
        elif self._probing_since is None:
            self._probing_since = snapshot.now
        allowance = self._allowance(unknown, offers, snapshot, result)
        for each in waiting:
            able = [offer for offer in offers.values() if each.at_once(offer)]
            able.sort(key=lambda offer: offer.price)
            left = _use_existing(each, able, snapshot)
            if left <= SLACK:
                continue
            limit = allowance if not each.known else inf
            bought = _buy(each, left, able, min(limit, most - total))
            total += sum(bought.values())
            for name, nodes in bought.items():
                offers[name].new += nodes
                offers[name].room -= nodes
                if not each.known:
                    allowance -= nodes
            served = sum(nodes * each.started(offers[name], offers[name].wait) for name, nodes in bought.items())
            if left - served > SLACK and (each.known or not bought):
                result.short[each.demand.needs] = result.short.get(each.demand.needs, 0) + ceil(left - served)
        return result

    def _allowance(
        self, unknown: Sequence[_Waiting], offers: dict[str, _Offer], snapshot: Snapshot, result: _Result
    ) -> float:
        """Return how many nodes may be launched now for tasks of unknown run time."""
        if not unknown or self._probing_since is None:
            return 0.0
        boot = min((offer.boot for offer in offers.values() if offer.group.max), default=BOOT)
        boot = max(boot, 0.05)
        rounds = int((snapshot.now - self._probing_since) / boot + 1e-6)
        result.look_in = self._probing_since + (rounds + 1) * boot - snapshot.now
        longest = max(each.demand.ran for each in unknown)
        if longest:
            result.look_in = min(result.look_in, boot - longest)
        booting = sum(offer.booting for offer in offers.values())
        return max(0.0, 2.0 ** min(rounds, 30) - booting)

    # Nodes that idle.

    def _idle(
        self, snapshot: Snapshot, offers: dict[str, _Offer], result: _Result, gangs: GangPlan
    ) -> tuple[list[NodeLoad], str]:
        """Return the nodes to remove because they idle, and the reason."""
        needs_room = _needs_room(offers, result, snapshot)
        if snapshot.now < self._scan_at and not needs_room and not snapshot.idle_for:
            return [], ""
        may_shrink = (name for name, offer in offers.items() if self._may_shrink(offer, snapshot))
        candidates = [name for name in may_shrink if not (gangs.least(name) or self._consolidation.holds(name))]
        if not candidates:
            return [], ""
        has_tasks = bool(snapshot.has_waiting or snapshot.inflight or snapshot.pinned)
        most = inf if has_tasks else snapshot.idle_for  # clients use data on the nodes, too
        idle = [node for node in snapshot.idle if node.group in candidates]
        idle = [node if node.idle_for <= most else replace(node, idle_for=most) for node in idle]
        limits = self._limits(idle, offers, snapshot)
        going = [node for node in idle if node.idle_for >= limits[node.rank]]
        if needs_room and not going:
            going = [node for node in idle if node.rank][-sum(result.short.values()) :]
        leaving = {node.rank for node in going}
        stays = [node for node in idle if node.rank not in leaving]
        next_in = min((limits[node.rank] - node.idle_for for node in stays), default=inf)
        self._scan_at = snapshot.now + max(1.0, min(next_in, *(offers[n].boot / 8 for n in candidates)))
        active = sum(counts.active + counts.booting for counts in snapshot.counts.values())
        if not (len(going) == active and not snapshot.queued and not any(o.group.min for o in offers.values())):
            going = [node for node in going if node.rank]
        by_group: dict[str, int] = {}
        victims: list[NodeLoad] = []
        for node in sorted(going, key=lambda each: (-each.idle_for, -each.rank)):
            offer = offers[node.group]
            gone = by_group.get(node.group, 0)
            if snapshot.counts[node.group].active - gone > offer.group.min:
                by_group[node.group] = gone + 1
                victims.append(node)
        if not victims:
            return [], ""
        self._scan_at = snapshot.now  # they are to be named until they go
        nodes = count_text(len(victims), "node")
        if needs_room:
            return victims, f"{nodes} without tasks must go, since waiting tasks need other nodes"
        least, keep = min(node.idle_for for node in victims), max(limits[node.rank] for node in victims)
        verb = "has" if len(victims) == 1 else "have"
        return victims, f"{nodes} {verb} been idle {_idle_text(least, keep, offers[victims[0].group], snapshot)}"

    def _surplus_node(
        self, snapshot: Snapshot, offers: dict[str, _Offer], gangs: GangPlan, desired: dict[str, int]
    ) -> NodeLoad | None:
        """Return a node that gets no more tasks because the others of its group have had room for them."""
        is_needed = snapshot.has_waiting or snapshot.pinned or snapshot.floor
        able = [
            name
            for name, offer in offers.items()
            if offer.price > 0
            and _given(offer.group, snapshot) is None
            and desired[name] == snapshot.counts[name].active > max(1, offer.group.min)
            and not (offer.coming or gangs.least(name) or name in snapshot.retained or self._consolidation.holds(name))
        ]
        return self._surplus.find(
            snapshot, () if is_needed else able, {name: offer.boot for name, offer in offers.items()}
        )

    @staticmethod
    def _may_shrink(offer: _Offer, snapshot: Snapshot) -> bool:
        counts, group = snapshot.counts[offer.group.name], offer.group
        return counts.active > group.min and counts.active * group.slots - counts.busy >= group.slots

    def _limits(self, idle: Sequence[NodeLoad], offers: dict[str, _Offer], snapshot: Snapshot) -> dict[int, float]:
        """Return the seconds for which each of the idle nodes is kept.

        New tasks use the free slots of busy nodes first, then the idle nodes by rank. The gaps at the level of load
        from which a node is needed again tell how long it is worth keeping, once they are known.
        """
        number = Counter(node.group for node in idle)
        busy = {name: counts.active - number[name] for name, counts in snapshot.counts.items()}
        limits: dict[int, float] = {}
        usual = {name: _keep(offer, snapshot) for name, offer in offers.items()}
        known: dict[tuple[str, int], float | None] = {}
        for node in idle:
            offer, name = offers[node.group], node.group
            keep, level = usual[name], busy[name] * offer.group.slots + 1
            busy[name] += 1
            if offer.price > 0 and _given(offer.group, snapshot) is None:
                bucket = name, bucket_of(level)
                if bucket not in known:
                    known[bucket] = self._gaps[name].best_keep(level, keep)
                if (best := known[bucket]) is not None:
                    keep = max(LEAST_KEEP, best + 1.0)
            limits[node.rank] = keep
        return limits

    def _reached_in(self, ahead: int) -> float:
        """Return the seconds until new tasks are expected to need more than `ahead` free slots."""
        rate = min(self._rates)
        return (max(0, ahead) + 1) / rate if rate > 1e-9 else inf

    def _unneeded(self, offer: _Offer, snapshot: Snapshot) -> int:
        """Return the number of booting nodes that neither waiting nor, as far as expected, new tasks use in time."""
        counts, group = snapshot.counts[offer.group.name], offer.group
        needed = ceil(offer.kept - 1e-9) + offer.held
        ahead = snapshot.capacity - snapshot.inflight
        keep = _keep(offer, snapshot)
        while needed < offer.coming and self._reached_in(ahead) <= PATIENCE * keep:
            needed += 1
            ahead += group.slots
        return max(0, min(offer.coming - needed, counts.active + offer.coming - group.min))

    def _look_in(
        self, snapshot: Snapshot, offers: dict[str, _Offer], result: _Result, gangs: GangPlan, going: bool
    ) -> float | None:
        """Return the seconds after which to look again: when a boot, a pause or an idle time may have ended."""
        times = [result.look_in]
        boot = min((offer.boot for offer in offers.values()), default=BOOT)
        if snapshot.has_waiting or any(counts.booting for counts in snapshot.counts.values()):
            times.append(max(0.2, min(boot, 60.0) / 8))
        if going:
            times.append(2.0)
        elif any(
            self._may_shrink(offer, snapshot) and not (gangs.least(name) or self._consolidation.holds(name))
            for name, offer in offers.items()
        ):
            times.append(max(0.0, self._scan_at - snapshot.now))
        if self._surplus.due_in is not None:
            times.append(self._surplus.due_in)
        times += [snapshot.pauses[name] for name in offers if 0 < snapshot.pauses.get(name, 0.0) < inf]
        soonest = min(times)
        return None if soonest == inf else max(0.01, soonest)


def _needs_room(offers: dict[str, _Offer], result: _Result, snapshot: Snapshot) -> bool:
    """Return whether nodes for waiting tasks may be launched only once others have gone."""
    if snapshot.max_nodes is None:
        return False
    if sum(counts.active + counts.booting for counts in snapshot.counts.values()) < snapshot.max_nodes:
        return False
    wanted = [offer.group for offer in offers.values() if offer.room > 0]
    return any(group.can_hold(needs) for needs in result.short for group in wanted)


def _offer(group: Group, snapshot: Snapshot) -> _Offer:
    counts = snapshot.counts[group.name]
    slots = max(1, group.slots)
    pause = snapshot.pauses.get(group.name, 0.0)
    boot = snapshot.boots.get(group.name, snapshot.boot_seconds if snapshot.boot_seconds is not None else BOOT)
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
    return _Offer(
        group,
        boot,
        pause,
        snapshot.prices.get(group.name, group.hourly_price),
        wait,
        free=max(0, counts.active * slots - counts.busy) / slots,
        busy=min(counts.busy, counts.active * slots) / slots,
        booting=coming,
        coming=coming,
        room=0 if pause == inf else max(0, group.max - counts.active - coming),
    )


def _reserve(offers: dict[str, _Offer], gangs: GangPlan) -> None:
    """Launch what the waiting gangs lack, and leave the tasks what gangs will not use."""
    for name, offer in offers.items():
        launched = gangs.launch.get(name, 0)
        offer.new = offer.for_gangs = launched
        offer.room = max(0, offer.room - launched)
        if (use := gangs.uses.get(name)) is not None:
            slots = max(1, offer.group.slots)
            offer.free = max(0.0, offer.free - use.free / slots)
            offer.booting = max(0.0, offer.booting + launched - use.starting / slots)
            offer.kept = float(use.starting_nodes)


def _hold(offers: dict[str, _Offer], consolidation: Consolidation, snapshot: Snapshot) -> None:
    """Let booting nodes that are to replace others boot on, but not count for waiting tasks: the others then leave."""
    for name, offer in offers.items():
        offer.held = consolidation.held(name, snapshot)
        offer.booting = max(0.0, offer.booting - offer.held)


def _waiting(snapshot: Snapshot) -> list[_Waiting]:
    """Return the waiting tasks, those that fit the fewest groups first."""
    found: list[_Waiting] = []
    boot = snapshot.boot_seconds if snapshot.boot_seconds is not None else BOOT
    for demand in snapshot.demands:
        if not demand.count:
            continue
        if demand.seconds is not None:
            found.append(_Waiting(demand, max(demand.seconds, 1e-6), True))
        elif demand.ran >= boot:
            found.append(_Waiting(demand, 2 * demand.ran, True))  # halfway through, as far as is known
        else:
            found.append(_Waiting(demand, boot, False))
    if len(snapshot.groups) > 1:
        found.sort(key=lambda each: sum(at_once(group, each.demand.needs) > 0 for group in snapshot.groups))
    return found


def _use_existing(each: _Waiting, able: Iterable[_Offer], snapshot: Snapshot) -> float:
    """Use the nodes that exist for waiting tasks: free slots first, then booting nodes, then busy slots.

    Returns:
        The number of tasks that they do not start in time.
    """
    left = float(each.demand.count)
    able = list(able)
    is_helped = any(offer.coming for offer in able)
    # shorter tasks get a slot before a node has booted; longer ones have shown that the free slots do not fit them
    may_be_late = bool(able) and each.seconds >= min(offer.boot for offer in able)
    is_overdue = bool(able) and each.demand.waited > max(offer.window for offer in able)
    is_late = may_be_late and is_overdue
    for offer in able:
        starts = each.started(offer, offer.window)
        used = 0.0 if is_late else min(offer.free, left / starts)
        offer.free -= used
        left -= used * starts
    for offer in able:
        starts = each.started(offer, offer.wait)
        used = min(offer.booting, left / starts)
        offer.booting -= used
        offer.kept += min(used, left / each.at_once(offer))
        left -= used * starts
    busy = 0.0
    ended = sum(offer.busy * each.at_once(offer) * ended_share(snapshot.running, offer.window) for offer in able)
    for offer in able if ended >= 1 - 1e-9 else ():  # less than one slot that becomes free is not counted on
        starts = each.at_once(offer) * starts_of_busy(snapshot.running, offer.window, each.seconds)
        if starts <= 0:
            continue
        used = min(offer.busy, left / starts)
        offer.busy -= used
        left -= used * starts
        busy += used * starts
    if is_overdue and not is_helped and left <= SLACK and busy > 0:
        left = min(1.0, busy)  # what they wait for did not come: the estimate was wrong
    return max(0.0, left)


def _buy(each: _Waiting, left: float, able: Sequence[_Offer], most: float) -> dict[str, int]:
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


def _given(group: Group, snapshot: Snapshot) -> float | None:
    """Return the idle timeout that the user has chosen for a group."""
    if group.idle_timeout is not None:
        return group.idle_timeout
    return snapshot.idle_timeout if snapshot.idle_timeout_given else None


def _keep(offer: _Offer, snapshot: Snapshot) -> float:
    """Return the seconds after which idling costs as much as another boot, with the wait for it."""
    given = _given(offer.group, snapshot)
    if given is not None:
        return given
    if offer.price <= 0:
        return UNPRICED_KEEP
    boot = snapshot.boots.get(offer.group.name, snapshot.boot_seconds or BOOT)
    return max(LEAST_KEEP, boot * (1 + (snapshot.waiting_cost or 0.0) / offer.price))


def _cap(desired: dict[str, int], snapshot: Snapshot) -> None:
    """Limit growth to the maximum over all groups."""
    assert snapshot.max_nodes is not None
    excess = sum(desired.values()) - snapshot.max_nodes
    for group in reversed(snapshot.groups):
        counts = snapshot.counts[group.name]
        give = min(max(0, excess), max(0, desired[group.name] - max(group.min, counts.active + counts.booting)))
        desired[group.name] -= give
        excess -= give


# Reasons.


def _idle_text(idle: float, keep: float, offer: _Offer, snapshot: Snapshot) -> str:
    """Return for how long nodes were idle, and why no longer."""
    if _given(offer.group, snapshot) is not None:
        return idle_text(idle, keep)
    kept = "a node without a price is kept"
    if offer.price > 0:
        kept = f"it is worth keeping a node that takes {rough_text(offer.boot)} to boot"
    shown, limit = rough_text(idle), rough_text(keep)
    return f"for {'' if shown == limit else f'{shown}, over '}the {limit} that {kept}"


def _surplus_text(node: NodeLoad, offer: _Offer) -> str:
    """Return why a node with tasks gets no more."""
    tasks = count_text(node.busy, "task")
    return (
        f"the other nodes have had room for the {tasks} of node {node.rank} for {rough_text(offer.boot)}, so it gets "
        "no more and leaves when they have ended"
    )


def _reason(
    snapshot: Snapshot,
    waiting: Sequence[_Waiting],
    offers: dict[str, _Offer],
    result: _Result,
    desired: Mapping[str, int],
    cancelled: dict[str, int],
    why_removed: str,
) -> str:
    parts: list[str] = []
    launched = {name: offer.new - offer.for_gangs for name, offer in offers.items() if offer.new > offer.for_gangs}
    if snapshot.gangs:
        parts.append(_gangs_text(snapshot, sum(offer.for_gangs for offer in offers.values())))
    if waiting:
        parts.append(_work_text(snapshot, waiting, offers, result, launched))
    for name, count in cancelled.items():
        verb = "is" if count == 1 else "are"
        parts.append(f"{count_text(count, 'booting node')}{of_group(name, snapshot)} {verb} not needed any more")
    if why_removed:
        parts.append(why_removed)
    before = snapshot.desired
    changed = {name: count for name, count in desired.items() if count != before[name]}
    if not parts:
        busy = f"{snapshot.inflight} of {snapshot.capacity} slots are busy and no task waits"
        parts.append(busy)
    if changed and len(offers) > 1:  # the log shows only the sum over all groups
        to = joined(f"{count_text(count)}{of_group(name, snapshot)}" for name, count in changed.items())
        parts.append(f"{to} {'is' if list(changed.values()) == [1] else 'are'} asked for")
    return "; ".join(parts)


def _gangs_text(snapshot: Snapshot, more: int) -> str:
    """Return the sentence about the waiting gangs."""
    waits = gangs_wait(snapshot)
    if more:
        return f"{waits}, so {more_text(more)}"
    if any(counts.booting for counts in snapshot.counts.values()):
        return f"{waits} until nodes have booted"
    return f"{waits} for slots that are in use"


def _work_text(
    snapshot: Snapshot,
    waiting: Sequence[_Waiting],
    offers: dict[str, _Offer],
    result: _Result,
    launched: dict[str, int],
) -> str:
    """Return the sentence about the waiting tasks."""
    count = sum(each.demand.count for each in waiting)
    tasks = f"{count:,} task" if count == 1 else f"{count:,} tasks"
    boot = min((offer.boot for offer in offers.values()), default=BOOT)
    if all(not each.known for each in waiting):
        they_wait = "waits" if count == 1 else "wait"
        if (pause := _pause(offers, snapshot)) is not None:
            return f"{tasks} of unknown length {they_wait}, and no node can be launched {_until(pause)}"
        if launched:
            more = count_text(sum(launched.values()), "more node")
            return f"{tasks} of unknown length: {more}, until one has ended or run for a boot, {rough_text(boot)}"
        return f"{tasks} of unknown length {they_wait} until one has ended or run for a boot, {rough_text(boot)}"
    known = [each for each in waiting if each.known]
    if unknown := count - sum(each.demand.count for each in known):
        tasks = f"{unknown:,} {'task' if unknown == 1 else 'tasks'} of unknown length and {count - unknown:,}"
        count -= unknown
    work = sum(each.demand.count * each.seconds for each in known)
    slots = snapshot.capacity
    nodes = sum(counts.active for counts in snapshot.counts.values())
    what = f"{tasks} of about {rough_text(work / count)}"
    needed = "needs" if count == 1 and not unknown else "need"
    if not slots:
        there = "no node is up yet"
    else:
        there = f"with {count_text(nodes)} they end in {rough_text(_end(snapshot, work))}"
    wait = min(offer.wait for offer in offers.values())
    if launched:
        return f"{what} {needed} {rough_text(work)} of slots; {there}" + (
            f", {_too_late(snapshot, waiting, work, boot, wait)}" if slots else ""
        )
    booting = sum(counts.booting for counts in snapshot.counts.values())
    coming = f", and {count_text(booting)} {'boots' if booting == 1 else 'boot'}" if booting else ""
    if result.short and (pause := _pause(offers, snapshot)) is not None:
        return f"{what} {needed} {rough_text(work)} of slots; {there}, and no node can be launched {_until(pause)}"
    if result.short and booting == 0:
        return f"{what} {needed} {rough_text(work)} of slots; {there}, and no more nodes may be launched"
    one = "one node" if nodes <= 1 else f"{nodes} nodes"
    return f"{what} {needed} {rough_text(work / max(1, slots))} on {one}{coming}; a boot takes {rough_text(boot)}"


def _pause(offers: Mapping[str, _Offer], snapshot: Snapshot) -> float | None:
    """Return the seconds until a node can be launched, infinity if unknown; None if one can be now, or boots."""
    if any(counts.booting > counts.unrequested for counts in snapshot.counts.values()):
        return None
    with_room = [offer for offer in offers.values() if snapshot.counts[offer.group.name].active < offer.group.max]
    if any(offer.pause <= 0 and offer.group.can_launch for offer in with_room):
        return None
    if not with_room and all(offer.group.can_launch for offer in offers.values()):
        return None  # the maximum is reached
    return min((offer.pause for offer in with_room if offer.pause > 0), default=inf)


def _until(pause: float) -> str:
    """Return for how long no node can be launched, as the end of a sentence."""
    return "now" if pause == inf else f"for the next {rough_text(pause)}"


def _too_late(snapshot: Snapshot, waiting: Sequence[_Waiting], work: float, boot: float, wait: float) -> str:
    """Return why the nodes that are up do not suffice, as the end of a sentence."""
    target = f"the target of {rough_text(wait)}" if wait else "no target beyond it"
    limits = f"a boot of {rough_text(boot)} and {target}"
    if _end(snapshot, work) > boot + wait:
        return f"more than {limits} together"
    longest = max(each.demand.waited for each in waiting)
    if longest > boot + wait:
        return f"but the oldest has waited for {rough_text(longest)}, more than {limits} together"
    return f"but not all of them start within {limits} together"


def _end(snapshot: Snapshot, work: float) -> float:
    """Return the seconds until the waiting tasks end on the nodes that are up."""
    running = sum(each.count * max(0.0, (each.seconds or 0.0) - each.age) for each in snapshot.running if each.seconds)
    return (work + running) / max(1, snapshot.capacity)
