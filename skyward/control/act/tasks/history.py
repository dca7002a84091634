"""Task history of a pool, for its views: unfinished tasks, the latest finished ones, and their output."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from skyward.control.act.tasks.task import Work
from skyward.control.decide.tasks.messages import SettleOutcome
from skyward.control.observe.costs import CellAccounts, CellCost, cost_of
from skyward.control.observe.origin import Origin
from skyward.control.observe.snapshot import OutputView, TaskView
from skyward.formatting import raised_text

__all__ = ["TaskHistory", "unix_offset"]

KEPT = 300
"""Number of finished tasks, and of pieces of output, that are kept."""

_TIMED_OUT = "it ran past its timeout"

LONGEST = 4096
"""Maximum length of one piece of output in characters; its end is kept."""

_apart = time.time() - time.monotonic()


def unix_offset() -> float:
    """Return the difference between Unix time and the monotonic clock in seconds.

    It is constant until the clocks have drifted by a second, so that the same moment is always the same number.
    """
    global _apart
    apart = time.time() - time.monotonic()
    if abs(apart - _apart) > 1.0:
        _apart = apart
    return _apart


class _Ended(NamedTuple):
    """A finished task, without a reference to its result."""

    task: int
    name: str
    outcome: SettleOutcome
    reason: str
    node: int | None
    origin: Origin | None
    queued_at: float
    sent_at: float | None
    ended_at: float
    seconds: float | None
    yielded: int
    cost: float
    retries: int


class TaskHistory:
    """Task history of one pool. Runs on the library's loop.

    Args:
        works: unfinished tasks, by number.
        holder: returns the rank of the node that has a task.

    Attributes:
        revision: incremented on every change of the pool; may be read from any thread.
    """

    def __init__(self, works: Mapping[int, Work], holder: Callable[[int], int | None]) -> None:
        self.revision = 0
        self._works = works
        self._holder = holder
        self._ended: deque[_Ended] = deque(maxlen=KEPT)
        self._output: deque[OutputView] = deque(maxlen=KEPT)
        self._numbers = itertools.count(1)
        self._accounts = CellAccounts()

    def ended(self, work: Work, outcome: SettleOutcome, reason: str) -> None:
        """Record a finished task; one that raised with the exception's type before the reason."""
        if outcome in ("error", "raised") and reason == work.reason:
            reason = raised_text(work.error, reason)
        node = work.nodes[-1] if work.nodes else None
        now = time.monotonic()
        cost = cost_of(work, now)
        if work.origin is not None:
            self._accounts.charge(work.origin, cost)
        self._ended.append(
            _Ended(
                work.task,
                work.code.name,
                outcome,
                reason,
                node,
                work.origin,
                work.queued_at,
                work.sent_at,
                now,
                work.seconds,
                work.yielded,
                cost,
                work.retried,
            )
        )

    def wrote(self, node: int, task: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Record output of a node; `task` is 0 if it belongs to no task."""
        self._output.append(OutputView(next(self._numbers), node, task, stream, text[-LONGEST:]))
        self.revision += 1

    def output(self, after: int = 0) -> tuple[OutputView, ...]:
        """Return the latest output after piece number `after`, oldest first."""
        return tuple(piece for piece in self._output if piece.number > after)

    def of_cell(self, number: int) -> tuple[int, ...]:
        """Return the unfinished tasks of a cell: of this client's cell, or else of a former client's."""
        found = [each for each in self._works.items() if each[1].origin and each[1].origin.number == number]
        ours = [task for task, work in found if work.origin and not work.origin.former]
        return tuple(ours or (task for task, _ in found))

    def cells(self) -> tuple[CellCost, ...]:
        """Return the cost of each cell so far."""
        return self._accounts.look(self._works.values())

    def tasks(self, limit: int) -> tuple[TaskView, ...]:
        """Return the latest finished tasks, and up to `limit` running and queued tasks, each by number."""
        since, now = unix_offset(), time.monotonic()
        placed = [(work, self._holder(number)) for number, work in self._works.items()]
        running = [pair for pair in placed if pair[1] is not None][:limit]
        queued = [pair for pair in placed if pair[1] is None][: limit - len(running)]
        return (
            *(_ended_view(ended, since) for ended in self._ended),
            *(_view(work, node, since, now) for work, node in running),
            *(_view(work, node, since, now) for work, node in queued),
        )


def _view(work: Work, node: int | None, since: float, now: float) -> TaskView:
    return TaskView(
        number=work.task,
        name=work.code.name,
        state="queued" if node is None else "running",
        node=node,
        origin=work.origin,
        queued_at=work.queued_at + since,
        started_at=None if node is None or work.sent_at is None else work.sent_at + since,
        yielded=work.yielded,
        cost=0.0 if node is None else cost_of(work, now),
        retries=work.retried,
    )


def _ended_view(ended: _Ended, since: float) -> TaskView:
    return TaskView(
        number=ended.task,
        name=ended.name,
        state={"value": "done", "cancelled": "cancelled"}.get(ended.outcome, "failed"),  # type: ignore[arg-type]  # one of the three
        node=ended.node,
        origin=ended.origin,
        queued_at=ended.queued_at + since,
        started_at=None if ended.sent_at is None else ended.sent_at + since,
        ended_at=ended.ended_at + since,
        seconds=ended.seconds,
        yielded=ended.yielded,
        cost=ended.cost,
        retries=ended.retries,
        reason=ended.reason or (_TIMED_OUT if ended.outcome == "timeout" else ""),
    )
