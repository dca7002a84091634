"""The task manager: which task goes to which node, and how each task ends. Decides; does nothing.

Tasks wait in one FIFO queue and go round robin to nodes with a free slot. While tasks are short, a node is also given
a few ahead of time (`prefetch`), so that it does not idle for a round trip after each; what turns out to wait behind a
long task is recalled as soon as another node could run it.

Each task ends exactly once. A task whose node dies goes back to the head of the queue, up to `retries` times, unless
part of its stream was already delivered or its input was already consumed: running it again would then double work.
"""

import itertools
from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from skyward.control.task_messages import (
    Broadcast,
    BroadcastEnded,
    Cancel,
    Delivered,
    Effect,
    Ended,
    Member,
    Message,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    Recall,
    Send,
    Settle,
    Started,
    Stop,
    Submitted,
    Tick,
)

__all__ = ["TaskManager"]

PREFETCH_HORIZON = 0.004
"""Seconds of work that a node is given ahead of time."""

PREFETCH_MOST = 64
RECALL_AFTER = 0.05
"""Seconds without a task ending on a node after which what waits there may be recalled."""


@dataclass(slots=True)
class _Task:
    target: int | None
    replayable: bool
    node: int | None = None
    started: bool = False
    cancelled: bool = False
    recalled: bool = False
    losses: int = 0
    attempt: int = 0
    broadcast: int | None = None
    share: tuple[int, int] | None = None


@dataclass(slots=True)
class _Node:
    slots: int
    tasks: dict[int, None] = field(default_factory=dict)
    quiet_since: float = 0.0

    @property
    def free(self) -> int:
        return self.slots - len(self.tasks)


@dataclass
class TaskManager:
    """State of the queue. `handle` is the only way in; it returns what to do.

    Attributes:
        retries: how often a task is sent again after its node died.
    """

    retries: int = 3
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _tasks: dict[int, _Task] = field(default_factory=dict)
    _queue: deque[int] = field(default_factory=deque)
    _pinned: dict[int, deque[int]] = field(default_factory=dict)
    _nodes: dict[int, _Node] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)
    _cursor: int = 0
    _broadcasts: dict[int, set[int]] = field(default_factory=dict)
    _mean_seconds: float | None = None
    _ahead: set[int] = field(default_factory=set)

    def number(self) -> int:
        """A number for a new task or broadcast."""
        return next(self._numbers)

    @property
    def queued(self) -> int:
        """Tasks that wait, wherever they do."""
        return len(self._tasks) - self.running

    @property
    def running(self) -> int:
        """Tasks that occupy a slot."""
        return sum(min(node.slots, len(node.tasks)) for node in self._nodes.values())

    @property
    def ranks(self) -> tuple[int, ...]:
        """The nodes that take tasks."""
        return tuple(self._order)

    def busy(self, rank: int) -> int:
        """Slots in use on a node."""
        node = self._nodes.get(rank)
        return 0 if node is None else min(node.slots, len(node.tasks))

    def node_of(self, task: int) -> int | None:
        """Where a task was sent last."""
        record = self._tasks.get(task)
        return None if record is None else record.node

    def waits(self) -> bool:
        """Whether any node holds tasks that it has no slot for, so that time matters."""
        return bool(self._ahead)

    def handle(self, message: Message, now: float) -> list[Effect]:
        """Take `message` at time `now`, in seconds of any steady clock; what must be done about it, in order."""
        effects: list[Effect] = []
        match message:
            case Submitted(tasks, target, replayable):
                self._submit(tasks, target, replayable)
            case Broadcast(broadcast):
                self._open_broadcast(broadcast, effects)
            case NodeJoined(rank, slots):
                self._join(rank, slots, now, effects)
            case NodeDraining(rank):
                self._drain(rank, effects)
            case NodeLost(rank, reason):
                self._lose(rank, reason, effects)
            case NodeRemoved(rank, reason):
                self._lose(rank, reason, effects)
                for task in tuple(self._pinned.pop(rank, ())):
                    self._settle(task, "lost", reason, effects)
            case Started(task):
                if (record := self._tasks.get(task)) is not None:
                    record.started = True
                return effects
            case Delivered(task):
                if (record := self._tasks.get(task)) is not None:
                    record.replayable = False
                return effects
            case Ended():
                self._end(message, now, effects)
            case Cancel(tasks):
                self._cancel(tasks, effects)
            case Tick():
                self._recall(now, effects)
        self._dispatch(now, effects)
        return effects

    def _submit(self, tasks: Iterable[int], target: int | None, replayable: bool) -> None:
        queue = self._queue if target is None else self._pinned.setdefault(target, deque())
        for task in tasks:
            self._tasks[task] = _Task(target, replayable)
            queue.append(task)

    def _open_broadcast(self, broadcast: int, effects: list[Effect]) -> None:
        self._broadcasts[broadcast] = set()
        for position, rank in enumerate(self._order):
            self._add_member(broadcast, rank, (position, len(self._order)), effects)

    def _add_member(self, broadcast: int, rank: int, share: tuple[int, int], effects: list[Effect]) -> None:
        task = self.number()
        self._tasks[task] = _Task(rank, replayable=True, broadcast=broadcast, share=share)
        self._broadcasts[broadcast].add(task)
        self._pinned.setdefault(rank, deque()).append(task)
        effects.append(Member(broadcast, task, rank))

    def _join(self, rank: int, slots: int, now: float, effects: list[Effect]) -> None:
        known = {record.target for record in self._tasks.values() if record.broadcast is not None}
        if rank not in self._nodes:
            self._nodes[rank] = _Node(slots, quiet_since=now)
        if rank not in self._order:
            insort(self._order, rank)
        if rank not in known:
            for broadcast, members in self._broadcasts.items():
                size = max((self._tasks[task].share or (0, 0))[1] for task in members) if members else 0
                self._add_member(broadcast, rank, (size, size) if size else (0, 1), effects)

    def _drain(self, rank: int, effects: list[Effect]) -> None:
        if rank in self._order:
            self._order.remove(rank)
            self._recall_surplus(rank, self._nodes[rank], len(self._tasks), effects)

    def _lose(self, rank: int, reason: str, effects: list[Effect]) -> None:
        node = self._nodes.pop(rank, None)
        if node is None:
            return
        self._ahead.discard(rank)
        if rank in self._order:
            self._order.remove(rank)
        again: list[int] = []
        for position, task in enumerate(node.tasks):
            record = self._tasks[task]
            ran = record.started or position < node.slots
            record.losses += ran
            if record.cancelled:
                self._settle(task, "cancelled", reason, effects)
            elif (ran and not record.replayable) or record.losses > self.retries:
                self._settle(task, "lost", reason, effects)
            else:
                again.append(task)
        for task in reversed(again):
            self._requeue(task)

    def _requeue(self, task: int) -> None:
        record = self._tasks[task]
        record.node, record.started, record.recalled = None, False, False
        record.attempt += 1
        queue = self._queue if record.target is None else self._pinned.setdefault(record.target, deque())
        queue.appendleft(task)

    def _end(self, ended: Ended, now: float, effects: list[Effect]) -> None:
        record = self._tasks.get(ended.task)
        if record is None or record.node != ended.rank:
            return  # it was over already, or runs elsewhere by now
        node = self._nodes.get(ended.rank)
        if node is not None:
            node.tasks.pop(ended.task, None)
            node.quiet_since = now
            if node.free >= 0:
                self._ahead.discard(ended.rank)
        match ended.outcome:
            case "returned" if not record.cancelled:
                self._requeue(ended.task)
            case "lost" if not record.cancelled:
                record.losses += 1
                if record.replayable and record.losses <= self.retries:
                    self._requeue(ended.task)
                else:
                    self._settle(ended.task, "lost", "the process it ran in was killed", effects)
            case "returned" | "lost":
                self._settle(ended.task, "cancelled", "", effects)
            case outcome:
                mean = self._mean_seconds
                self._mean_seconds = ended.seconds if mean is None else 0.8 * mean + 0.2 * ended.seconds
                self._settle(ended.task, outcome, "", effects)

    def _settle(
        self,
        task: int,
        outcome: Literal["value", "error", "timeout", "cancelled", "lost"],
        reason: str,
        effects: list[Effect],
    ) -> None:
        record = self._tasks.pop(task)
        effects.append(Settle(task, outcome, reason))
        if record.broadcast is not None:
            self._broadcasts[record.broadcast].discard(task)
            self._close_if_over(record.broadcast, effects)

    def _close_if_over(self, broadcast: int, effects: list[Effect]) -> None:
        if not self._broadcasts[broadcast]:
            del self._broadcasts[broadcast]
            effects.append(BroadcastEnded(broadcast))

    def _cancel(self, tasks: Iterable[int], effects: list[Effect]) -> None:
        waiting: set[int] = set()
        for task in tasks:
            record = self._tasks.get(task)
            if record is None or record.cancelled:
                continue
            record.cancelled = True
            if record.node is not None:
                effects.append(Stop(task, record.node))
            else:
                waiting.add(task)
        if waiting:
            self._queue = deque(task for task in self._queue if task not in waiting)
            for rank, queue in self._pinned.items():
                self._pinned[rank] = deque(task for task in queue if task not in waiting)
            for task in sorted(waiting):
                self._settle(task, "cancelled", "", effects)

    def _recall(self, now: float, effects: list[Effect]) -> None:
        """Take back what waits behind a long task, as far as other nodes have free slots for it."""
        room = sum(max(0, node.free) for node in self._nodes.values()) if not self._queue else 0
        for rank in tuple(self._ahead):
            node = self._nodes[rank]
            if room <= 0:
                return
            if now - node.quiet_since < RECALL_AFTER:
                continue
            room -= self._recall_surplus(rank, node, room, effects)

    def _recall_surplus(self, rank: int, node: _Node, most: int, effects: list[Effect]) -> int:
        """Recall up to `most` tasks that a node has no slot for, the last sent first; how many."""
        recalled = 0
        for task in list(node.tasks)[node.slots :][::-1]:
            record = self._tasks[task]
            if recalled < most and record.target is None and not record.started and not record.recalled:
                record.recalled = True
                effects.append(Recall(task, rank))
                recalled += 1
        return recalled

    def _dispatch(self, now: float, effects: list[Effect]) -> None:
        for rank in tuple(self._pinned) if self._pinned else ():
            queue, node = self._pinned[rank], self._nodes[rank] if rank in self._order else None
            while queue and node is not None and node.free > 0:
                self._send(queue.popleft(), rank, node, now, effects)
            if not queue:
                del self._pinned[rank]
        if not self._queue:
            return
        for ahead in (0, self._prefetch()):
            full = 0
            while self._queue and full < len(self._order):
                self._cursor %= len(self._order)
                rank = self._order[self._cursor]
                node = self._nodes[rank]
                self._cursor += 1
                if node.free + ahead > 0:
                    full = 0
                    self._send(self._queue.popleft(), rank, node, now, effects)
                else:
                    full += 1

    def _prefetch(self) -> int:
        if self._mean_seconds is None:
            return 0
        return min(PREFETCH_MOST, int(PREFETCH_HORIZON / max(self._mean_seconds, 1e-6)))

    def _send(self, task: int, rank: int, node: _Node, now: float, effects: list[Effect]) -> None:
        record = self._tasks[task]
        record.node = rank
        if not node.tasks:
            node.quiet_since = now
        node.tasks[task] = None
        if node.free < 0:
            self._ahead.add(rank)
        effects.append(Send(task, rank, record.attempt, record.share))
