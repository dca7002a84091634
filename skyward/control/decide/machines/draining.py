"""Which nodes a user may drain, and what is wanted of the pool then."""

from collections.abc import Mapping

from skyward.control.decide.machines.machines import MachineBook
from skyward.scaling.snapshot import Group

__all__ = ["after_drain", "undrainable"]


def undrainable(
    book: MachineBook, groups: Mapping[str, Group], desired: Mapping[str, int], kept: Mapping[int, str], rank: int
) -> str:
    """Why the node of a rank cannot be drained; empty where it can. `kept`: names of what nodes keep, by rank."""
    machine = book.seated(rank, "RUNNING")
    if machine is None:
        return f"node {rank} is not up"
    if rank == 0:
        return "node 0 is the head, which stays as long as the pool has any node"
    if rank in kept:
        return f"it keeps {kept[rank]}: free that first, with `.drop()` of its handle or `%sky drop`"
    group = groups[machine.group]
    if desired.get(group.name, 0) <= group.min:
        return f"the pool is at its fewest nodes, {group.min}"
    return ""


def after_drain(
    book: MachineBook, groups: Mapping[str, Group], desired: Mapping[str, int], kept: Mapping[int, str], rank: int
) -> Mapping[str, int] | None:
    """Nodes wanted, by group, once the node of a rank is drained; None where it cannot be."""
    machine = book.seated(rank, "RUNNING")
    if machine is None or undrainable(book, groups, desired, kept, rank):
        return None
    return {**desired, machine.group: desired[machine.group] - 1}
