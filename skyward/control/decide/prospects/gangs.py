"""Prospects of waiting gangs: which of them can never have enough nodes at once, and why. Decides only; no I/O.

A gang ends if it does not fit on the nodes that the groups have and can launch, where a group that has failed, or is
closed, gets no more; if the budget does not cover all of the nodes that it lacks, of which then none is launched; or if
the groups that it lacks nodes of are sold out for longer than the patience of the limits.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

from skyward.control.decide.machines.budget import budget_parts
from skyward.control.decide.prospects.groups import RAISE_BUDGET, GroupObstacle, Prospects
from skyward.formatting import count_text, money_text
from skyward.scaling.snapshot import GangDemand, Group
from skyward.scaling.snapshot.gang_placement import gang_fits, gang_launches
from skyward.scaling.snapshot.gang_text import gang_text, maximum_text
from skyward.values.needs import Needs

__all__ = ["GangEnd", "GangProspects"]


@dataclass(frozen=True, slots=True)
class GangEnd:
    """The end of a gang that can never start. `reason`: the end of a sentence about the pool, or what it asks for."""

    outcome: Literal["infeasible", "abandoned", "unfunded"]
    reason: str


@dataclass(slots=True)
class _Known:
    """Results for some groups, until they change.

    Attributes:
        there: nodes that the groups have.
        is_priced: True if the nodes to launch were looked for, which only a budget needs.
        launches: for each gang, the cheapest nodes to launch; None if it does not fit on the groups.
    """

    groups: tuple[Group, ...] = ()
    there: dict[str, int] = field(default_factory=dict)
    is_priced: bool = False
    launches: dict[int, Mapping[str, int] | None] = field(default_factory=dict)


@dataclass(slots=True)
class _Short:
    """A gang that lacks nodes of groups that are sold out: since when, and with how many nodes at most."""

    since: float
    nodes: int


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The state that decides how waiting gangs end, beside the time and the costs: while it stays, so do the ends.

    Attributes:
        groups: the groups, with as many nodes at most as they can have.
        coming: nodes that each of them has, or that are at least requested.
        obstacles: kind of the obstacle of each group that has one, and whether it is final.
        awaits_answer: True if a request is unanswered, where that matters.
        is_priced: True if the pool has a budget.
    """

    groups: tuple[Group, ...] = ()
    coming: tuple[int, ...] = ()
    obstacles: frozenset[tuple[str, str, bool]] = frozenset()
    awaits_answer: bool = False
    is_priced: bool = False


@dataclass
class GangProspects:
    """Prospects of one pool's waiting gangs, which are told apart by their numbers.

    A gang is looked at when it begins to wait, when the state changes that its end depends on, when the first of those
    that lack nodes has waited for the patience, and when the budget no longer covers the dearest one; not otherwise, so
    that a message costs no more while thousands of gangs wait.
    """

    prospects: Prospects
    _ever: _Known = field(default_factory=_Known)
    _now: _Known = field(default_factory=_Known)
    _short: dict[int, _Short] = field(default_factory=dict)
    _inputs: _Inputs = field(default_factory=_Inputs)
    _short_since: float = inf
    _dearest: float = 0.0

    def ends(
        self,
        waiting: Mapping[int, GangDemand],
        fresh: Mapping[int, GangDemand],
        fixed: Mapping[str, int] | None,
        now: float,
    ) -> dict[int, GangEnd]:
        """Return how those of the waiting gangs end that can never start.

        Args:
            fresh: those that began to wait since the last call.
            fixed: the only numbers of nodes that the groups will have; None if they may grow.
        """
        for number in fresh:
            self._short.pop(number, None)
        obstacles = self.prospects.obstacles(now)
        stopped = {
            name: each
            for name, each in obstacles.items()
            if each.kind in ("failed", "closed", "full") and each.is_final
        }
        groups = tuple(self._at_most(group, stopped, fixed, now) for group in self.prospects.groups.values())
        inputs = self._inputs_of(groups, obstacles)
        if inputs != self._inputs or self._is_due(now):
            self._inputs, fresh = inputs, waiting
            self._short_since, self._dearest = inf, 0.0
            for number in self._short.keys() - waiting.keys():
                del self._short[number]
        if not fresh:
            return {}
        self._look_at(self._ever, groups, waiting)
        ends = ((number, self._end(number, gang, groups, obstacles, fixed, now)) for number, gang in fresh.items())
        return {number: end for number, end in ends if end is not None}

    def _inputs_of(self, groups: tuple[Group, ...], obstacles: Mapping[str, GroupObstacle]) -> _Inputs:
        return _Inputs(
            groups,
            tuple(self._coming(group.name) for group in groups),
            frozenset((name, each.kind, each.is_final) for name, each in obstacles.items()),
            bool(obstacles or self._short) and any(map(self.prospects.reconciler.requested, self.prospects.groups)),
            self.prospects.ledger.budget is not None,
        )

    def _is_due(self, now: float) -> bool:
        """Return whether a waiting gang may end because of the time that has passed, or of the costs since then."""
        if self._dearest and not self._could_pay(self._dearest, now):
            return True
        return now - self._short_since > self.prospects.reconciler.limits.patience

    def replaceable(self, waiting: Mapping[int, GangDemand], now: float) -> set[Needs]:
        """Return the needs of the waiting gangs that could start without more nodes of the groups with an obstacle."""
        obstacles = self.prospects.obstacles(now)
        if not obstacles:
            return set()
        groups = tuple(self._at_most(group, obstacles, None, now) for group in self.prospects.groups.values())
        self._look_at(self._now, groups, waiting)
        able = (gang for number, gang in waiting.items() if self._launches(self._now, number, gang) is not None)
        return {needs for gang in able for needs in gang.needs}

    def _end(
        self,
        number: int,
        gang: GangDemand,
        groups: tuple[Group, ...],
        obstacles: Mapping[str, GroupObstacle],
        fixed: Mapping[str, int] | None,
        now: float,
    ) -> GangEnd | None:
        launches = self._launches(self._ever, number, gang)
        if launches is None:
            whys = self._whys(gang, obstacles, ("failed", "closed"))
            if whys:
                return GangEnd("abandoned", f"cannot start enough nodes for {gang_text(gang)}: it {whys}")
            most = maximum_text(groups, self.prospects.max_nodes)
            adds = ", and policy 'no' adds none" if fixed is not None else ""
            if self.prospects.max_nodes is not None and (head := self._staying_head) is not None:
                adds += f", and node 0, of group {head!r}, stays as long as any other"
            return GangEnd("infeasible", f"{gang_text(gang)}, which need more nodes than there are, {most}{adds}")
        per_hour = sum(launches.get(group.name, 0) * group.hourly_price for group in groups) if launches else 0.0
        if per_hour and not self._could_pay(per_hour, now):
            return GangEnd("unfunded", self._unaffordable(gang, sum(launches.values()), per_hour, now))
        self._dearest = max(self._dearest, per_hour)
        if self._waits_too_long(number, gang, groups, obstacles, now):
            minutes = f"{self.prospects.reconciler.limits.patience / 60:g} minutes"
            whys = self._whys(gang, obstacles, ("sold out",))
            return GangEnd(
                "abandoned", f"cannot start enough nodes for {gang_text(gang)}: it {whys}, for over {minutes}"
            )
        return None

    def _waits_too_long(
        self,
        number: int,
        gang: GangDemand,
        groups: tuple[Group, ...],
        obstacles: Mapping[str, GroupObstacle],
        now: float,
    ) -> bool:
        """Return whether the gang has lacked nodes of groups that are sold out for longer than the patience."""
        reconciler = self.prospects.reconciler
        sold_out = {
            name for name, each in obstacles.items() if each.kind in ("sold out", "failed") and not each.is_final
        }
        if not sold_out and number not in self._short:
            return False
        if any(map(reconciler.requested, self.prospects.groups)):
            return False  # the answer will tell
        there = tuple(replace(group, max=min(group.max, self._coming(group.name))) for group in groups)
        if gang_fits(there, gang, self.prospects.max_nodes):
            self._short.pop(number, None)
            return False
        without = tuple(
            limited if group.name in sold_out else group for group, limited in zip(groups, there, strict=True)
        )
        if not sold_out or gang_fits(without, gang, self.prospects.max_nodes):
            return False
        nodes = sum(map(self._coming, self.prospects.groups))
        short = self._short.setdefault(number, _Short(now, nodes))
        if nodes > short.nodes:
            short.since, short.nodes = now, nodes
        self._short_since = min(self._short_since, short.since)
        return now - short.since > reconciler.limits.patience

    def _look_at(self, known: _Known, groups: tuple[Group, ...], waiting: Collection[int]) -> None:
        """Forget what was found for other groups, and for gangs that wait no more."""
        there = {group.name: self._coming(group.name) for group in groups}
        is_priced = known is self._ever and self.prospects.ledger.budget is not None
        if (known.groups, known.there, known.is_priced) != (groups, there, is_priced):
            known.groups, known.there, known.is_priced, known.launches = groups, there, is_priced, {}
        if len(known.launches) > len(waiting):
            known.launches = {number: known.launches[number] for number in waiting if number in known.launches}

    def _launches(self, known: _Known, number: int, gang: GangDemand) -> Mapping[str, int] | None:
        """Return the cheapest nodes to launch with which a gang can start; None if it does not fit on the groups."""
        if number not in known.launches:
            found: Mapping[str, int] | None = None
            if gang_fits(known.groups, gang, self.prospects.max_nodes):
                found = gang_launches(known.groups, known.there, gang) if known.is_priced else {}
            known.launches[number] = found
        return known.launches[number]

    def _at_most(self, group: Group, stopped: Collection[str], fixed: Mapping[str, int] | None, now: float) -> Group:
        """Return a group with as many nodes at most as it can have, at the price of a new one."""
        most = max(group.max, self.prospects.reconciler.effective(group.name))
        if group.name in stopped:
            most = min(most, self._coming(group.name))
        if fixed is not None:
            most = min(most, max(fixed.get(group.name, 0), self._coming(group.name)))
        least = max(group.min, 1) if group.name == self._staying_head else group.min
        return replace(group, min=least, max=most, hourly_price=self.prospects.reconciler.price_now(group.name, now))

    @property
    def _staying_head(self) -> str | None:
        """Group of node 0 if it stays, because another group always has a node; else None."""
        head = self.prospects.reconciler.head
        others = (group.min for name, group in self.prospects.groups.items() if name != head)
        return head if head is not None and not self.prospects.groups[head].min and any(others) else None

    def _coming(self, group: str) -> int:
        """Return the number of nodes that are active, or whose machines are at least requested."""
        return self.prospects.reconciler.effective(group) - self.prospects.reconciler.unrequested(group)

    def _whys(self, gang: GangDemand, obstacles: Mapping[str, GroupObstacle], kinds: Collection[str]) -> str:
        """Return the obstacles of these kinds of the groups that can hold a member."""
        found = (
            name for name, each in obstacles.items() if each.kind in kinds and self._can_hold_any(name, gang.needs)
        )
        return "; it ".join(dict.fromkeys(obstacles[name].why for name in found))

    def _can_hold_any(self, group: str, needs: Iterable[Needs]) -> bool:
        return any(self.prospects.groups[group].can_hold(each) for each in dict.fromkeys(needs))

    def _could_pay(self, per_hour: float, now: float) -> bool:
        """Return whether the budget covers more nodes that cost this much together, once those that leave are gone."""
        ledger, table = self.prospects.ledger, self.prospects.reconciler.table
        if ledger.could_pay_more(per_hour, now):
            return True
        leaving = [machine.id for name in self.prospects.groups for machine in table.of(name, "leaving")]
        return bool(leaving) and ledger.could_replace(leaving, per_hour, now)

    def _unaffordable(self, gang: GangDemand, nodes: int, per_hour: float, now: float) -> str:
        lacks = f"{count_text(nodes, 'more node')} for {money_text(per_hour)}/h in total"
        parts = budget_parts(self.prospects.ledger, lacks, per_hour, now, beside_others=True)
        return f"cannot pay for {gang_text(gang)}: {parts}; {RAISE_BUDGET}"
