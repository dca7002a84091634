"""Detection of deadlocks: the streams that hold all slots wait to be read by a thread that waits for a queued task."""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING

from skyward.control.act.tasks.future import TaskFuture, dependencies_of
from skyward.control.act.tasks.task import Work
from skyward.control.decide.messages import SpareStreams
from skyward.control.decide.tasks.deadlock import never_start
from skyward.process.blocked_threads import waits
from skyward.scaling.snapshot import Group

if TYPE_CHECKING:
    from skyward.control.decide.plane import ControlPlane
    from skyward.control.decide.tasks.manager import TaskManager

__all__ = ["DeadlockDetector"]

_EVERY = 2.0
"""Seconds between checks. A task is ended if two checks in a row find it stuck, with no progress in between."""

type _Progress = tuple[tuple[int, int], ...]
"""Streams, each with the number of its elements that have arrived."""

_logger = logging.getLogger(__name__)


class DeadlockDetector:
    """Detector of deadlocks between streams and queued tasks. Runs on the library's loop.

    Args:
        pool: name of the pool.
        works: unfinished tasks, by number.
        cancel: stops tasks.
        tell: sends a message to the control plane.
    """

    def __init__(
        self,
        pool: str,
        works: Mapping[int, Work],
        cancel: Callable[[Iterable[Work]], None],
        tell: Callable[[SpareStreams], object],
    ) -> None:
        self._pool = pool
        self._works = works
        self._cancel = cancel
        self._tell = tell
        self._warned = False

    async def watch(self, plane: "ControlPlane") -> None:
        """Check periodically, and end one task of each deadlock, or have a node that drains for an update run it."""
        before: dict[int, object] = {}
        stalled: dict[int, object] = {}
        while True:
            await asyncio.sleep(_EVERY)
            try:
                stalled = self._spare(self.stalled(plane), stalled)
                found = self.look(plane)
            except Exception:
                _logger.exception("the tasks of pool %r could not be checked for deadlocks", self._pool)
                continue
            again = [task for task, evidence in found.items() if before.get(task) == evidence]
            if again:
                self._end(min(again), plane)  # its reader then closes its stream, which may free the others
                found = {}
            before = found

    def _spare(self, stalled: Mapping[int, _Progress], before: Mapping[int, object]) -> dict[int, object]:
        """Have nodes take tasks again whose streams have made no progress since the last check; return the others."""
        again = [rank for rank, streams in stalled.items() if before.get(rank) == streams]
        for rank in again:
            self._tell(SpareStreams(rank, frozenset(task for task, _ in stalled[rank])))
        return {rank: streams for rank, streams in stalled.items() if rank not in again}

    def stalled(self, plane: "ControlPlane") -> dict[int, _Progress]:
        """Return the nodes that drain for an update, and have paused streams while tasks wait that they could run.

        By rank, the streams. A node does not go before its streams have ended, and their readers may wait for these
        tasks: in a thread, or in a coroutine.
        """
        found: dict[int, _Progress] = {}
        for rank in plane.updates.draining():
            if (node := plane.tasks.node(rank)) is None:
                continue
            works = [self._works[task] for task in node.tasks if task in self._works]
            streams = [(work.task, work.stream) for work in works if work.stream is not None]
            paused = tuple((task, stream.received) for task, stream in streams if stream.paused() is not False)
            if paused and plane.tasks.awaits(rank):
                found[rank] = paused
        return found

    def look(self, plane: "ControlPlane") -> dict[int, object]:
        """Return the tasks that can never start, each with evidence that changes with any progress."""
        tasks = plane.tasks
        if not tasks.waiting:
            self._warned = False
            return {}
        more_nodes, gains = plane.may_gain_nodes(), plane.may_gain_nodes(after_drains=False)
        holders = tasks.holders()
        streams = {
            task: work.stream
            for held in holders.values()
            for task in held
            if (work := self._works.get(task)) is not None and work.stream is not None
        }
        paused = {task: state for task, stream in streams.items() if (state := stream.paused()) is not False}
        if not paused:
            self._warned = False
            return {}
        numbers = {id(each): work.task for work in self._works.values() for each in (work.future, work.stream)}
        threads = waits()
        inputs = self._inputs(numbers, tasks)
        blocked: dict[object, frozenset[int]] = {
            thread: _needed(wait.on, numbers, tasks) for thread, wait in threads.items()
        }
        needed = set().union(*blocked.values())
        while more := {stream for stream, task in inputs.items() if task in needed} - needed:
            needed |= more
        blocked |= {("input", task): frozenset({task}) for task in inputs.values()}
        readers: dict[int, object] = {}
        for task in (task for task, state in paused.items() if state):
            if task in inputs:
                readers[task] = ("input", inputs[task])
            elif (thread := streams[task].reader) is not None:
                readers[task] = thread
        reserved = tasks.reservations()
        waiting = {
            task: ranks
            for task in needed.union(*reserved.values())
            if (ranks := tasks.could_start_on(task)) is not None and (tasks.is_pinned(task) or not more_nodes)
        }
        successors = {} if gains else plane.updates.successors()
        for task in needed if successors else ():
            if later := self._later(task, successors, tasks):
                waiting[task] = (*(tasks.could_start_on(task) or ()), *later)
        spare = {task: count for task in waiting if (count := tasks.may_be_held(task)) is not None}
        gangs = {task: starts for task in waiting if (starts := tasks.gang_start(task)) is not None}
        ends_first = {~rank: list(node.tasks) for rank in successors if (node := tasks.node(rank)) is not None}
        found = never_start(holders, waiting, readers, blocked, spare, reserved, gangs, ends_first)
        if not found and not more_nodes:
            self._warn(holders, paused, tasks.queued)
        ends = {_last(task, inputs, needed) for task in found}
        progress = tuple((task, streams[task].received) for task in readers)
        return dict.fromkeys(ends, (progress, tuple(sorted(wait.number for wait in threads.values()))))

    def _later(self, task: int, successors: Mapping[int, Group], tasks: "TaskManager") -> tuple[int, ...]:
        """Return the successors of nodes that could hold a waiting task which the nodes themselves cannot hold.

        The successor of a node is numbered `~rank`. Tasks for certain nodes, and in gangs, are left out.
        """
        work = self._works.get(task)
        if work is None or not work.needs or tasks.could_start_on(task) is None:
            return ()
        if tasks.is_pinned(task) or tasks.gang_start(task) is not None:
            return ()
        if any(tasks.could_hold(rank, work.needs) for rank in successors):
            return ()
        return tuple(~rank for rank, group in successors.items() if group.can_hold(work.needs))

    def _inputs(self, numbers: Mapping[int, int], tasks: "TaskManager") -> dict[int, int]:
        """Return the streams that feed a task which waits for a slot, with that task."""
        return {
            numbers[id(stream)]: work.task
            for work in self._works.values()
            if work.feeders and tasks.could_start_on(work.task) is not None
            for feeder in work.feeders
            for stream in feeder.reads()
            if id(stream) in numbers
        }

    def _warn(self, holders: Mapping[int, Iterable[int]], paused: Container[int], queued: int) -> None:
        """Warn once that streams hold all slots, if it is not certain that this is a deadlock."""
        if not self._warned and all(task in paused for held in holders.values() for task in held):
            self._warned = True
            _logger.warning(
                "%d tasks of pool %r wait for a slot, and streams that wait to be read hold all slots",
                queued,
                self._pool,
            )

    def _end(self, task: int, plane: "ControlPlane") -> None:
        work = self._works.get(task)
        if work is None:
            return
        held = (self._works.get(each) for each in dict.fromkeys(t for h in plane.tasks.holders().values() for t in h))
        streams = dict.fromkeys(f"{each.code.name}()" for each in held if each is not None and each.stream is not None)
        more = max(group.slots for group in plane.groups.values()) + 1  # more nodes do not help a pinned task
        work.stuck = (
            f"the slots of pool {self._pool!r} are held by streams that wait to be read ({', '.join(streams)}), and "
            "the thread that reads them waits for this task; open the pool with more slots per node, as with "
            f"`worker=sky.Worker(concurrency={more})` or `--concurrency {more}`, or read the stream into a list first"
        )
        self._cancel([work])


def _last(task: int, inputs: Mapping[int, int], needed: Container[int]) -> int:
    """Return the last task of a pipeline: when that ends, all streams of the pipeline are closed."""
    while (reader := inputs.get(task)) is not None and reader in needed:
        task = reader
    return task


def _needed(on: object, numbers: Mapping[int, int], tasks: "TaskManager") -> frozenset[int]:
    """Return all tasks of this pool that a wait depends on."""
    if not on:
        return frozenset()
    if isinstance(on, tuple):  # any one of them ends the wait, so it is stuck only if none can run
        any_of = [number for future in on for number in _needed(future, numbers, tasks)]
        is_stuck = len(any_of) == len(on) and all(tasks.could_start_on(number) is not None for number in any_of)
        return frozenset({min(any_of)}) if is_stuck else frozenset()
    if isinstance(on, TaskFuture) and (parts := dependencies_of(on)):
        return frozenset().union(*(_needed(part, numbers, tasks) for part in parts))
    number = numbers.get(id(on))
    return frozenset() if number is None else frozenset({number})
