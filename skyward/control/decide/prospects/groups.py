"""Prospects of the groups of a pool: which can launch nodes now, and what waits in vain. Decides only; no I/O.

A shape of tasks waits in vain if no node that could hold it is active or boots, and every group that could is
obstructed: for good, or for longer than the patience of the limits. Tasks that are pinned to a node wait in vain if no
machine for it can be requested for as long, whatever other nodes there are.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from skyward.control.decide.machines.budget import Ledger, budget_parts
from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.machines.table import Machine
from skyward.formatting import count_text, money_text
from skyward.scaling.snapshot import Group
from skyward.values.needs import Needs

__all__ = ["GroupObstacle", "Prospects", "VainWait"]

RAISE_BUDGET = (
    "raise the budget to continue: `pool.set_budget(USD)`, `%sky up NAME --budget USD` in a notebook, or "
    "`--budget USD` on the command line"
)

ANY_MACHINE = (0,)
"""A machine that was never requested; numbers of machines start at 1."""


@dataclass(frozen=True, slots=True)
class GroupObstacle:
    """The reason for which no more nodes of a group can be launched now.

    Attributes:
        why: the end of a sentence about the pool.
        is_final: True if waiting does not help.
    """

    kind: Literal["failed", "closed", "budget", "full", "sold out"]
    why: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class VainWait:
    """The end of tasks that wait in vain. `why`: the end of a sentence about the pool."""

    why: str
    outcome: Literal["abandoned", "unfunded"]


@dataclass
class Prospects:
    """Prospects of one pool's groups.

    Attributes:
        groups: the groups, by name, with their present bounds.
        max_nodes: maximum over all groups; None for no limit but theirs.
        failures: why nodes of a group could not be started, by group: the end of a sentence about the pool.
        group_of: returns the group of a machine as it was when the machine was launched; None while that is the same.
    """

    groups: Mapping[str, Group]
    reconciler: Reconciler
    ledger: Ledger
    max_nodes: int | None = None
    failures: dict[str, str] = field(default_factory=dict)
    group_of: Callable[[Machine], Group] | None = None
    _in_vain_since: dict[Needs, float] = field(default_factory=dict)
    _missing_since: dict[int, float] = field(default_factory=dict)

    @property
    def are_clear(self) -> bool:
        """True if nothing can obstruct a group: neither failures, nor refusals, nor limits of the whole pool."""
        reconciler = self.reconciler
        is_limited = self.ledger.budget is not None or self.max_nodes is not None
        return (
            not (is_limited or reconciler.given_up or reconciler.has_failed) and reconciler.requester.backoff.is_clear
        )

    def obstacles(self, now: float) -> dict[str, GroupObstacle]:
        """Return the obstacles of the groups that have one."""
        if self.are_clear:
            return {}
        found = {name: self._obstacle(name, now) for name in self.groups}
        return {name: obstacle for name, obstacle in found.items() if obstacle is not None}

    def _obstacle(self, name: str, now: float) -> GroupObstacle | None:
        of_requests = self._obstacle_of_requests(name, ANY_MACHINE, now)
        if of_requests is not None and of_requests.kind == "closed":
            return of_requests
        if self.reconciler.has_given_up(name):
            return GroupObstacle("failed", self.failures.get(name, "could not start a node"), is_final=True)
        if of_requests is not None and of_requests.is_final:
            return of_requests
        if self.max_nodes is not None and (why := self._full(name, self.max_nodes)):
            return GroupObstacle("full", why, is_final=True)
        if now < self.reconciler.failing_until(name):
            return GroupObstacle("failed", self.failures.get(name, "could not start a node"))
        return of_requests

    def _full(self, name: str, max_nodes: int) -> str:
        """Return why the maximum over all groups never has room for a node of a group; empty if it may have."""
        least = {other: group.min for other, group in self.groups.items() if other != name}
        given = next((other for other, count in least.items() if count), None)
        head, stays = self.reconciler.head, ""
        if head in least and any(least.values()) and not least[head]:  # node 0 stays while there is any other
            least[head], stays = 1, f", with node 0, of group {head!r}, which stays as long as any other"
        if given is None or sum(least.values()) < max_nodes:
            return ""
        return (
            f"has no room for a node of group {name!r}: it may have at most {count_text(max_nodes)} in total "
            f"(max_nodes), and the minimum of its other groups is {count_text(sum(least.values()))}{stays}; lower a "
            f"minimum, with `pool.resize(nodes, group={given!r})`"
        )

    def _obstacle_of_requests(self, group: str, machine: Iterable[int], now: float) -> GroupObstacle | None:
        """Return why this machine, a node of a group, cannot be requested now: by its sources, or by the budget."""
        reconciler, ledger = self.reconciler, self.ledger
        if reconciler.is_closed(group):
            return GroupObstacle("closed", f"gets no more machines: {reconciler.last_refusal(group)}", is_final=True)
        price = reconciler.price_now(group, now)
        node = f"a node for {money_text(price)}/h"
        if not ledger.could_pay(reconciler.lowest_price(group), now):
            parts = budget_parts(ledger, node, price, now, beside_others=False)
            return GroupObstacle("budget", _unaffordable("another node", parts), is_final=True)
        if reconciler.paused_until(group, now) > now:
            return GroupObstacle("sold out", f"gets no machine now: {reconciler.last_refusal(group)}")
        if not ledger.affordable(machine, price, now):
            parts = budget_parts(ledger, node, price, now, beside_others=True)
            return GroupObstacle("budget", _unaffordable("another node", parts))
        return None

    # For the policies.

    def blocked(self, shapes: Iterable[Needs], now: float) -> dict[str, GroupObstacle]:
        """Return the obstacles of the groups in place of which others are to be launched.

        A group for which waiting does not help is one, if another can launch nodes; so is one that is obstructed for
        now, if another could hold some of the waiting `shapes` that it can hold.
        """
        obstacles = self.obstacles(now)
        free = [group for name, group in self.groups.items() if name not in obstacles and self._has_room(group)]
        if not free:
            return {}
        waiting = list(shapes)

        def has_substitute(group: Group) -> bool:
            return any(group.can_hold(needs) and any(other.can_hold(needs) for other in free) for needs in waiting)

        return {name: each for name, each in obstacles.items() if each.is_final or has_substitute(self.groups[name])}

    def _has_room(self, group: Group) -> bool:
        return self.reconciler.effective(group.name) < group.max

    def limited(self, blocked: Collection[str]) -> tuple[Group, ...]:
        """Return the groups for a policy: those that are blocked have no more nodes than are there, or come."""
        return tuple(self._limited(group) if name in blocked else group for name, group in self.groups.items())

    def _limited(self, group: Group) -> Group:
        coming = self.reconciler.effective(group.name) - self.reconciler.unrequested(group.name)
        return replace(group, min=min(group.min, coming), max=min(group.max, coming), can_launch=False)

    # For the tasks.

    def in_vain(self, shapes: Iterable[Needs], now: float) -> dict[Needs, VainWait]:
        """Return how the tasks of those of these waiting shapes end for which no node can come."""
        if self.are_clear:
            self._in_vain_since.clear()
            return {}
        obstacles = self.obstacles(now)
        if not (obstacles or self._in_vain_since):
            return {}
        waiting = set(shapes)
        for needs in [each for each in self._in_vain_since if each not in waiting]:
            del self._in_vain_since[needs]
        ends = ((needs, self._end(needs, obstacles, now)) for needs in waiting)
        return {needs: end for needs, end in ends if end is not None}

    def pinned_in_vain(self, ranks: Iterable[int], now: float) -> dict[int, VainWait]:
        """Return how the tasks pinned to those of these ranks end whose nodes cannot come."""
        waiting = set(ranks)
        for rank in [each for each in self._missing_since if each not in waiting]:
            del self._missing_since[rank]
        ends = ((rank, self._end_of_rank(rank, now)) for rank in sorted(waiting))
        return {rank: end for rank, end in ends if end is not None}

    def forget_waits(self) -> None:
        """Forget since when tasks have waited in vain: nothing waits any more."""
        self._in_vain_since.clear()
        self._missing_since.clear()

    def _end(self, needs: Needs, obstacles: Mapping[str, GroupObstacle], now: float) -> VainWait | None:
        able = [group.name for group in self.groups.values() if group.can_hold(needs) and self._may_have(group)]
        if not able or any(self._has_node_for(needs, name) for name in able):
            self._in_vain_since.pop(needs, None)
            return None
        if any(map(self.reconciler.requested, able)):
            return None
        found = {name: obstacles[name] for name in able if name in obstacles}
        if len(found) < len(able):
            return None
        since = self._in_vain_since.setdefault(needs, now)
        if not all(each.is_final for each in found.values()):
            if now - since <= self.reconciler.limits.patience:
                return None
            found = {name: each for name, each in found.items() if not each.is_final}
        return self._vain_wait(found, now)

    def _end_of_rank(self, rank: int, now: float) -> VainWait | None:
        assignment = self.reconciler.table.assignments.get(rank)
        if assignment is None:
            return VainWait(f"has no node {rank} any more", "abandoned")
        machine = assignment.machine
        if machine.state == "REQUESTED":
            return None  # the answer will tell
        if machine.state != "QUEUED" or self.are_clear:
            self._missing_since.pop(rank, None)
            return None
        found = self._obstacle_of_requests(machine.group, (machine.id,), now)
        if found is None:
            return None
        since = self._missing_since.setdefault(rank, now)
        if not found.is_final and now - since <= self.reconciler.limits.patience:
            return None
        end = self._vain_wait({machine.group: found}, now)
        return replace(end, why=f"cannot start node {rank}: it {end.why}")

    def _vain_wait(self, found: Mapping[str, GroupObstacle], now: float) -> VainWait:
        """Return the end of tasks for these obstacles, by group: all are final, or have lasted for the patience."""
        whys = dict.fromkeys(each.why for each in found.values())
        is_money = all(each.kind == "budget" for each in found.values())
        if is_money and len(found) > 1:
            prices = [(name, self.reconciler.price_now(name, now)) for name in found]
            of_groups = (f"of {name!r} for {money_text(price)}/h" for name, price in prices)
            beside_others = not all(each.is_final for each in found.values())
            parts = budget_parts(self.ledger, "the node", None, now, beside_others=beside_others)
            whys = dict.fromkeys([_unaffordable(f"another node {' or '.join(of_groups)}", parts)])
        minutes = self.reconciler.limits.patience / 60
        waited = "" if all(each.is_final for each in found.values()) else f", for over {minutes:g} minutes"
        return VainWait("; it ".join(whys) + waited, "unfunded" if is_money else "abandoned")

    def _has_node_for(self, needs: Needs, name: str) -> bool:
        """Return whether a node of a group that could hold `needs` is active, or a machine for one is allocated."""
        if self.group_of is None or not self.reconciler.has_machine(name):
            return self.reconciler.has_machine(name)
        machines = self.reconciler.table.of(name, "active", "booting")
        there = (machine for machine in machines if machine.state not in ("QUEUED", "REQUESTED"))
        return any(self.group_of(machine).can_hold(needs) for machine in there)

    def _may_have(self, group: Group) -> bool:
        return group.max > 0 or self.reconciler.effective(group.name) > 0


def _unaffordable(what: str, parts: str) -> str:
    """Return that the budget does not cover `what`. `parts`: those of the budget."""
    return f"cannot afford {what}: {parts}; {RAISE_BUDGET}"
