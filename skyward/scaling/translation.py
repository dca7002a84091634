"""Translation of a snapshot into the view of Scaler's policies, and of their commands into a decision.

A node is a group with one worker per slot. A booting node counts with idle workers; otherwise every decision during its
boot would launch another node.
"""

from collections.abc import Mapping, Sequence

from skyward.formatting import count_text, joined
from skyward.scaling.scaler.commands import ClusterState, Rule, ShutDownGroup, StartGroup, Tasks, WorkerGroup
from skyward.scaling.snapshot import Decision, Group, NodeLoad, Snapshot
from skyward.scaling.snapshot.fitting import never
from skyward.scaling.snapshot.gang_placement import GangPlan, gang_nodes
from skyward.scaling.snapshot.gang_text import gangs_wait
from skyward.scaling.snapshot.wording import beyond_bounds, more_text, of_group, steady, tasks_wait
from skyward.values.needs import Needs

__all__ = ["combine", "decide", "decide_part"]

HEAD = 0


def decide(snapshot: Snapshot, rule: Rule, *, for_gangs: bool = True) -> Decision:
    """Return the decision of `rule` on the nodes of all groups.

    Args:
        for_gangs: as in `decide_part`.
    """
    return combine(snapshot, [decide_part(snapshot, rule, for_gangs=for_gangs)])


def decide_part(
    snapshot: Snapshot,
    rule: Rule,
    *,
    only: Sequence[Group] | None = None,
    alone: bool = False,
    for_gangs: bool = True,
) -> Decision:
    """Return the decision of `rule` on the nodes of some groups; its reason is empty if nothing changes.

    Args:
        only: the groups; all by default.
        alone: True to ignore the nodes of the other groups, which otherwise count as static workers.
        for_gangs: have at least the nodes that waiting gangs need, whatever the rule says, which does not know gangs.
    """
    gangs = gang_nodes(snapshot) if for_gangs else GangPlan()
    groups = snapshot.groups if only is None else only
    nodes = {group.name: _active_or_booting(snapshot, group) for group in snapshot.groups}
    group_of = {str(node.rank): node.group for node in snapshot.nodes}
    before = {group.name: snapshot.counts[group.name].desired for group in groups}
    desired = {group.name: _within(before[group.name], group) for group in groups}
    reasons = [
        _prefix(group.name, snapshot)
        + beyond_bounds(before[group.name], desired[group.name], can_launch=group.can_launch)
        for group in groups
        if desired[group.name] != before[group.name]
    ]
    victims: list[int] = []
    for command in rule.commands(_view(snapshot, groups, groups if alone else snapshot.groups)):
        match command:
            case StartGroup(capabilities=capabilities):
                owed = sum(max(0, desired[group.name] - nodes[group.name]) for group in groups)
                name = _group_with_room(snapshot, groups, nodes, owed, frozenset(capabilities))
                if name is None:
                    continue
                nodes[name] += 1
                desired[name] = max(desired[name], nodes[name])
                reasons.append(f"{_why_start(command)}, so 1 node{of_group(name, snapshot)} is added")
            case ShutDownGroup(group=rank) if gangs.least(group_of[rank]):
                continue
            case ShutDownGroup(group=rank):
                name = group_of[rank]
                nodes[name] -= 1
                desired[name] = min(desired[name], nodes[name])
                victims.append(int(rank))
                removed = f"node {rank}{of_group(name, snapshot)}, the least busy one, is removed"
                reasons.append(f"{_why_stop(command)}, so {removed}")
    for group in groups:
        more = gangs.least(group.name) - desired[group.name]
        if more > 0:
            desired[group.name] += more
            reasons.append(f"{_prefix(group.name, snapshot)}{gangs_wait(snapshot)}, so {more_text(more)}")
    return Decision(desired, "; ".join(reasons), tuple(victims), infeasible=never(snapshot))


def combine(snapshot: Snapshot, parts: Sequence[Decision]) -> Decision:
    """Merge decisions about different groups into one; without any change, the reason says what the policy saw."""
    desired: dict[str, int] = {}
    for each in parts:
        desired |= each.desired
    return Decision(
        desired,
        "; ".join(dict.fromkeys(each.reason for each in parts if each.reason)) or steady(snapshot),
        tuple(rank for each in parts for rank in each.victims),
        infeasible=parts[0].infeasible if parts else (),
    )


def _prefix(name: str, snapshot: Snapshot) -> str:
    return f"{name}: " if len(snapshot.groups) > 1 else ""


def _why_start(command: StartGroup) -> str:
    """Return why a group is started: "21 tasks for 2 slots are more than 10 per slot"."""
    names = joined(map(repr, sorted(command.capabilities)))
    count = count_text(f"{command.tasks:,}", "task")
    if not command.workers:
        if names:
            return f"{count} {'needs' if command.tasks == 1 else 'need'} {names}, which no node has"
        return f"{tasks_wait(command.tasks)} and no node is up"
    who = f"{count} that {'needs' if command.tasks == 1 else 'need'} {names}" if names else count
    are = "is" if command.tasks == 1 else "are"
    return f"{who} for {count_text(f'{command.workers:,}', 'slot')} {are} more than {command.limit:g} per slot"


def _why_stop(command: ShutDownGroup) -> str:
    """Return why a group is shut down: "4 tasks for 8 slots are fewer than 1 per slot"."""
    slots = count_text(f"{command.workers:,}", "slot")
    if not command.tasks:
        return f"there is no task for {slots}, fewer than {command.limit:g} per slot"
    are = "is" if command.tasks == 1 else "are"
    return f"{count_text(f'{command.tasks:,}', 'task')} for {slots} {are} fewer than {command.limit:g} per slot"


def _view(snapshot: Snapshot, groups: Sequence[Group], counted: Sequence[Group]) -> ClusterState:
    """Return waiting and running tasks, and the nodes: removable ones as groups, the others as static workers.

    Args:
        groups: groups whose nodes may be removable.
        counted: groups whose nodes count.
    """
    spare = {group.name: _active_or_booting(snapshot, group) - group.min for group in groups}
    by_name = {group.name: group for group in counted}
    elastic: list[WorkerGroup] = []
    static: list[dict[str, float]] = []
    for node in sorted(snapshot.nodes, key=lambda node: node.rank, reverse=True):
        if node.stage == "leaving" or node.group not in by_name:
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
    snapshot: Snapshot, groups: Sequence[Group], nodes: Mapping[str, int], owed: int, names: frozenset[str]
) -> str | None:
    """Return the cheapest group with room and all of these capabilities; ties go to the first.

    Args:
        owed: nodes that are desired and are not among `nodes`.
    """
    if snapshot.max_nodes is not None and sum(nodes.values()) + owed >= snapshot.max_nodes:
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
