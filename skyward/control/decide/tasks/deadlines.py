"""The deadlines of the tasks of one node, as its client keeps them. Decides; does nothing.

A node ends a task that runs past its timeout by itself. It cannot while C code holds its interpreter: then it does not
answer its client either. So the client counts too. A task is overdue `ALLOWANCE` seconds, and those of its own grace,
after its deadline or after it was told to stop. A node that has not answered for `UNHEARD` seconds and has an overdue
task is ended; the task ends with its timeout, or as cancelled. A node that answers is left to report by itself.

The time of a task counts from when it has a slot: at once where the node had one free, and otherwise from the end of
the task before it. A node runs what it is sent in that order.
"""

from dataclasses import dataclass, field
from itertools import islice

from skyward.wire.protocol.messages import PACKING

__all__ = ["ALLOWANCE", "LOOK", "UNHEARD", "Deadlines"]

ALLOWANCE = 1.0
"""Seconds that a node has to stop a task at its deadline and to say so; it gives up on the task after 0.8."""

UNHEARD = 2.0
"""Seconds without an answer after which a node with an overdue task is ended; a node answers once a second."""

LOOK = 0.25
"""Seconds between looks at the clock."""


@dataclass(slots=True)
class _Held:
    timeout: float | None
    grace: float
    since: float | None = None
    told: float | None = None

    def due(self) -> float | None:
        if self.told is not None:
            return self.told + self.grace
        return None if self.since is None or self.timeout is None else self.since + self.timeout + self.grace


@dataclass
class Deadlines:
    """The tasks that a node of `slots` slots holds, in the order they were sent. Times are of any steady clock."""

    slots: int
    _tasks: dict[int, _Held] = field(default_factory=dict)

    def sent(self, task: int, timeout: float | None, now: float, grace: float = 0.0) -> None:
        """Note that the node was sent a task, which has `grace` seconds to end by itself when it is to stop."""
        self._tasks[task] = _Held(timeout, grace)
        self._count(now)

    def stopped(self, task: int, now: float) -> None:
        """Note that a task was told to stop."""
        if (held := self._tasks.get(task)) is not None and held.told is None:
            held.told = now

    def leaving(self, task: int, now: float) -> None:
        """Note that a task has stopped and packs what it leaves, which may keep its node from answering."""
        if (held := self._tasks.get(task)) is not None:
            held.told, held.grace = now, PACKING

    def ended(self, task: int, now: float) -> None:
        """Note that the node is done with a task."""
        self._tasks.pop(task, None)
        self._count(now)

    def _count(self, now: float) -> None:
        for held in islice(self._tasks.values(), self.slots):
            if held.since is None:
                held.since = now

    def __bool__(self) -> bool:
        """Return whether time matters to any task."""
        return any(held.timeout is not None or held.told is not None for held in self._tasks.values())

    def overdue(self, now: float) -> tuple[int, ...]:
        """Return the tasks that should have been over for `ALLOWANCE` seconds."""
        return tuple(
            task for task, held in self._tasks.items() if (due := held.due()) is not None and now >= due + ALLOWANCE
        )
