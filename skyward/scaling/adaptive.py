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
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, inf
from statistics import fmean

from skyward.formatting import count_text
from skyward.scaling.adaptive_reasons import decision_reason, idle_reason, surplus_reason
from skyward.scaling.gaps import Gaps, bucket_of
from skyward.scaling.offers import SLACK, GroupOffer, WaitingWork, buy, offer_of, reserve, use_existing, waiting_tasks
from skyward.scaling.replacing import Consolidation
from skyward.scaling.snapshot import Decision, Group, NodeLoad, Snapshot
from skyward.scaling.snapshot.fitting import never, slots_taken, usual_at_once
from skyward.scaling.snapshot.gang_placement import GangPlan, gang_nodes
from skyward.scaling.surplus import Surplus
from skyward.values.needs import Needs

__all__ = ["Adaptive"]

UNPRICED_KEEP = 60.0
"""Seconds that an idle node is kept that costs nothing."""

LEAST_KEEP = 3.0
"""Seconds that an idle node is kept at least."""

PATIENCE = 3.0
"""Times that an idle node is kept within which new tasks must be expected to use a booting node, or it is cancelled."""

MEMORIES = (2.5, 10.0)
"""Boot times over which arrivals of tasks are averaged; the lower average counts, so that a burst is soon forgotten."""


@dataclass(slots=True)
class _Result:
    """Result of assigning the waiting tasks to nodes.

    Attributes:
        short: by shape, tasks that no node starts in time and for which none may be launched.
        look_in: seconds after which more is known about tasks of unknown run time.
        waited: seconds for which such tasks have waited, if that is why more nodes may be launched; 0 at first.
    """

    short: dict[Needs, int] = field(default_factory=dict)
    look_in: float = inf
    waited: float = 0.0


@dataclass(slots=True)
class Adaptive:
    """Scales by the work that waits, the time that a node takes to boot, and the price of each task.

    Attributes:
        name: name of the policy.
        interval: seconds between decisions while nothing happens; None for the pool's cooldown.
        packs: new tasks go to the fullest nodes, so that others idle and go.

    Example:
        >>> sky.Compute(nodes=(0, 8), policy="adaptive", target_wait="cheap")
    """

    name: str = "adaptive"
    interval: float | None = None
    packs: bool = field(default=True, init=False, repr=False)
    _looked_at: float | None = field(default=None, init=False, repr=False)
    _submitted: int = field(default=0, init=False, repr=False)
    _rates: tuple[float, ...] = field(default=(0.0,) * len(MEMORIES), init=False, repr=False)
    _usual: dict[str, float] = field(default_factory=dict, init=False, repr=False)
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
        offers = {group.name: offer_of(group, snapshot) for group in snapshot.groups}
        reserve(offers, gangs)
        self._consolidation.observe(snapshot)
        _hold(offers, self._consolidation, snapshot)
        waiting = waiting_tasks(snapshot)
        result = self._serve(waiting, offers, snapshot)
        self._observe_load(offers, snapshot, looked_at)
        has_tasks = bool(snapshot.has_waiting or snapshot.inflight or snapshot.pinned)
        is_over = not has_tasks and not any(counts.active + counts.booting for counts in snapshot.counts.values())
        is_used = has_tasks or snapshot.collection_used
        unneeded = self._unneeded_boots(offers, snapshot, is_used)
        desired: dict[str, int] = {}
        cancelled: dict[str, int] = {}
        for name, offer in offers.items():
            counts, group = snapshot.counts[name], offer.group
            count = counts.active + max(offer.coming, offer.head) + offer.new - unneeded[name]
            if counts.desired > counts.active + counts.booting and not is_over:  # nodes that were given up, as the head
                count = max(count, counts.desired - unneeded[name])
            count = max(count, gangs.least(name))
            desired[name] = max(group.min, min(group.max, count))
            if count < counts.active + counts.booting:
                cancelled[name] = counts.active + counts.booting - max(group.min, count)
        victims, why_removed = self._idle(snapshot, offers, result, gangs)
        for node in victims:
            desired[node.group] = max(offers[node.group].group.min, desired[node.group] - 1)
        if not victims and (surplus := self._surplus_node(snapshot, offers, gangs, desired)) is not None:
            victims, why_removed = [surplus], surplus_reason(surplus, offers[surplus.group])
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
            decision_reason(
                snapshot, waiting, offers, bool(result.short), result.waited, change.desired, cancelled, texts
            ),
            victims=change.victims,
            settled=True,
            infeasible=never(snapshot),
            at_once=Counter(cancelled) + Counter(change.at_once),
            look_in=look_in,
        )

    def _observe(self, snapshot: Snapshot) -> None:
        """Update the rates at which tasks arrive, in tasks per second, and how many of them a node runs at once.

        Tasks that were cancelled are taken back.
        """
        if self._looked_at is not None:
            arrived = snapshot.submitted - self._submitted
            passed = max(0.0, snapshot.now - self._looked_at)
            memories = [boots * max(10.0, snapshot.usual_boot) for boots in MEMORIES]
            self._rates = tuple(
                max(0.0, rate * exp(-passed / memory) + arrived / memory)
                for rate, memory in zip(self._rates, memories, strict=True)
            )
        self._looked_at, self._submitted = snapshot.now, snapshot.submitted
        for group in snapshot.groups:
            counts = snapshot.counts[group.name]
            shapes = Counter(counts.shapes)
            for demand in snapshot.demands:
                shapes[demand.needs] += demand.count
            usual = usual_at_once(group, shapes, counts.busy - sum(counts.shapes.values()))
            if usual is not None:
                self._usual[group.name] = usual

    def _observe_load(self, offers: dict[str, GroupOffer], snapshot: Snapshot, looked_at: float) -> None:
        """Record the load of each group: the running tasks, and the slots that boot for waiting ones.

        A load fell when nodes began to idle, or halfway since the last look, if none did.
        """
        for name, offer in offers.items():
            load = ceil(slots_taken(offer.group, snapshot.counts[name]) - 1e-9)
            load += (ceil(offer.kept - 1e-9) + offer.new) * offer.group.slots
            gaps, fell_at = self._gaps.setdefault(name, Gaps()), None
            if load < gaps.load:
                passed = snapshot.now - looked_at
                idle = [node.idle_for for node in snapshot.idle if node.group == name and node.idle_for <= passed]
                fell_at = snapshot.now - (fmean(idle) if idle else passed / 2)
            gaps.observe(load, snapshot.now, fell_at)

    # Tasks that wait.

    def _serve(self, waiting: Sequence[WaitingWork], offers: dict[str, GroupOffer], snapshot: Snapshot) -> _Result:
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
            left = use_existing(each, able, snapshot)
            if left <= SLACK:
                continue
            limit = allowance if not each.known else inf
            bought = buy(each, left, able, min(limit, most - total))
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
        self, unknown: Sequence[WaitingWork], offers: dict[str, GroupOffer], snapshot: Snapshot, result: _Result
    ) -> float:
        """Return how many nodes may be launched now for tasks of unknown run time."""
        if not unknown or self._probing_since is None:
            return 0.0
        boot = min((offer.boot for offer in offers.values() if offer.group.max), default=snapshot.usual_boot)
        boot = max(boot, 0.05)
        waited = snapshot.now - self._probing_since
        rounds = int(waited / boot + 1e-6)
        result.look_in = self._probing_since + (rounds + 1) * boot - snapshot.now
        result.waited = waited if rounds else 0.0
        longest = max(each.demand.ran for each in unknown)
        if longest:
            result.look_in = min(result.look_in, boot - longest)
        booting = sum(offer.booting for offer in offers.values())
        return max(0.0, 2.0 ** min(rounds, 30) - booting)

    # Nodes that idle.

    def _idle(
        self, snapshot: Snapshot, offers: dict[str, GroupOffer], result: _Result, gangs: GangPlan
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
        return victims, f"{nodes} {verb} been idle {idle_reason(least, keep, offers[victims[0].group], snapshot)}"

    def _surplus_node(
        self, snapshot: Snapshot, offers: dict[str, GroupOffer], gangs: GangPlan, desired: dict[str, int]
    ) -> NodeLoad | None:
        """Return a node that gets no more tasks because the others of its group have had room for them."""
        is_needed = snapshot.has_waiting or snapshot.pinned or snapshot.floor
        able = [
            name
            for name, offer in offers.items()
            if offer.price > 0
            and snapshot.given_idle_timeout(offer.group) is None
            and desired[name] == snapshot.counts[name].active > max(1, offer.group.min)
            and not (offer.coming or gangs.least(name) or name in snapshot.retained or self._consolidation.holds(name))
        ]
        return self._surplus.find(
            snapshot, () if is_needed else able, {name: offer.boot for name, offer in offers.items()}
        )

    @staticmethod
    def _may_shrink(offer: GroupOffer, snapshot: Snapshot) -> bool:
        counts, group = snapshot.counts[offer.group.name], offer.group
        return counts.active > group.min and counts.active * group.slots - counts.busy >= group.slots

    def _limits(self, idle: Sequence[NodeLoad], offers: dict[str, GroupOffer], snapshot: Snapshot) -> dict[int, float]:
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
            if offer.price > 0 and snapshot.given_idle_timeout(offer.group) is None:
                bucket = name, bucket_of(level)
                if bucket not in known:
                    known[bucket] = self._gaps[name].best_keep(level, keep)
                if (best := known[bucket]) is not None:
                    keep = max(LEAST_KEEP, best + 1.0)
            limits[node.rank] = keep
        return limits

    def _at_once(self, group: Group) -> float:
        """Return how many tasks a node of a group runs at once, if new ones are as the latest ones."""
        return self._usual.get(group.name, group.slots)

    def _room_for_new(self, snapshot: Snapshot) -> float:
        """Return for how many new tasks there is room on the active nodes."""
        if not self._usual:
            return snapshot.capacity - snapshot.inflight
        room = 0.0
        for group in snapshot.groups:
            slots, counts = max(1, group.slots), snapshot.counts[group.name]
            free = counts.active - slots_taken(group, counts) / slots
            room += free * self._at_once(group)
        return room

    def _reached_in(self, ahead: float) -> float:
        """Return the seconds until new tasks are expected to need more than `ahead` free slots."""
        rate = min(self._rates)
        return (max(0.0, ahead) + 1) / rate if rate > 1e-9 else inf

    def _unneeded_boots(self, offers: dict[str, GroupOffer], snapshot: Snapshot, is_used: bool) -> dict[str, int]:
        """Return the booting nodes that are not needed, by group.

        Node 0 is needed as long as any other node is, or it is cancelled with the last of them. The first node of a
        pool that has none boots on while the pool is used.
        """
        if snapshot.pinned:
            return dict.fromkeys(offers, 0)
        found = {name: 0 if offer.new else self._unneeded(offer, snapshot) for name, offer in offers.items()}
        is_empty = not any(counts.active for counts in snapshot.counts.values())
        goes = is_empty and all(
            offer.coming + offer.new <= found[name] and not offer.group.min for name, offer in offers.items()
        )
        if goes and not is_used:
            return {name: max(found[name], offer.head) for name, offer in offers.items()}
        first = next((name for name, number in found.items() if number), None) if goes else None
        for name, offer in offers.items():
            least = offer.head if any(each.head for each in offers.values()) else int(name == first)
            found[name] = max(0, min(found[name], max(offer.coming, offer.head) - least))
        return found

    def _unneeded(self, offer: GroupOffer, snapshot: Snapshot) -> int:
        """Return the number of booting nodes that neither waiting nor, as far as expected, new tasks use in time."""
        counts, group = snapshot.counts[offer.group.name], offer.group
        needed = ceil(offer.kept - 1e-9) + offer.held
        ahead = self._room_for_new(snapshot)
        keep = _keep(offer, snapshot)
        while needed < offer.coming and self._reached_in(ahead) <= PATIENCE * keep:
            needed += 1
            ahead += self._at_once(group)
        return max(0, min(offer.coming - needed, counts.active + offer.coming - group.min))

    def _look_in(
        self, snapshot: Snapshot, offers: dict[str, GroupOffer], result: _Result, gangs: GangPlan, going: bool
    ) -> float | None:
        """Return the seconds after which to look again: when a boot, a pause or an idle time may have ended."""
        times = [result.look_in]
        boot = min(offer.boot for offer in offers.values())
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


def _needs_room(offers: dict[str, GroupOffer], result: _Result, snapshot: Snapshot) -> bool:
    """Return whether nodes for waiting tasks may be launched only once others have gone."""
    if snapshot.max_nodes is None:
        return False
    if sum(counts.active + counts.booting for counts in snapshot.counts.values()) < snapshot.max_nodes:
        return False
    wanted = [offer.group for offer in offers.values() if offer.room > 0]
    return any(group.can_hold(needs) for needs in result.short for group in wanted)


def _hold(offers: dict[str, GroupOffer], consolidation: Consolidation, snapshot: Snapshot) -> None:
    """Let booting nodes that are to replace others boot on, but not count for waiting tasks: the others then leave."""
    for name, offer in offers.items():
        offer.held = consolidation.held(name, snapshot)
        offer.booting = max(0.0, offer.booting - offer.held)


def _keep(offer: GroupOffer, snapshot: Snapshot) -> float:
    """Return the seconds after which idling costs as much as another boot, with the wait for it."""
    given = snapshot.given_idle_timeout(offer.group)
    if given is not None:
        return given
    if offer.price <= 0:
        return UNPRICED_KEEP
    boot = snapshot.boot_of(offer.group)
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
