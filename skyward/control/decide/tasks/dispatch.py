"""Dispatch: which waiting task goes to which node, now or ahead of a free slot. Decides only; no I/O.

Tasks go in FIFO order, round robin or to the fullest node first, to nodes with a free slot and the resources they need;
a task that fits nowhere now does not block tasks of another shape. A task with large data goes to the free node that
lacks the least of it (`skyward.control.decide.tasks.locality`); if that is still much and tasks are short, a few later
tasks whose data is on a free node may overtake it. While tasks are short, a node also prefetches a few, so that it does
not idle for a round trip after each. Prefetched tasks that wait behind a long task are recalled as soon as another node
could run them.
"""

from collections import Counter

from skyward.control.decide.tasks.collective_runs import CollectiveRuns
from skyward.control.decide.tasks.gang_runs import GangRuns
from skyward.control.decide.tasks.gangs import set_aside_for
from skyward.control.decide.tasks.locality import WORTH, Locality
from skyward.control.decide.tasks.messages import Recall, TaskManagerEffect
from skyward.control.decide.tasks.slots import NodeSlots
from skyward.control.decide.tasks.state import TaskBook
from skyward.values.needs import NOTHING, Needs

__all__ = ["TaskDispatcher"]

PREFETCH_HORIZON = 0.004
"""Seconds of work that a node prefetches."""

PREFETCH_MOST = 64

OVERTAKEN = 16
OVERTAKING_SECONDS = 1.0
"""Tasks that may overtake the oldest one because a free node has their data, and the mean duration of tasks up to
which they may, so that the oldest one does not wait long."""

RECALL_AFTER = 0.05
"""Seconds without a task ending on a node after which its prefetched tasks may be recalled."""


class TaskDispatcher:
    """Sends the waiting tasks of a pool, and recalls prefetched ones."""

    def __init__(self, book: TaskBook, locality: Locality, collectives: CollectiveRuns, gangs: GangRuns) -> None:
        self._book = book
        self._locality = locality
        self._collectives = collectives
        self._gangs = gangs

    def dispatch(self, now: float, effects: list[TaskManagerEffect]) -> None:
        """Send every task that can start now, then those to prefetch."""
        self._book.reserved.clear()
        self._book.set_aside, self._book.set_aside_for = {}, None
        if self._book.waiting_gangs:
            self._dispatch_gangs(now, effects)
        self._dispatch_single(now, effects)
        if self._book.queue.has(NOTHING) and (ahead := self._prefetch_count()):
            while (task := self._prefetchable()) is not None and (free := self._best(task, ahead)) is not None:
                self._book.send(self._book.queue.take(NOTHING), free, now, effects)

    def _dispatch_gangs(self, now: float, effects: list[TaskManagerEffect]) -> None:
        """Start the gangs that fit now, each after the older tasks; reserve what the oldest of the others waits for."""
        failed: set[int] = set()
        for gang in self._book.waiting_gangs:
            if id(gang.demand) in failed:
                continue
            self._dispatch_single(now, effects, before=gang.number)
            if self._gangs.start(gang, now, effects):
                continue
            failed.add(id(gang.demand))
            if self._book.set_aside_for is None:
                self._book.set_aside, self._book.set_aside_for = set_aside_for(gang, self._book.table), gang

    def _dispatch_single(self, now: float, effects: list[TaskManagerEffect], before: int | None = None) -> None:
        """Send the tasks that can start now; with `before`, only those with lower numbers."""
        self._dispatch_pinned(now, effects, before)
        for needs in self._book.queue.shapes():
            while (chosen := self._choose(needs, before)) is not None:
                place, rank = chosen
                self._book.send(self._book.queue.take(needs, place), rank, now, effects)

    def _dispatch_pinned(self, now: float, effects: list[TaskManagerEffect], before: int | None = None) -> None:
        for rank in self._book.queue.targets():
            node = self._book.table.nodes.get(rank)  # draining nodes too: the task is pinned to this node
            while node is not None and (task := self._book.queue.next_pinned(rank)) is not None:
                if before is not None and task > before:
                    break
                if (collective := self._book.collective_of(self._book.tasks[task])) is not None:
                    if not self._collectives.may_start(collective):
                        self._book.reserved[rank] = collective.terms.procs
                        break
                    self._collectives.start(collective, now, effects)
                    continue
                needs, aside = self._book.tasks[task].needs, self._book.set_aside.get(rank)
                if not node.fits(needs) or (aside is not None and not node.fit_beside((needs,), aside)):
                    break
                self._book.send(self._book.queue.take_pinned(rank), rank, now, effects)

    def _choose(self, needs: Needs, before: int | None = None) -> tuple[int, int] | None:
        """Return the place in the queue of a shape's next task, and its node; None if none can be dispatched."""
        task = self._book.queue.next(needs)
        if task is None or (before is not None and task > before) or (rank := self._best(task)) is None:
            return None
        if before is not None:
            return 0, rank
        return self._overtaking(needs, task, rank) or (0, rank)

    def _overtaking(self, needs: Needs, oldest: int, rank: int) -> tuple[int, int] | None:
        """Return a later task whose data is on a free node, with that node, if `rank` lacks the data of the oldest."""
        record = self._book.tasks[oldest]
        if not record.blobs or record.overtaken >= OVERTAKEN or self._locality.to_send(rank, record.blobs) < WORTH:
            return None
        if self._book.task_seconds is None or self._book.task_seconds > OVERTAKING_SECONDS:
            return None
        for place, task in enumerate(self._book.queue.first(needs, 1 + OVERTAKEN)):
            blobs = self._book.tasks[task].blobs
            holder = self._best(task) if sum(blobs.values()) >= WORTH else None
            if holder is not None and not self._locality.to_send(holder, blobs):
                record.overtaken += 1
                return place, holder
        return None

    def _best(self, task: int, ahead: int = 0) -> int | None:
        """Return the best node for a task, among those where it can start now, or that may prefetch `ahead` tasks."""
        record = self._book.tasks[task]
        locality, blobs = self._locality, record.blobs
        cost = (lambda node: locality.cost(node.rank, node.busy, blobs)) if blobs else None
        if ahead:
            return self._book.table.next_ahead(ahead, cost, self._book.reserved, self._book.set_aside)
        return self._book.table.next_free(record.needs, cost, self._book.reserved, self._book.set_aside)

    def _prefetchable(self) -> int | None:
        """Return the next task if it may be prefetched: it must survive the loss of its node, which counts as a run."""
        task = self._book.queue.next(NOTHING)
        if task is None or not self._book.retries:
            return None
        record = self._book.tasks[task]
        return task if record.replayable and not record.losses else None

    def _prefetch_count(self) -> int:
        if self._book.task_seconds is None:
            return 0
        return min(PREFETCH_MOST, int(PREFETCH_HORIZON / max(self._book.task_seconds, 1e-6)))

    def recall(self, now: float, effects: list[TaskManagerEffect]) -> None:
        """Recall tasks that wait behind a long task, as far as other nodes have free slots for them."""
        kept = Counter({rank: aside.slots for rank, aside in self._book.set_aside.items()})
        kept.update(self._book.reserved)
        free = (max(0, self._book.table.nodes[rank].spare - kept[rank]) for rank in self._book.table.open)
        room = sum(free) if not self._book.queue else 0
        for rank in tuple(self._book.ahead):
            node = self._book.table.nodes[rank]
            if room <= 0:
                return
            if now - node.quiet_since < RECALL_AFTER:
                continue
            room -= self.recall_surplus(rank, node, room, effects)

    def recall_surplus(self, rank: int, node: NodeSlots, most: int, effects: list[TaskManagerEffect]) -> int:
        """Recall up to `most` tasks that a node has no slot for, the last one sent first; return the number."""
        recalled = 0
        for task in list(node.tasks)[node.slots :][::-1]:
            record = self._book.tasks[task]
            if recalled < most and record.target is None and record.status == "sent":
                record.life.move("recalled", self._book.now, cause=self._book.cause)
                effects.append(Recall(task, rank, cause=self._book.cause))
                recalled += 1
        return recalled
