"""Queues of pending tasks: one FIFO queue for each shape of needs, and one for each node that tasks are pinned to."""

from collections import Counter, deque
from collections.abc import Iterable
from itertools import islice

from skyward.values.needs import NOTHING, Needs

__all__ = ["WaitingTasks"]

type _Entry = tuple[int, int, str]


class WaitingTasks:
    """Queues of task numbers. Across shapes, too, the oldest goes first; requeued tasks go before all others."""

    def __init__(self) -> None:
        self._queues: dict[Needs, deque[_Entry]] = {NOTHING: deque()}
        self._functions: dict[Needs, Counter[str]] = {}
        self._pinned: dict[int, deque[int]] = {}
        self._back = self._front = 0
        self._count = 0

    def __len__(self) -> int:
        """Return the number of tasks that wait for any node that fits."""
        return self._count

    @property
    def pinned(self) -> int:
        """Number of tasks that are pinned to a node."""
        return sum(map(len, self._pinned.values()))

    def add(self, task: int, needs: Needs, target: int | None, function: str = "") -> None:
        """Append a task of a function."""
        if target is not None:
            self._pinned.setdefault(target, deque()).append(task)
            return
        self._back += 1
        self._count += 1
        self._queue(needs).append((self._back, task, function))
        self._functions.setdefault(needs, Counter())[function] += 1

    def put_back(self, task: int, needs: Needs, target: int | None, function: str = "") -> None:
        """Prepend a task of a function."""
        if target is not None:
            self._pinned.setdefault(target, deque()).appendleft(task)
            return
        self._front -= 1
        self._count += 1
        self._queue(needs).appendleft((self._front, task, function))
        self._functions.setdefault(needs, Counter())[function] += 1

    def _queue(self, needs: Needs) -> deque[_Entry]:
        queue = self._queues.get(needs)
        if queue is None:
            queue = self._queues[needs] = deque()
        return queue

    def shapes(self) -> list[Needs]:
        """Return the queued shapes, the one with the oldest task first."""
        plain = self._queues[NOTHING]
        if len(self._queues) == 1:
            return [NOTHING] if plain else []
        return sorted((needs for needs, queue in self._queues.items() if queue), key=lambda n: self._queues[n][0][0])

    def counts(self) -> list[tuple[Needs, str, int]]:
        """Return the number of tasks of each queued shape and function, the oldest shape first."""
        return [
            (needs, function, count) for needs in self.shapes() for function, count in self._functions[needs].items()
        ]

    def _forget(self, needs: Needs, function: str) -> None:
        """Count a task less of a shape and function."""
        functions = self._functions[needs]
        functions[function] -= 1
        if not functions[function]:
            del functions[function]
        if not functions:
            del self._functions[needs]

    def has(self, needs: Needs) -> bool:
        """Return whether tasks of this shape are queued."""
        return bool(self._queues.get(needs))

    def next(self, needs: Needs) -> int | None:
        """Return the oldest task of this shape without removing it; None if there is none."""
        queue = self._queues.get(needs)
        return queue[0][1] if queue else None

    def first(self, needs: Needs, most: int) -> list[int]:
        """Return up to `most` of the oldest tasks of this shape without removing them."""
        return [task for _, task, _ in islice(self._queues.get(needs, ()), most)]

    def take(self, needs: Needs, place: int = 0) -> int:
        """Remove and return the oldest task of this shape, or the one `place` positions behind it."""
        queue = self._queues[needs]
        _, task, function = queue[place]
        del queue[place]
        self._count -= 1
        self._forget(needs, function)
        if not queue and needs is not NOTHING and needs != NOTHING:
            del self._queues[needs]
        return task

    def targets(self) -> tuple[int, ...]:
        """Return the nodes that pinned tasks wait for."""
        return tuple(self._pinned)

    def next_pinned(self, rank: int) -> int | None:
        """Return the oldest task pinned to this node without removing it; None if there is none."""
        queue = self._pinned.get(rank)
        return queue[0] if queue else None

    def pinned_to(self, rank: int) -> tuple[int, ...]:
        """Return the tasks pinned to this node, oldest first, without removing them."""
        return tuple(self._pinned.get(rank, ()))

    def take_pinned(self, rank: int) -> int:
        """Remove and return the oldest task pinned to this node."""
        queue = self._pinned[rank]
        task = queue.popleft()
        if not queue:
            del self._pinned[rank]
        return task

    def drop_pinned(self, rank: int) -> tuple[int, ...]:
        """Remove and return every task pinned to this node."""
        return tuple(self._pinned.pop(rank, ()))

    def discard(self, tasks: Iterable[int]) -> None:
        """Remove these tasks."""
        gone = set(tasks)
        for needs in tuple(self._queues):
            before = self._queues[needs]
            queue = deque(entry for entry in before if entry[1] not in gone)
            if len(queue) < len(before):
                for _, task, function in before:
                    if task in gone:
                        self._forget(needs, function)
            self._count -= len(self._queues[needs]) - len(queue)
            if queue or needs == NOTHING:
                self._queues[needs] = queue
            else:
                del self._queues[needs]
        for rank in tuple(self._pinned):
            kept = deque(task for task in self._pinned[rank] if task not in gone)
            if kept:
                self._pinned[rank] = kept
            else:
                del self._pinned[rank]
