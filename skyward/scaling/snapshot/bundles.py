"""Groups, nodes and needs in the terms of the planner, where slots and capabilities are resources too."""

from collections.abc import Mapping, Sequence

from skyward.scaling.ray.planner import Existing, NodeType, PlanRequest, plan
from skyward.scaling.snapshot.values import Demand, Group
from skyward.values.needs import Needs, Resources

__all__ = ["bundle", "floor_nodes", "free_of", "node_type"]

SLOT = "slot"


def node_type(group: Group, *, least: int | None = None) -> NodeType:
    """Return the group as a node type, with a minimum of `least` instead of the group's own."""
    return NodeType(
        free_of(group, group.resources, busy=0),
        group.min if least is None else least,
        group.max,
        group.idle_timeout,
        hourly_price=group.hourly_price,
    )


def free_of(group: Group, free: Resources, *, busy: int) -> dict[str, float]:
    """Return the free resources of a node of the group with `busy` tasks, including slots and capabilities."""
    slots = float(max(group.slots - busy, 0))
    return {**free, SLOT: slots, **{f"can {name}": slots for name in sorted(group.capabilities)}}


def bundle(needs: Needs) -> dict[str, float]:
    """Return what a task takes of its node: its resources, a slot, and one unit of each capability."""
    return {**needs.resources, SLOT: 1.0, **{f"can {name}": 1.0 for name in sorted(needs.capabilities)}}


def floor_nodes(groups: Sequence[Group], floor: Sequence[Demand], counts: Mapping[str, int]) -> dict[str, int]:
    """Return the minimum number of nodes per group with which all of `floor` fits at once on empty nodes.

    All or nothing: a floor that can never fit requires no node. Groups that need no nodes are omitted.

    Args:
        floor: shapes, each with its count.
        counts: existing and requested nodes of each group; they are used before new ones.
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
