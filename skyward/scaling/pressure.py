"""Policy by load: scale up at once for waiting tasks; scale down idle or lightly used groups."""

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from skyward.formatting import count_text
from skyward.scaling.snapshot import Counts, Decision, Group, Snapshot
from skyward.scaling.snapshot.fitting import at_once, cheapest, never
from skyward.scaling.snapshot.gang_placement import GangPlan, gang_nodes
from skyward.scaling.snapshot.gang_text import gangs_wait
from skyward.scaling.snapshot.wording import (
    NO_MORE,
    beyond_bounds,
    enough_text,
    idle_text,
    more_text,
    seconds_text,
    slots_busy,
    steady,
    tasks_wait,
)
from skyward.values.needs import Needs

__all__ = ["LOW_UTILISATION", "GroupDecision", "Pressure", "desired_nodes"]

LOW_UTILISATION = 0.3
"""Share of busy slots below which nodes are removed."""


class GroupDecision(NamedTuple):
    """Desired number of nodes of one group.

    Attributes:
        reason: empty if nothing changes.
        settled: True if it scales down after an idle timeout: it applies once the cooldown of the last change is over.
    """

    desired: int
    reason: str = ""
    settled: bool = False


def desired_nodes(
    *,
    queued: int,
    inflight: int,
    nodes: int,
    desired: int,
    min: int,
    max: int,
    slots: int,
    idle_for: float,
    idle_timeout: float,
    capacity: int | None = None,
    worth: float | None = None,
    can_launch: bool = True,
) -> GroupDecision:
    """Return the desired number of nodes of a group, by the first rule that applies.

    1. Tasks wait: the active nodes plus the nodes that the waiting tasks fill, up to `max`. Never fewer than decided
       before, so repeated calls are idempotent.
    2. No task has run for longer than `idle_timeout`: `min`.
    3. Tasks run on less than 30 % of the slots: the nodes that they fill, plus one.
    4. Otherwise, no change.

    Args:
        queued, inflight: numbers of waiting and of running tasks.
        nodes: number of active nodes.
        desired: the last decision.
        slots: slots per node.
        idle_for: seconds since it last had a task.
        capacity: slots of the active nodes; `nodes * slots` by default.
        worth: nodes that the waiting tasks fill; `queued / slots` by default.
        can_launch: False if `max` is the number of nodes that are there or come, as no more can be launched now.
    """
    slots = slots if slots > 0 else 1
    capacity = nodes * slots if capacity is None else capacity
    if queued > 0:
        more = ceil(queued / slots) if worth is None else ceil(worth - 1e-9)
        wanted = nodes + more
        aim = _within(wanted if wanted > desired else desired, min, max)
        if aim == desired:
            return GroupDecision(aim)
        if wanted <= desired:
            return GroupDecision(aim, beyond_bounds(desired, aim, can_launch=can_launch))
        free = f"{tasks_wait(queued)} and {slots_busy(inflight, capacity)}"
        coming = desired - nodes
        requested = f" ({coming:,} {'is' if coming == 1 else 'are'} already requested)" if coming > 0 else ""
        share = f", for {count_text(slots, 'task')} each" if worth is None else ", for the resources that they request"
        needed = f"{more_text(more)}{share if more > 1 else ''}{requested}"
        return GroupDecision(aim, f"{free}, so {needed}{_limited(wanted, aim, can_launch)}")
    kept = _within(desired, min, max)
    if inflight == 0:
        if idle_for > idle_timeout and min < kept:
            enough = enough_text(min) if min else "no node is needed"
            if min and can_launch:
                enough = f"the minimum of {count_text(min)} is enough"
            return GroupDecision(min, f"no task has run {idle_text(idle_for, idle_timeout)}, so {enough}", settled=True)
    elif capacity > 0 and inflight / capacity < LOW_UTILISATION:
        few = ceil(inflight / slots) + 1
        aim = few if few > min else min
        if aim < kept:
            share = f"{few - 1:,} for the running task{'s' * (inflight > 1)} and 1 spare"
            busy = f"{slots_busy(inflight, capacity)}, less than {LOW_UTILISATION:.0%}"
            return GroupDecision(aim, f"{busy}, so {enough_text(few)}: {share}{_limited(few, aim, can_launch)}")
    if kept != desired:
        return GroupDecision(kept, beyond_bounds(desired, kept, can_launch=can_launch))
    return GroupDecision(kept)


def _limited(wanted: int, aim: int, can_launch: bool) -> str:
    """Return the bound that a number of nodes was limited to; empty for none."""
    if wanted == aim:
        return ""
    if not can_launch:
        return f", but {NO_MORE}" if aim < wanted else f", but {count_text(aim)} must stay"
    return f", but the {'maximum' if aim < wanted else 'minimum'} is {count_text(aim)}"


def _within(count: int, least: int, most: int) -> int:
    return most if count > most else least if count < least else count


@dataclass(frozen=True, slots=True)
class Pressure:
    """Scales each group by its waiting and running tasks; see `desired_nodes`.

    A waiting task counts for the cheapest group whose nodes can hold it; ties go to the first. If no task waits, nodes
    that were idle for the idle timeout are removed too, except one; otherwise a pool at half load would keep its peak
    size.

    Attributes:
        name: name of the policy.
        interval: seconds between decisions while nothing happens; None for the pool's cooldown.

    Example:
        >>> sky.Compute(nodes=(1, 8), policy="pressure")
    """

    name: str = "pressure"
    interval: float | None = None

    def decide(self, snapshot: Snapshot) -> Decision:
        """Return the decision for `snapshot`, within the bounds of every group and of `max_nodes`."""
        queues, infeasible = _assign(snapshot)
        outcomes = {group.name: _outcome(group, queues.get(group.name, _NONE), snapshot) for group in snapshot.groups}
        gangs = gang_nodes(snapshot)
        _grow_for_gangs(outcomes, gangs, snapshot)
        if snapshot.max_nodes is not None:
            _cap(outcomes, snapshot, snapshot.max_nodes)
        idle = {} if snapshot.has_waiting else _idle_times(snapshot)
        if idle:
            _shrink_by_idle(outcomes, idle, snapshot)
        changes = [(name, each) for name, each in outcomes.items() if each.reason]
        shrinking = [each for name, each in changes if each.desired < snapshot.counts[name].desired]
        alone = len(snapshot.groups) == 1
        reasons = [each.reason if alone else f"{name}: {each.reason}" for name, each in changes]
        return Decision(
            {name: each.desired for name, each in outcomes.items()},
            "; ".join(reasons) or steady(snapshot),
            victims=tuple(sorted(idle, key=lambda rank: (-round(idle[rank]), -rank))) if shrinking else (),
            settled=bool(shrinking) and all(each.settled for each in shrinking),
            infeasible=infeasible,
        )


def _grow_for_gangs(outcomes: dict[str, GroupDecision], gangs: GangPlan, snapshot: Snapshot) -> None:
    """Raise the groups to the nodes that the waiting gangs need, and keep those that they wait for."""
    for name, each in outcomes.items():
        least = gangs.least(name)
        if each.desired >= least:
            continue
        more = least - snapshot.counts[name].desired
        parts = [part for part in (each.reason, f"{gangs_wait(snapshot)}, so {more_text(more)}") if part]
        outcomes[name] = GroupDecision(least, "; ".join(parts) if more > 0 else "")


@dataclass(slots=True)
class _Queue:
    """Waiting tasks of one group: their number, and the number of nodes that they fill."""

    tasks: int = 0
    nodes: float = 0.0
    plain: bool = True


_NONE = _Queue()


def _outcome(group: Group, queue: _Queue, snapshot: Snapshot) -> GroupDecision:
    """Return the outcome for one group, regardless of the others."""
    counts = snapshot.counts[group.name]
    return desired_nodes(
        queued=queue.tasks,
        inflight=counts.busy,
        nodes=counts.active,
        desired=counts.desired,
        min=group.min,
        max=group.max,
        slots=group.slots,
        idle_for=_idle_for(group, counts, snapshot),
        idle_timeout=snapshot.idle_timeout if group.idle_timeout is None else group.idle_timeout,
        worth=None if queue.plain else queue.nodes,
        can_launch=group.can_launch,
    )


def _idle_times(snapshot: Snapshot) -> dict[int, float]:
    """Return the idle time of each idle node except the head, in seconds."""
    return {
        node.rank: node.idle_for for node in snapshot.nodes if node.rank and node.stage == "active" and node.idle_for
    }


def _shrink_by_idle(outcomes: dict[str, GroupDecision], idle: dict[int, float], snapshot: Snapshot) -> None:
    """Reduce groups, some of whose nodes are busy, by nodes that were idle for the idle timeout."""
    for group in snapshot.groups:
        counts, outcome = snapshot.counts[group.name], outcomes[group.name]
        if outcome.reason or not counts.busy or counts.desired <= group.min:
            continue
        timeout = snapshot.idle_timeout if group.idle_timeout is None else group.idle_timeout
        long = sum(node.group == group.name and idle.get(node.rank, 0.0) > timeout for node in snapshot.nodes)
        needed = ceil(counts.busy / max(group.slots, 1)) + 1
        aim = max(group.min, needed, counts.active + counts.booting - long)
        if aim < outcome.desired:
            idle_nodes = f"{count_text(long)} {'was' if long == 1 else 'were'} idle"
            reason = f"{idle_nodes} for longer than the idle timeout of {seconds_text(timeout)}, so {enough_text(aim)}"
            outcomes[group.name] = GroupDecision(aim, reason, settled=True)


def _cap(outcomes: dict[str, GroupDecision], snapshot: Snapshot, most: int) -> None:
    """Limit growth to `most` nodes in total: minimums first, then groups in order."""
    owed = {group.name: max(group.min, snapshot.counts[group.name].desired) for group in snapshot.groups}
    room = most - sum(min(owed[name], each.desired) for name, each in outcomes.items())
    for name, each in outcomes.items():
        more = each.desired - owed[name]
        given = max(0, min(more, room))
        if more > given:
            changed = owed[name] + given != snapshot.counts[name].desired
            reason = f"{each.reason}, but the maximum of the pool is {count_text(most)}" if changed else ""
            outcomes[name] = GroupDecision(owed[name] + given, reason)
        room -= given


def _assign(snapshot: Snapshot) -> tuple[dict[str, _Queue], tuple[Needs, ...]]:
    """Return the waiting tasks of each group, and the shapes that no group can hold."""
    queues: dict[str, _Queue] = {}
    infeasible: dict[Needs, None] = {}
    for demand in snapshot.demands:
        if not demand.count:
            continue
        group = cheapest(snapshot.groups, demand.needs)
        if group is None:
            infeasible[demand.needs] = None
            continue
        queue = queues.setdefault(group.name, _Queue())
        fits = at_once(group, demand.needs)
        queue.tasks += demand.count
        queue.nodes += demand.count / fits
        queue.plain = queue.plain and fits == group.slots
    return queues, never(snapshot) if snapshot.gangs else tuple(infeasible)


def _idle_for(group: Group, counts: Counts, snapshot: Snapshot) -> float:
    """Return seconds since the group last had a task; from its own nodes if another group is busy."""
    if counts.busy or len(snapshot.groups) == 1 or snapshot.idle_for > 0:
        return snapshot.idle_for
    return min((node.idle_for for node in snapshot.nodes if node.group == group.name), default=0.0)
