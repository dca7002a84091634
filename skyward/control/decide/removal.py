"""Decisions on the nodes that may be removed. No I/O.

A node that keeps values counts as busy for their time (`skyward.kept.registry`), and no scale-down removes it in that
time: no drain, resize or decision of the policy. A value that is kept, or used again, on a node that already drains
cancels the drain. If the pool would then have fewer nodes than must stay, it has that many, even above its maximum. The
budget, the end of the pool and the loss of a machine end kept values at any time.
"""

from collections.abc import Mapping

from skyward.control.decide.machines.table import MachineTable
from skyward.formatting import count_text
from skyward.scaling.snapshot import Group, RetainedNodes

__all__ = ["after_drain", "at_least", "retained_nodes", "undrainable", "unsizable"]


def retained_nodes(table: MachineTable, kept: Mapping[int, str]) -> dict[str, RetainedNodes]:
    """Return the nodes that no scale-down removes, by group; the head stays while any node does.

    A node that its provider takes back goes with its values, so no other takes its place for them.

    Args:
        table: the machines.
        kept: names of the values that make nodes count as busy, by rank.
    """
    texts: dict[str, dict[int, str]] = {}
    for rank, names in kept.items():
        assignment = table.assignments.get(rank)
        if assignment is not None and not assignment.machine.reclaimed:
            texts.setdefault(assignment.machine.group, {})[rank] = f"node {rank} keeps {names}"
    head = table.assignments.get(0)
    of_head = next(iter(texts), "") if head is None else head.machine.group  # a missing head is launched again
    return {
        group: RetainedNodes(len({*ranks} | ({0} if group == of_head else set())), ", ".join(ranks.values()))
        for group, ranks in texts.items()
    }


def at_least(desired: Mapping[str, int], retained: Mapping[str, RetainedNodes]) -> tuple[dict[str, int], str]:
    """Return the desired nodes, by group, raised to those that stay, and the reason if a number was raised."""
    short = {name: nodes for name, nodes in retained.items() if desired.get(name, 0) < nodes.nodes}
    if not short:
        return dict(desired), ""
    after = {**desired, **{name: nodes.nodes for name, nodes in short.items()}}
    return after, "; ".join(map(_stay, short.values()))


def unsizable(least: int, retained: RetainedNodes | None) -> str:
    """Return why a group cannot be resized to `least` nodes at once, and what to do; empty if it can."""
    if retained is None or least >= retained.nodes:
        return ""
    fix = "drop the kept values first, with `.drop()` of the handle or `%sky drop`, or ask for more nodes"
    return f"{_stay(retained)}; {fix}"


def _stay(retained: RetainedNodes) -> str:
    return f"{retained.why}, so {count_text(retained.nodes)} {'stays' if retained.nodes == 1 else 'stay'}"


def undrainable(
    table: MachineTable, groups: Mapping[str, Group], desired: Mapping[str, int], kept: Mapping[int, str], rank: int
) -> str:
    """Return why a node cannot be drained; empty if it can. `kept`: names of the values on each rank."""
    if rank not in table.assignments:
        return f"there is no node {rank}; the nodes are {', '.join(map(str, sorted(table.assignments))) or 'none'}"
    if table.machine_of(rank, "STOP_REQUESTED") is not None:
        return "it is already draining, and terminates once its tasks are done"
    if (machine := table.machine_of(rank, "RUNNING")) is None:
        return f"node {rank} is not up yet"
    if rank == 0:
        return "node 0 is the head, which stays as long as the pool has any node"
    if rank in kept:
        return f"it keeps {kept[rank]}: drop that first, with `.drop()` on its handle or `%sky drop`"
    group = groups[machine.group]
    if desired.get(group.name, 0) <= group.min:
        return f"the pool is at its minimum of {count_text(group.min)}"
    return ""


def after_drain(
    table: MachineTable, groups: Mapping[str, Group], desired: Mapping[str, int], kept: Mapping[int, str], rank: int
) -> Mapping[str, int] | None:
    """Return the desired nodes, by group, once a node is drained; None if it cannot be drained."""
    machine = table.machine_of(rank, "RUNNING")
    if machine is None or undrainable(table, groups, desired, kept, rank):
        return None
    return {**desired, machine.group: desired[machine.group] - 1}
