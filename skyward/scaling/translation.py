"""Translation of a snapshot into the view of Scaler's policies, and of their commands into a decision.

A node is a group with one worker per slot. A booting node counts with idle workers; otherwise every decision during its
boot would launch another node.
"""

from collections.abc import Mapping, Sequence

from skyward.formatting import count_text
from skyward.scaling.commands import ClusterState, Rule, ShutDownGroup, StartGroup, Tasks, WorkerGroup
from skyward.scaling.fitting import never
from skyward.scaling.gang_placement import GangPlan, gang_nodes
from skyward.scaling.snapshot import Decision, Group, NodeLoad, Snapshot
from skyward.values.needs import Needs

__all__ = ["combine", "decide"]

HEAD = 0


def decide(snapshot: Snapshot, rule: Rule, *, only: Sequence[Group] | None = None, for_gangs: bool = True) -> Decision:
    """Apply `rule` to the nodes of `only`, or of all groups; nodes of other groups count as static workers.

    Args:
        for_gangs: have at least the nodes that waiting gangs need, whatever the rule says, which does not know gangs.
    """
    gangs = gang_nodes(snapshot) if for_gangs else GangPlan()
    groups = snapshot.groups if only is None else only
    nodes = {group.name: _active_or_booting(snapshot, group) for group in snapshot.groups}
    group_of = {str(node.rank): node.group for node in snapshot.nodes}
    desired = {group.name: _within(snapshot.counts[group.name].desired, group) for group in groups}
    reasons: list[str] = []
    victims: list[int] = []
    for command in rule.commands(_view(snapshot, groups)):
        ratio = f"{command.tasks} tasks / {command.workers} workers"
        match command:
            case StartGroup(capabilities=capabilities):
                name = _group_with_room(snapshot, groups, nodes, frozenset(capabilities))
                if name is None:
                    continue
                nodes[name] += 1
                desired[name] = max(desired[name], nodes[name])
                reasons.append(f"{ratio} -> +1 {name}")
            case ShutDownGroup(group=rank) if gangs.least(group_of[rank]):
                continue
            case ShutDownGroup(group=rank):
                name = group_of[rank]
                nodes[name] -= 1
                desired[name] = min(desired[name], nodes[name])
                victims.append(int(rank))
                reasons.append(f"{ratio} -> -1 {name}, node {rank} is the least busy")
    for group in groups:
        more = gangs.least(group.name) - desired[group.name]
        if more > 0:
            desired[group.name] += more
            reasons.append(f"{count_text(len(snapshot.gangs), 'gang')} waiting -> +{more} {group.name}")
    return Decision(desired, "; ".join(reasons) or _held(snapshot), tuple(victims), infeasible=never(snapshot))


def combine(decisions: Sequence[Decision]) -> Decision:
    """Merge decisions about different groups into one."""
    desired: dict[str, int] = {}
    for each in decisions:
        desired |= each.desired
    return Decision(
        desired,
        "; ".join(dict.fromkeys(each.reason for each in decisions)),
        tuple(rank for each in decisions for rank in each.victims),
        infeasible=decisions[0].infeasible if decisions else (),
    )


def _view(snapshot: Snapshot, groups: Sequence[Group]) -> ClusterState:
    """Return waiting and running tasks, and the nodes: removable ones as groups, the others as static workers."""
    spare = {group.name: _active_or_booting(snapshot, group) - group.min for group in groups}
    by_name = {group.name: group for group in snapshot.groups}
    elastic: list[WorkerGroup] = []
    static: list[dict[str, float]] = []
    for node in sorted(snapshot.nodes, key=lambda node: node.rank, reverse=True):
        if node.stage == "leaving":
            continue
        group = by_name[node.group]
        offered = _offered(group)
        if spare.get(node.group, 0) > 0 and (node.rank != HEAD or len(snapshot.nodes) == 1):
            elastic.append(WorkerGroup(str(node.rank), _spread(node, group.slots), offered))
        else:
            static.extend([offered] * group.slots)
    tasks = [Tasks(demand.count, _asked(demand.needs)) for demand in snapshot.demands]
    tasks += [Tasks(1, _asked(needs)) for gang in snapshot.gangs for needs in gang.needs]
    tasks += [Tasks(snapshot.counts[group.name].busy, _offered(group)) for group in snapshot.groups]
    room = sum(max(group.max - _active_or_booting(snapshot, group), 0) for group in groups)
    if snapshot.max_nodes is not None:
        room = min(room, snapshot.max_nodes - sum(_active_or_booting(snapshot, group) for group in snapshot.groups))
    return ClusterState(tasks, elastic, static, len(elastic) + max(room, 0))


def _active_or_booting(snapshot: Snapshot, group: Group) -> int:
    """Return the number of nodes of the group that run tasks or will."""
    counts = snapshot.counts[group.name]
    return counts.active + counts.booting


def _within(count: int, group: Group) -> int:
    return max(group.min, min(count, group.max))


def _group_with_room(
    snapshot: Snapshot, groups: Sequence[Group], nodes: Mapping[str, int], names: frozenset[str]
) -> str | None:
    """Return the cheapest group with room and all of these capabilities; ties go to the first."""
    if snapshot.max_nodes is not None and sum(nodes.values()) >= snapshot.max_nodes:
        return None
    able = [group for group in groups if nodes[group.name] < group.max and names <= _offered(group).keys()]
    asking = [demand.needs for demand in snapshot.demands if demand.count and names == _asked(demand.needs).keys()]
    fitting = [group for group in able if not asking or any(group.can_hold(needs) for needs in asking)]
    best = min(fitting or able, key=lambda group: group.hourly_price, default=None)
    return best.name if best else None


def _offered(group: Group) -> dict[str, float]:
    return {**dict.fromkeys(group.capabilities, 1.0), **{name: had for name, had in group.resources.items() if had > 0}}


def _asked(needs: Needs) -> dict[str, float]:
    return {**dict.fromkeys(needs.capabilities, 1.0), **needs.resources}


def _spread(node: NodeLoad, slots: int) -> tuple[int, ...]:
    """Spread the tasks of a node evenly over its workers."""
    each, over = divmod(node.busy, slots)
    return tuple(each + (worker < over) for worker in range(slots))


def _held(snapshot: Snapshot) -> str:
    return f"held: {snapshot.queued} tasks wait, {snapshot.inflight} run on {snapshot.capacity} slots"
