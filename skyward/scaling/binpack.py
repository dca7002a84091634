"""Ray's planner as a policy: bin packing by resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from skyward.formatting import count_text, joined
from skyward.scaling.ray.planner import Existing, Gang, GangConstraint, PlanRequest, ScalingPlan, plan
from skyward.scaling.snapshot import Decision, Group, NodeLoad, Snapshot
from skyward.scaling.snapshot.bundles import bundle, free_of, node_type
from skyward.scaling.snapshot.fitting import never
from skyward.scaling.snapshot.gang_placement import gang_nodes
from skyward.scaling.snapshot.gang_text import gangs_wait
from skyward.scaling.snapshot.wording import NO_MORE, of_group, seconds_text, steady, tasks_wait
from skyward.values.gangs import GangPlacement

__all__ = ["Binpack"]

HEAD = 0

_PLACEMENTS: Mapping[GangPlacement, GangConstraint] = {
    "pack": "none",
    "spread": "none",
    "strict_pack": "same_node",
    "strict_spread": "different_nodes",
}


@dataclass(slots=True)
class Binpack:
    """Places waiting tasks on existing nodes, and the rest on as few new nodes as possible, of the best fitting groups.

    A node is removed if it was idle for its timeout and the plan does not use it; a booting node likewise, if nothing
    has needed it for as long.

    Attributes:
        name: name of the policy.
        interval: seconds between decisions while nothing happens; None for the pool's cooldown.

    Example:
        >>> sky.Compute(nodes=(0, 8), policy="binpack")
    """

    name: str = "binpack"
    interval: float | None = 5.0
    _unneeded_since: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Return the decision for `snapshot`, within the bounds of every group and of `max_nodes`."""
        groups = {group.name: group for group in snapshot.groups}
        staying = sorted((node for node in snapshot.nodes if node.stage != "leaving"), key=lambda node: node.rank)
        made = plan(
            PlanRequest(
                {name: node_type(group) for name, group in groups.items()},
                [self._existing(node, groups[node.group], snapshot, alone=len(staying) == 1) for node in staying],
                [(bundle(demand.needs), demand.count) for demand in snapshot.demands],
                [Gang(tuple(map(bundle, gang.needs)), _PLACEMENTS[gang.placement]) for gang in snapshot.gangs],
                [(bundle(demand.needs), demand.count) for demand in snapshot.floor],
                snapshot.max_nodes,
                snapshot.idle_timeout,
            )
        )
        self._unneeded_since = {
            node.rank: self._unneeded_since.get(node.rank, snapshot.now)
            for node in staying
            if node.stage == "booting" and str(node.rank) not in made.needed
        }
        current = dict.fromkeys(groups, 0)
        for node in staying:
            current[node.group] += 1
        gangs = gang_nodes(snapshot)
        victims = tuple(int(rank) for rank, _ in made.terminate if int(rank) not in gangs.keep)
        desired = {name: count + made.launch.get(name, 0) for name, count in current.items()}
        if made.infeasible_gangs:  # they wait for nodes that are busy, which the plan leaves alone
            desired = {name: max(number, gangs.least(name)) for name, number in desired.items()}
        for node in staying:
            desired[node.group] -= node.rank in victims
        return Decision(
            desired,
            _reason(snapshot, made, {node.rank: node for node in staying}),
            victims,
            settled=bool(victims),
            infeasible=never(snapshot),
        )

    def _existing(self, node: NodeLoad, group: Group, snapshot: Snapshot, *, alone: bool) -> Existing:
        """Return the node for the planner. The head may be removed only if it is the last node."""
        known = Existing(str(node.rank), node.group, head=node.rank == HEAD and not alone)
        if node.stage == "booting":
            since = self._unneeded_since.get(node.rank, snapshot.now)
            return replace(known, running=False, idle=snapshot.now - since)
        return replace(known, free=free_of(group, node.free, busy=node.busy), idle=node.idle_for)


def _reason(snapshot: Snapshot, made: ScalingPlan, nodes: dict[int, NodeLoad]) -> str:
    """Return why nodes are added and removed, and what can not be placed."""
    parts = []
    if made.launch:
        more = joined(f"{count_text(more)}{of_group(name, snapshot)}" for name, more in made.launch.items())
        are = "is" if sum(made.launch.values()) == 1 else "are"
        parts.append(f"{_asked(snapshot, nodes)}, so {more} {are} added")
    for cause in _CAUSES:
        for group in snapshot.groups:
            fewer = sum(nodes[int(rank)].group == group.name for rank, each in made.terminate if each == cause)
            if fewer:
                are = "is" if fewer == 1 else "are"
                removed = f"{count_text(fewer)}{of_group(group.name, snapshot)} {are} removed"
                parts.append(f"{removed}: {_limit(cause, group, snapshot, fewer)}")
    if made.infeasible:
        count = sum(count for _, count in made.infeasible)
        parts.append(f"{tasks_wait(count)} for lack of room, because {_bounds(snapshot)}")
    if made.infeasible_gangs:
        count = len(made.infeasible_gangs)
        parts.append(f"{count_text(count, 'gang')} of tasks {'does' if count == 1 else 'do'} not fit at once")
    if made.floor_infeasible:
        can_launch = all(group.can_launch for group in snapshot.groups)
        why = " into the maximum number of nodes" if can_launch else f", because {_bounds(snapshot)}"
        parts.append(f"what `request_resources` reserves does not fit{why}")
    return "; ".join(parts) or steady(snapshot)


def _bounds(snapshot: Snapshot) -> str:
    """Return the maximum of each group, or that it can launch no more nodes now."""
    most = joined(f"{group.max}{of_group(group.name, snapshot)}" for group in snapshot.groups if group.can_launch)
    stopped = joined(repr(group.name) for group in snapshot.groups if not group.can_launch)
    bounds = [f"the maximum number of nodes is {most}"] if most else []
    return joined(bounds + ([f"{NO_MORE} of group {stopped}"] if stopped else []))


def _asked(snapshot: Snapshot, nodes: dict[int, NodeLoad]) -> str:
    """Return what needs more nodes than there are."""
    asked = [tasks_wait(snapshot.queued)] if snapshot.queued else []
    if snapshot.gangs:
        asked.append(gangs_wait(snapshot))
    if snapshot.floor:
        reserved = sum(demand.count for demand in snapshot.floor)
        asked.append(f"`request_resources` reserves room for {count_text(reserved, 'task')}")
    if not asked:
        return "fewer nodes are up than the minimum"
    return f"{joined(asked)}, {f'more than fits on {count_text(len(nodes))}' if nodes else 'and no node is up'}"


def _limit(cause: str, group: Group, snapshot: Snapshot, nodes: int) -> str:
    if cause == "MAX_NUM_NODE_PER_TYPE" and not group.can_launch:
        return NO_MORE
    timeout = snapshot.idle_timeout if group.idle_timeout is None else group.idle_timeout
    return _CAUSES[cause].format(
        it="it was" if nodes == 1 else "they were", timeout=seconds_text(timeout), max=group.max, all=snapshot.max_nodes
    )


_CAUSES = {
    "IDLE": "{it} idle for longer than the idle timeout of {timeout}",
    "MAX_NUM_NODE_PER_TYPE": "the maximum is {max}",
    "MAX_NUM_NODES": "the maximum of the pool is {all}",
}
