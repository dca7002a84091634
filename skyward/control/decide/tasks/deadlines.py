"""The deadlines of the tasks on one node, as its client enforces them. Decides only; no I/O.

A node stops a task that runs past its timeout by itself. It cannot while C code holds the GIL: then it does not answer
its client either, so the client keeps time too. A task is overdue `ALLOWANCE` seconds, and its own grace, after its
deadline or after its stop request. A node that has not answered for `UNRESPONSIVE` seconds and has an overdue task is
terminated; the task ends as timed out, or as cancelled. A node that answers reports by itself.

The time of a task counts from when it gets a slot: at once if the node had one free, otherwise from the end of the task
before it. A node runs tasks in the order in which they were sent.
"""

from dataclasses import dataclass, field
from itertools import islice

from skyward.wire.protocol.messages import PACKING_TIMEOUT

__all__ = ["ALLOWANCE", "CHECK_INTERVAL", "UNRESPONSIVE", "Deadlines"]

ALLOWANCE = 1.0
"""Seconds that a node has to stop a task at its deadline and to report it; the node gives up on the task after 0.8."""

UNRESPONSIVE = 2.0
"""Seconds without an answer after which a node with an overdue task is terminated; nodes answer once a second."""

CHECK_INTERVAL = 0.25
"""Seconds between checks of the deadlines."""


@dataclass(slots=True)
class _SentTask:
    timeout: float | None
    grace: float
    started_at: float | None = None
    stop_sent_at: float | None = None

    def due(self) -> float | None:
        if self.stop_sent_at is not None:
            return self.stop_sent_at + self.grace
        return None if self.started_at is None or self.timeout is None else self.started_at + self.timeout + self.grace


@dataclass
class Deadlines:
    """The tasks sent to a node with `slots` slots, in order. Times are of any monotonic clock."""

    slots: int
    _tasks: dict[int, _SentTask] = field(default_factory=dict)

    def sent(self, task: int, timeout: float | None, now: float, grace: float = 0.0) -> None:
        """Record that a task was sent to the node; it has `grace` seconds to end once it is asked to stop."""
        self._tasks[task] = _SentTask(timeout, grace)
        self._start_clocks(now)

    def stopped(self, task: int, now: float) -> None:
        """Record a stop request for a task."""
        if (sent := self._tasks.get(task)) is not None and sent.stop_sent_at is None:
            sent.stop_sent_at = now

    def leaving(self, task: int, now: float) -> None:
        """Record that a task has stopped and packs its state, during which its node may not answer."""
        if (sent := self._tasks.get(task)) is not None:
            sent.stop_sent_at, sent.grace = now, PACKING_TIMEOUT

    def ended(self, task: int, now: float) -> None:
        """Record that a task has ended on the node."""
        self._tasks.pop(task, None)
        self._start_clocks(now)

    def _start_clocks(self, now: float) -> None:
        for sent in islice(self._tasks.values(), self.slots):
            if sent.started_at is None:
                sent.started_at = now

    def __bool__(self) -> bool:
        """Return whether any task has a deadline or a stop request."""
        return any(sent.timeout is not None or sent.stop_sent_at is not None for sent in self._tasks.values())

    def overdue(self, now: float) -> tuple[int, ...]:
        """Return the tasks that are overdue."""
        return tuple(
            task for task, sent in self._tasks.items() if (due := sent.due()) is not None and now >= due + ALLOWANCE
        )
