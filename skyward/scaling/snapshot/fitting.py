"""Fitting of tasks on nodes, and of shapes on groups."""

from collections.abc import Iterable, Mapping

from skyward.scaling.snapshot.values import Counts, Group, Snapshot
from skyward.values.needs import NOTHING, Needs

__all__ = ["at_once", "cheapest", "never", "slots_taken", "usual_at_once"]


def at_once(group: Group, needs: Needs) -> int:
    """Return how many tasks of the shape an empty node of the group runs at once; 0 if it cannot hold one."""
    if needs is NOTHING:
        return max(group.slots, 1)
    if not group.can_hold(needs):
        return 0
    fits = [int(group.resources[name] / amount + 1e-9) for name, amount in needs.resources.items()]
    return min([max(group.slots, 1), *fits])


def slots_taken(group: Group, counts: Counts) -> float:
    """Return the slots that the running tasks of a group take, with those that no resources are left for.

    Of nodes with four slots and the resources for two tasks, each task takes two slots.
    """
    if not counts.shapes:
        return counts.busy
    slots = max(group.slots, 1)
    taken = sum(number * slots / (at_once(group, needs) or slots) for needs, number in counts.shapes.items())
    taken += max(0, counts.busy - sum(counts.shapes.values()))
    return max(counts.busy, min(taken, counts.active * slots))


def usual_at_once(group: Group, shapes: Mapping[Needs, int], others: int) -> float | None:
    """Return how many tasks a node of the group runs at once, on average over tasks; None without tasks that it holds.

    Args:
        shapes: numbers of tasks, by shape.
        others: number of tasks that need no resources.
    """
    slots = max(group.slots, 1)
    fits = [(number, at_once(group, needs)) for needs, number in shapes.items()]
    tasks = others + sum(number for number, fit in fits if fit)
    nodes = others / slots + sum(number / fit for number, fit in fits if fit)
    return tasks / nodes if tasks > 0 else None


def cheapest(groups: Iterable[Group], needs: Needs) -> Group | None:
    """Return the cheapest group that may have nodes and can hold the shape; ties go to the first.

    A group that can launch no nodes now is chosen only if there is no other.
    """
    best: Group | None = None
    for group in groups:
        if (
            group.max > 0
            and (best is None or _rank(group) < _rank(best))
            and (needs is NOTHING or group.can_hold(needs))
        ):
            best = group
    return best


def _rank(group: Group) -> tuple[bool, float]:
    return not group.can_launch, group.hourly_price


def never(snapshot: Snapshot) -> tuple[Needs, ...]:
    """Return the waiting shapes that no group can hold."""
    shapes = dict.fromkeys(demand.needs for demand in snapshot.demands if demand.count)
    shapes |= dict.fromkeys(needs for gang in snapshot.gangs for needs in gang.needs)
    return tuple(needs for needs in shapes if cheapest(snapshot.groups, needs) is None)
