"""Groups, nodes and needs in the words of the planner, where slots and capabilities are resources like any other."""

from collections.abc import Mapping, Sequence

from skyward.scaling.planner import Existing, NodeType, PlanRequest, plan
from skyward.scaling.snapshot import Demand, Group
from skyward.values.needs import Needs, Resources

__all__ = ["bundle", "floor_nodes", "free_of", "node_type"]

SLOT = "slot"


def node_type(group: Group, *, least: int | None = None) -> NodeType:
    """The group as something to launch, with at least `least` of it in place of the group's min."""
    return NodeType(
        free_of(group, group.resources, busy=0),
        group.min if least is None else least,
        group.max,
        group.idle_timeout,
    )


def free_of(group: Group, free: Resources, *, busy: int) -> dict[str, float]:
    """What a node of the group has left while it holds `busy` tasks and `free` of its resources is left."""
    slots = float(max(group.slots - busy, 0))
    return {**free, SLOT: slots, **{f"can {name}": slots for name in sorted(group.capabilities)}}


def bundle(needs: Needs) -> dict[str, float]:
    """What a task takes of its node: a slot, one for each capability, and its resources."""
    return {**needs.resources, SLOT: 1.0, **{f"can {name}": 1.0 for name in sorted(needs.capabilities)}}


def floor_nodes(groups: Sequence[Group], floor: Sequence[Demand], counts: Mapping[str, int]) -> dict[str, int]:
    """How many nodes each group must have at least, so that all of `floor` would fit at once were they empty.

    All or nothing: a floor that cannot fit, whatever is launched, asks for no node. Groups that need none are left out.

    Args:
        floor: shapes, each with how many of it.
        counts: nodes of each group that there are or will be; they are used before new ones.
    """
    if not floor:
        return {}
    names = [group.name for group in groups for _ in range(counts.get(group.name, 0))]
    made = plan(
        PlanRequest(
            {group.name: node_type(group, least=0) for group in groups},
            [Existing(str(number), name) for number, name in enumerate(names)],
            floor=[(bundle(demand.needs), demand.count) for demand in floor],
        )
    )
    return dict(made.floor_nodes)
