"""What fits where: tasks on nodes, shapes on groups."""

from collections.abc import Iterable

from skyward.scaling.snapshot import Group, Snapshot
from skyward.values.needs import NOTHING, Needs

__all__ = ["at_once", "cheapest", "never"]


def at_once(group: Group, needs: Needs) -> int:
    """Tasks of the shape that an empty node of the group runs at once; 0 where it can hold none."""
    if needs is NOTHING:
        return max(group.slots, 1)
    if not group.can_hold(needs):
        return 0
    fits = [int(group.resources[name] / amount + 1e-9) for name, amount in needs.resources.items()]
    return min([max(group.slots, 1), *fits])


def cheapest(groups: Iterable[Group], needs: Needs) -> Group | None:
    """The group of the lowest price that may have nodes and can hold the shape, the first among equals."""
    best: Group | None = None
    for group in groups:
        if (
            group.max > 0
            and (best is None or group.hourly_price < best.hourly_price)
            and (needs is NOTHING or group.can_hold(needs))
        ):
            best = group
    return best


def never(snapshot: Snapshot) -> tuple[Needs, ...]:
    """The shapes that wait and that no group can ever hold."""
    shapes = dict.fromkeys(demand.needs for demand in snapshot.demands if demand.count)
    shapes |= dict.fromkeys(needs for gang in snapshot.gangs for needs in gang)
    return tuple(needs for needs in shapes if cheapest(snapshot.groups, needs) is None)
