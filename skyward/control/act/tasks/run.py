"""Submitted work as its caller sees it: its result, state, cost, and stream."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from skyward.control.act.tasks.future import TaskFuture, on_cancel, release_handles, runs_while
from skyward.control.act.tasks.streams import Buffered, RemoteIterator, Stream
from skyward.control.act.tasks.task import Work
from skyward.control.observe.costs import cost_of
from skyward.errors import OperatorError, TaskTimeoutError
from skyward.process import background
from skyward.wire.protocol.messages import Blob

__all__ = ["Run", "Runner", "TaskOutcome", "follow", "future_of", "release_kept", "stop_overdue"]


class Runner(Protocol):
    """Runner of tasks: those of a pool. Called on the library's loop, except for `fetch`."""

    def cancel(self, works: Iterable[Work]) -> None:
        """Stop tasks."""

    def credit(self, work: Work, units: int) -> None:
        """Grant a task credit for the part of its stream that was consumed."""

    def fetch(self, work: Work, blob: Blob) -> Future[memoryview]:
        """Fetch a large element of a task's stream."""

    def drop(self, work: Work, keys: tuple[bytes, ...]) -> None:
        """Drop large elements of a task's stream."""


def follow(runner: Runner, work: Work) -> "Run[Any]":
    """Return a handle of a task that was sent, or is about to be."""

    def stop() -> None:
        background.call_soon(runner.cancel, [work])

    on_cancel(work.future, stop)
    runs_while(work.future, lambda: work.running)
    if work.stream is not None:
        work.stream.connect(
            lambda units: background.call_soon(runner.credit, work, units),
            lambda blob: runner.fetch(work, blob),
            lambda keys: background.call_soon(runner.drop, work, keys),
            stop,
        )
    return Run(work.future, lambda: [work], work.stream)


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """Final or partial outcome of one task.

    Attributes:
        node: rank of the node that it was last sent to; None if it was never sent.
        is_over: True if it has ended.
        value: its return value, or the state it left when it was stopped; None for neither.
        is_lost: True if it was stopped or failed, and left no state.
        error: the error that it failed with, if it left no state; None for none, and for a cancelled task.

    Example:
        >>> run = pool.start(train(10), on="all")
        >>> [outcome.node for outcome in run.remains() if not outcome.is_over]
    """

    node: int | None
    is_over: bool
    value: Any = None
    is_lost: bool = False
    error: BaseException | None = None


class Run[T]:
    """A submitted task or broadcast. Its result is in `future`.

    For a broadcast it is the list of results by rank; for a generator function the return value, at the end of the
    stream.

    Example:
        >>> run = pool.start(train(10))
        >>> run.future.result(), run.state, run.cost
    """

    def __init__(self, future: TaskFuture[T], works: Callable[[], Sequence[Work]], stream: Buffered | None) -> None:
        self.future = future
        self._works = works
        self._stream = stream

    @property
    def is_stream(self) -> bool:
        """True for a generator function, whose elements `items()` yields."""
        return self._stream is not None

    def items(self) -> Stream[Any]:
        """Return an iterator over the elements of a generator function. Closing or dropping it stops the generator.

        Raises:
            OperatorError: the function is not a generator function.
        """
        if self._stream is None:
            raise OperatorError("Only a generator function has items; take the result from `.future`.")
        return RemoteIterator(self._stream)

    def cancel(self) -> bool:
        """Stop the work on its nodes; False if it has ended. The future ends once the nodes have stopped."""
        return not self.future.done() and self.future.cancel()

    @property
    def is_leaving(self) -> bool:
        """True while its result, or the state it left, is being packed or transferred."""
        return any((work.is_leaving or work.bytes_in_transfer) and not work.future.done() for work in self._works())

    @property
    def bytes_in_transfer(self) -> int:
        """Bytes of results that are being transferred to the client."""
        return sum(work.bytes_in_transfer for work in self._works() if not work.future.done())

    def remains(self) -> list[TaskOutcome]:
        """Return the outcome of each of its tasks so far, by rank. Does not wait."""
        return [_remains_of(work) for work in self._works()]

    @property
    def nodes(self) -> list[int]:
        """Ranks of the nodes that it was sent to, in order of dispatch."""
        return [rank for work in self._works() for rank in work.nodes]

    @property
    def tasks(self) -> list[int]:
        """Numbers of its tasks, as `pool.logs(task=...)` takes them; empty until the pool has accepted it."""
        return [work.task for work in self._works() if work.task]

    @property
    def state(self) -> Literal["queued", "running", "done", "failed", "cancelled"]:
        """State of the work."""
        if self.future.done():
            if self.future.cancelled():
                return "cancelled"
            return "failed" if Future.exception(self.future) is not None or self.failed else "done"
        return "running" if any(work.running for work in self._works()) else "queued"

    @property
    def has_state(self) -> bool:
        """True if one of its tasks returned a result, or left its state when it was stopped. Decodes nothing."""
        return any(_has_state(work) for work in self._works())

    @property
    def failed(self) -> int:
        """Number of its tasks that failed, including cells that raised, whose tasks have a result."""
        return sum(_has_failed(work) for work in self._works())

    @property
    def unsaved(self) -> list[tuple[int, str]]:
        """Node of each of its tasks that left files which could not be uploaded to a volume, and a sentence on them.

        Only of tasks with a result, or a state that they left: the errors of others tell it themselves.
        """
        return [(work.nodes[-1], work.unsaved) for work in self._works() if work.unsaved and _has_state(work)]

    @property
    def is_only_unsaved(self) -> bool:
        """True if its tasks raised nothing, and failed only since files could not be uploaded to a volume."""
        failed = [work for work in self._works() if _has_failed(work)]
        return bool(failed) and all(work.unsaved and work.reason == work.unsaved for work in failed)

    @property
    def timed_out(self) -> int:
        """Number of those that failed because they ran past their timeout."""
        return sum(isinstance(_error_of(work), TaskTimeoutError) for work in self._works())

    @property
    def stopped(self) -> int:
        """Number of its tasks that were stopped before they had ended, for another reason than their timeout."""
        return sum(work.future.cancelled() for work in self._works())

    @property
    def size(self) -> int:
        """Number of its tasks."""
        return len(self._works())

    @property
    def retries(self) -> list[tuple[int, str]]:
        """Number of retries, and the latest reason, of each task that was requeued."""
        return [(work.retried, work.retried_after) for work in self._works() if work.retried]

    @property
    def cost(self) -> float:
        """Cost of its tasks so far in USD: their shares of the price of their machines while they ran."""
        now = time.monotonic()
        return sum(cost_of(work, now) for work in self._works())

    @property
    def hardware(self) -> list[str]:
        """Distinct kinds of nodes that it was sent to: accelerators, or a provider."""
        return list(dict.fromkeys(work.slot_price.hardware for work in self._works() if work.slot_price.hardware))

    @property
    def elapsed(self) -> float | None:
        """Longest run time of its tasks in seconds; None until all have ended."""
        times = [work.seconds for work in self._works()]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None


def future_of(run: Run[Any]) -> TaskFuture[Any]:
    """Return a future of the result; for a generator function a finished future of the iterator of `items`."""
    if not run.is_stream:
        return run.future
    ready: TaskFuture[Any] = TaskFuture()
    ready.name = run.future.name
    ready.set_result(run.items())
    return ready


def stop_overdue(runs: Iterable[Run[Any]]) -> None:
    """Stop work that was started together, of which a part has run past the timeout of all. On the library's loop.

    All of it ends with `TaskTimeoutError`, as if it had reached the timeout before it was stopped.
    """
    for run in runs:
        for work in run._works():
            work.is_overdue = True
        run.cancel()


def release_kept(run: Run[Any]) -> None:
    """Release the handles of kept values in a result, which the caller has extracted."""
    for work in run._works():
        release_handles(work.future)
        if work.left is not None:
            work.left.kept.clear()


def _remains_of(work: Work) -> TaskOutcome:
    future, node = work.future, work.nodes[-1] if work.nodes else None
    if not future.done():
        return TaskOutcome(node, is_over=False)
    if not future.cancelled() and future.exception() is None:
        return TaskOutcome(node, True, future.result())
    if work.left is not None:
        return TaskOutcome(node, True, work.left.decode())
    error = None if future.cancelled() else future.exception()
    return TaskOutcome(node, True, is_lost=node is not None, error=error)


def _has_state(work: Work) -> bool:
    future = work.future
    returned = future.done() and not future.cancelled() and Future.exception(future) is None
    return returned or work.left is not None


def _has_failed(work: Work) -> bool:
    return bool(work.error) or _error_of(work) is not None


def _error_of(work: Work) -> BaseException | None:
    """Return the error that a task ended with; None for none, and for a cancelled task."""
    future = work.future
    return Future.exception(future) if future.done() and not future.cancelled() else None
