"""Deadlocks of streams: tasks that can never start, because paused streams hold the slots while their readers wait for
these tasks.

A paused generator keeps its slot until its elements are read. Decided from the holders of slots and the waits of
readers; no I/O.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

__all__ = ["never_start"]


def never_start[Reader](
    holders: Mapping[int, Collection[int]],
    waiting: Mapping[int, Collection[int]],
    readers: Mapping[int, Reader],
    blocked: Mapping[Reader, Collection[int]],
    spare: Mapping[int, int] = MappingProxyType({}),
    reserved: Mapping[int, Collection[int]] = MappingProxyType({}),
    gangs: Mapping[int, Callable[[Mapping[int, int]], bool]] = MappingProxyType({}),
    successors: Mapping[int, Collection[int]] = MappingProxyType({}),
) -> frozenset[int]:
    """Return the tasks that can never start, among those that a reader waits for.

    Args:
        holders: by node, the tasks that hold its slots.
        waiting: the queued tasks, with the nodes that they could start on.
        readers: the streams that are paused until they are read, with their reader: a thread, or an input of a task.
        blocked: the readers that wait, each with all the tasks that it needs.
        spare: the tasks that start only together with others of their node, with the slots that these do not need.
        reserved: by node, the tasks that its free slots are kept for until all of these can start.
        gangs: the tasks of gangs, each with a function that returns whether its gang could start without some slots of
            each node.
        successors: the nodes that come only once all tasks of another one have ended, with these tasks.
    """

    def is_stuck(task: int) -> bool:
        ranks = waiting[task]
        if task in gangs:
            return not gangs[task]({rank: sum(each in stuck for each in held) for rank, held in holders.items()})
        if task in spare:
            held = (sum(each in stuck for each in holders.get(rank, ())) for rank in ranks)
            return any(count > spare[task] for count in held)
        return bool(ranks) and all(map(is_held, ranks))

    def is_held(rank: int) -> bool:
        """Return whether no slot of a node will ever be free for another task."""
        if rank in successors:
            return any(task in stuck for task in successors[rank])
        held = holders.get(rank, ())
        kept = any(task in never for task in reserved.get(rank, ()))
        return (bool(held) or kept) and all(task in stuck for task in held)

    stuck = {stream for stream, reader in readers.items() if reader in blocked}
    never = set(waiting)
    while True:
        still_never = {task for task in never if is_stuck(task)}
        still_stuck = {stream for stream in stuck if still_never.intersection(blocked[readers[stream]])}
        if (still_never, still_stuck) == (never, stuck):
            needed = {task for stream in stuck for task in blocked[readers[stream]]}
            return frozenset(never & needed)
        never, stuck = still_never, still_stuck
