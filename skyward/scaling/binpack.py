"""Ray's planner as a policy: bin packing by resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from skyward.scaling.bundles import bundle, free_of, node_type
from skyward.scaling.fitting import never
from skyward.scaling.gang_placement import gang_nodes
from skyward.scaling.planner import Existing, Gang, GangConstraint, PlanRequest, ScalingPlan, plan
from skyward.scaling.snapshot import Decision, Group, NodeLoad, Snapshot
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
    """

    name: str = "binpack"
    interval: float | None = 5.0
    _unneeded_since: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Return the decision for `snapshot`, within the bounds of every group and of `max_nodes`."""
        groups = {group.name: group for group in snapshot.groups}
        staying = [node for node in snapshot.nodes if node.stage != "leaving"]
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
    parts = []
    waiting = f"{snapshot.queued} queued"
    if snapshot.gangs:
        waiting += f" and {len(snapshot.gangs)} gangs"
    if snapshot.floor:
        waiting += f" and a floor of {sum(demand.count for demand in snapshot.floor)}"
    for group in snapshot.groups:
        if more := made.launch.get(group.name, 0):
            current = sum(node.group == group.name for node in nodes.values())
            capped = f", capped at {group.max} by max" if made.infeasible and current + more >= group.max else ""
            parts.append(f"{waiting} over {current} nodes -> +{more} {group.name}{capped}")
        for cause, why in _CAUSES.items():
            fewer = sum(nodes[int(rank)].group == group.name for rank, each in made.terminate if each == cause)
            if fewer:
                parts.append(f"{why} -> -{fewer} {group.name}")
    if made.infeasible:
        parts.append(f"{sum(count for _, count in made.infeasible)} queued cannot be placed within the limits")
    if made.infeasible_gangs:
        parts.append(f"{len(made.infeasible_gangs)} gangs cannot be placed")
    if made.floor_infeasible:
        parts.append("the floor does not fit within the limits")
    return "; ".join(parts) or f"held: {waiting} fit on {len(nodes)} nodes"


_CAUSES = {
    "IDLE": "idle past the timeout",
    "MAX_NUM_NODE_PER_TYPE": "over max",
    "MAX_NUM_NODES": "over the limit of all nodes",
}
