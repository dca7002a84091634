"""Carries out replacements of dear nodes by cheaper ones, one at a time, over many snapshots.

First the cheaper nodes are launched. Once they are active, and not before, the dear ones are named to go, without a
cooldown: they get no new task, and leave when their tasks have ended. Until then the cheaper ones may idle: the next
tasks come to them. If fewer of the cheaper nodes come than were asked for, fewer of the others go; if none comes, or a
node costs more than was expected, all stay, and the group rests for a while.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from skyward.scaling.consolidation import Replacement, find_replacement
from skyward.scaling.need_history import SPANS, NeedHistory
from skyward.scaling.snapshot import Snapshot

__all__ = ["ConsolidatedDecision", "Consolidation"]

PATIENCE = 3.0
"""Boot times within which the cheaper nodes must be active."""

LEAST_PATIENCE = 60.0
"""Seconds that they have at least."""

LEAVE_WITHIN = 600.0
"""Seconds within which the nodes must be told to go, while the autoscaler holds that back."""

REST = 300.0
"""Seconds for which the nodes of a group are not replaced after a replacement has failed; doubled each time."""

LONGEST_REST = 4 * 3600.0

ROUNDING = 1.01


@dataclass(frozen=True, slots=True)
class ConsolidatedDecision:
    """A decision with the part of a replacement: desired nodes, ranks to remove first, and its reason.

    Attributes:
        look_in: seconds after which to look whether the launched nodes come; infinity for no such time.
        at_once: by group, nodes to remove whose replacements are active.
    """

    desired: Mapping[str, int]
    victims: tuple[int, ...]
    reason: str = ""
    look_in: float = inf
    at_once: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A replacement that is carried out.

    Attributes:
        goals: by group, the active nodes with which the launched ones are there.
        until: when it is given up.
        paid: USD per hour of the nodes of these groups before.
        goal: desired nodes of the group, once its nodes are to go; None before.
        ends_in: seconds until the last task of these nodes is expected to end.
    """

    plan: Replacement
    goals: Mapping[str, int]
    until: float
    paid: float
    goal: int | None = None
    ends_in: float = 0.0


@dataclass(slots=True)
class Consolidation:
    """The replacement of one pool that is carried out, and what the choice of the next one needs to know."""

    _history: NeedHistory = field(default_factory=NeedHistory)
    _dearest: float = 0.0
    _cheapest: float = inf
    _pending: _Pending | None = None
    _rests: dict[str, tuple[float, float]] = field(default_factory=dict)
    _filling: dict[str, float] = field(default_factory=dict)
    _look_at: float = -inf

    def observe(self, snapshot: Snapshot) -> None:
        """Remember what is needed now, and follow the replacement that is carried out."""
        if not snapshot.consolidate_within:
            self._pending = None
            return
        for group in snapshot.groups:
            prices = [price for price in (group.hourly_price, snapshot.price_of(group)) if price > 0]
            self._dearest, self._cheapest = max(self._dearest, *prices, 0.0), min(self._cheapest, *prices, inf)
        if self._pending is not None:
            self._pending = self._followed(self._pending, snapshot)
        self._filling = {name: until for name, until in self._filling.items() if snapshot.now < until}
        if self._dearest > self._cheapest:
            self._history.observe(snapshot)

    def holds(self, group: str) -> bool:
        """Return whether the idle nodes of a group are left alone: they replace others, or are replaced."""
        pending = self._pending
        if pending is not None and (group == pending.plan.group or group in pending.plan.launch):
            return True
        return group in self._filling

    def held(self, group: str, snapshot: Snapshot) -> int:
        """Return the number of booting nodes of a group that are to replace others, and so are needed."""
        if self._pending is None or self._pending.goal is not None or group not in self._pending.goals:
            return 0
        counts = snapshot.counts[group]
        return max(0, min(counts.booting, self._pending.goals[group] - counts.active))

    def change(self, snapshot: Snapshot, desired: Mapping[str, int], victims: tuple[int, ...]) -> ConsolidatedDecision:
        """Return a decision with the next part of a replacement added to it.

        Args:
            desired, victims: what the policy decides without it.
        """
        reason = ""
        if self._pending is None and self._is_due(snapshot):
            self._pending = self._begun(snapshot, desired, victims)
            reason = "" if self._pending is None else self._pending.plan.reason
        if (pending := self._pending) is None:
            return ConsolidatedDecision(desired, victims)
        after = dict(desired)
        if pending.goal is None:
            most = {group.name: group.max for group in snapshot.groups}
            for name, goal in pending.goals.items():
                after[name] = max(after[name], min(goal, most[name]))
            is_within = snapshot.max_nodes is None or sum(after.values()) <= snapshot.max_nodes
            look_in = max(0.2, min(_boot(pending.plan, snapshot), 60.0) / 8)
            return (
                ConsolidatedDecision(after, victims, reason, look_in)
                if is_within
                else ConsolidatedDecision(desired, victims)
            )
        group = pending.plan.group
        counts = snapshot.counts[group]
        if after[group] > counts.active + counts.booting:  # more of them are needed
            self._failed(group, snapshot)
            self._pending = None
            return ConsolidatedDecision(desired, victims)
        least = next(each.min for each in snapshot.groups if each.name == group)
        after[group] = min(after[group], max(least, pending.goal))
        return ConsolidatedDecision(
            after,
            (*pending.plan.victims, *victims),
            reason or _leave_text(pending.plan),
            at_once={group: len(pending.plan.victims)} if pending.plan.launch else {},
        )

    def _is_due(self, snapshot: Snapshot) -> bool:
        """Return whether to look for a replacement: it is time, and dearer nodes than others now may be there."""
        if snapshot.now < self._look_at or not snapshot.consolidate_within:
            return False
        if not any(0 < snapshot.price_of(group) < self._dearest for group in snapshot.groups):
            return False
        self._look_at = snapshot.now + snapshot.consolidate_within / SPANS
        return True

    def _begun(self, snapshot: Snapshot, desired: Mapping[str, int], victims: tuple[int, ...]) -> _Pending | None:
        """Return a replacement that pays, if there is one."""
        for node in snapshot.work:
            self._history.add_shapes(node.group, node.shapes, snapshot.now)
        if victims:
            return None
        resting = {name for name, (until, _) in self._rests.items() if snapshot.now < until}
        counts = snapshot.counts
        settled = {
            name
            for name, count in desired.items()
            if count == counts[name].active == counts[name].desired
            and not counts[name].leaving  # or they would be taken again instead of others being launched
        }
        plan = find_replacement(snapshot, self._history, resting, self._rests.keys(), settled)
        if plan is None:
            return None
        if not plan.launch:
            return self._leaving(_Pending(plan, {}, 0.0, 0.0), snapshot)
        until = snapshot.now + max(LEAST_PATIENCE, PATIENCE * _boot(plan, snapshot))
        goals = {name: counts[name].active + number for name, number in plan.launch.items()}
        return _Pending(plan, goals, until, _paid(plan, snapshot))

    def _followed(self, pending: _Pending, snapshot: Snapshot) -> _Pending | None:
        """Return the replacement as it goes on; None if it has ended, or is given up."""
        plan = pending.plan
        if pending.goal is not None and snapshot.counts[plan.group].desired <= pending.goal:
            self._rests.pop(plan.group, None)
            self._look_at = -inf
            others = [group.name for group in snapshot.groups if group.name != plan.group]
            self._filling |= dict.fromkeys(plan.launch or others, snapshot.now + pending.ends_in)
            return None
        if plan.group in snapshot.retained or snapshot.gangs or snapshot.pinned or snapshot.floor:
            self._failed(plan.group, snapshot)
            return None
        if pending.goal is not None:
            if snapshot.now > pending.until:
                self._failed(plan.group, snapshot)
                return None
            return pending
        coming = {name: self._coming(name, pending, snapshot) for name in pending.goals}
        if any(coming[name] < number for name, number in plan.launch.items()):
            fewer = _reduced(pending, coming)
            if fewer is None:
                self._failed(plan.group, snapshot)
                return None
            pending = fewer
        if all(snapshot.counts[name].active >= goal for name, goal in pending.goals.items()):
            return self._leaving(pending, snapshot)
        return pending

    @staticmethod
    def _coming(name: str, pending: _Pending, snapshot: Snapshot) -> int:
        """Return how many of the launched nodes of a group are there or still come."""
        counts = snapshot.counts[name]
        before = pending.goals[name] - pending.plan.launch[name]
        group = next(each for each in snapshot.groups if each.name == name)
        is_dearer = snapshot.price_of(group) > ROUNDING * pending.plan.costs[name]
        if snapshot.now > pending.until or is_dearer:
            return max(0, counts.active - before)
        booting = counts.booting - (counts.unrequested if snapshot.pauses.get(name, 0.0) > 0 else 0)
        return max(0, min(pending.plan.launch[name], counts.active + booting - before))

    def _leaving(self, pending: _Pending, snapshot: Snapshot) -> _Pending | None:
        """Return the replacement once its nodes are to go; None if that does not pay any more."""
        plan, counts = pending.plan, snapshot.counts[pending.plan.group]
        there = {node.rank: node for node in snapshot.work if node.group == plan.group and node.price == plan.price}
        victims = tuple(rank for rank in plan.victims if rank in there)
        launched = sum(number * plan.costs[name] for name, number in plan.launch.items())
        is_dearer = _paid(plan, snapshot) > ROUNDING * (pending.paid + launched)  # they come from another source
        least = next(group.min for group in snapshot.groups if group.name == plan.group)
        victims = victims[: max(0, counts.active - least)]
        if is_dearer or not victims or counts.booting:
            self._failed(plan.group, snapshot)
            return None
        return replace(
            pending,
            plan=replace(plan, victims=victims),
            goals={},
            until=snapshot.now + LEAVE_WITHIN,
            goal=counts.active - len(victims),
            ends_in=max(there[rank].ends_in or 0.0 for rank in victims),
        )

    def _failed(self, group: str, snapshot: Snapshot) -> None:
        """Let a group rest whose replacement is given up."""
        _, rest = self._rests.get(group, (0.0, 0.0))
        rest = min(LONGEST_REST, 2 * rest or max(REST, snapshot.consolidate_within))
        self._rests[group] = snapshot.now + rest, rest


def _boot(plan: Replacement, snapshot: Snapshot) -> float:
    return max(snapshot.boot_of(group) for group in snapshot.groups if group.name in plan.launch)


def _paid(plan: Replacement, snapshot: Snapshot) -> float:
    """Return the USD per hour of the nodes of the groups of which some are launched."""
    return sum(node.price for node in snapshot.work if node.group in plan.launch)


def _reduced(pending: _Pending, coming: Mapping[str, int]) -> _Pending | None:
    """Return the replacement of as many nodes as those that come allow; None for none."""
    plan = pending.plan
    share = min(coming[name] / number for name, number in plan.launch.items())
    victims = plan.victims[: int(len(plan.victims) * share + 1e-9)]
    if not victims:
        return None
    goals = {name: pending.goals[name] - number + coming[name] for name, number in plan.launch.items()}
    return replace(pending, plan=replace(plan, victims=victims, launch=coming), goals=goals)


def _leave_text(plan: Replacement) -> str:
    tasks = "its tasks have" if len(plan.victims) == 1 else "their tasks have"
    leave = f"{plan.dear_text} {'leaves' if len(plan.victims) == 1 else 'leave'} once {tasks} ended"
    if not plan.launch:
        return f"{leave}, since cheaper nodes have room for them"
    has = "has" if sum(plan.launch.values()) == 1 else "have"
    place = "its place" if len(plan.victims) == 1 else "their place"
    return f"{leave}, since {plan.cheap_text} {has} taken {place}"
