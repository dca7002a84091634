"""Placement: the nodes that the caller selected."""

from collections.abc import Sequence

from skyward.control.decide.machines.table import MachineTable
from skyward.control.decide.tasks.manager import TaskManager
from skyward.errors import UsageError
from skyward.specs.placement import Several
from skyward.values.needs import Needs

__all__ = ["chosen_ranks", "members_of", "no_node"]


def members_of(least: int, needs: Needs, procs: int, table: MachineTable, tasks: TaskManager) -> tuple[int, ...] | None:
    """Return the nodes of a collective on every node: those that take tasks now and could hold all its processes.

    If fewer than `least` take tasks, those that start are members too, which the others wait for. None if there is no
    node at all: then the first one to start is the only member.

    Args:
        least: minimum number of nodes of the pool.
        needs: needs of each process.
        procs: number of its processes on each node.
        table: the machines.
        tasks: the nodes that take tasks.
    """
    ranks = tasks.ranks
    if len(ranks) < max(1, least):
        found = table.assignments.items()
        ranks = tuple(sorted(rank for rank, each in found if each.machine.stage in ("booting", "active")))
    return tuple(rank for rank in ranks if tasks.could_hold(rank, needs, procs)) or None


def chosen_ranks(
    pool: str, where: Several, needs: Needs, procs: int, table: MachineTable, tasks: TaskManager
) -> tuple[int, ...] | None:
    """Return the ranks that `where` selects; None for every node.

    A group selects its nodes that take tasks now; if there are none yet, those that are booting.

    Args:
        needs: needs of each process.
        procs: number of processes that run together on each node.

    Raises:
        UsageError: there is no such node, or one of them can never have what the task needs.
    """
    if where.ranks is not None:
        if missing := [rank for rank in where.ranks if rank not in table.assignments]:
            raise no_node(pool, missing, table)
        for rank in where.ranks:
            if not tasks.could_hold(rank, needs, procs):
                raise UsageError(f"{_asked(needs, procs)}, which node {rank} of pool {pool!r} can never have.")
        return where.ranks
    if where.group is None:
        return None
    of_group = [
        rank for rank, assignment in sorted(table.assignments.items()) if assignment.machine.group == where.group
    ]
    if not of_group:
        raise UsageError(
            f"Group {where.group!r} of pool {pool!r} has no node now: start one with "
            f"`pool.resize(1, group={where.group!r})`."
        )
    fitting = [rank for rank in of_group if tasks.could_hold(rank, needs, procs)]
    if not fitting:
        raise UsageError(f"{_asked(needs, procs)}, which no node of group {where.group!r} can ever have.")
    return tuple(rank for rank in fitting if rank in tasks.ranks) or tuple(fitting)


def _asked(needs: Needs, procs: int) -> str:
    return f"The task asks for {needs}" + (f" in each of {procs} processes" if procs > 1 else "")


def no_node(pool: str, missing: Sequence[int], table: MachineTable) -> UsageError:
    """Return the error for ranks that the pool does not have."""
    known = ", ".join(map(str, sorted(table.assignments))) or "none"
    which = " or ".join(map(str, missing))
    if len(table.assignments) == 1:
        return UsageError(f"Pool {pool!r} has no node {which}; its only node is {known}.")
    return UsageError(f"Pool {pool!r} has no node {which}; its nodes are {known}.")
