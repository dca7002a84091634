"""One submitted piece of work as its caller follows it."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from skyward.control.act.tasks.streams import RemoteIterator, StreamBuffer
from skyward.control.act.tasks.task import TaskFuture, Work
from skyward.control.observe.costs import cost_of
from skyward.errors import OperatorError
from skyward.process import background
from skyward.wire.protocol.messages import Blob

__all__ = ["Remains", "Run", "Runner", "follow"]


class Runner(Protocol):
    """What runs tasks: a pool. Called on the library's loop, but for `fetch`."""

    def cancel(self, works: Iterable[Work]) -> None:
        """Stop tasks."""

    def credit(self, work: Work, units: int) -> None:
        """Part of a task's stream was consumed."""

    def fetch(self, work: Work, blob: Blob) -> Future[memoryview]:
        """Get a large element of a task's stream."""

    def drop(self, work: Work, keys: tuple[bytes, ...]) -> None:
        """Large elements of a task's stream are not wanted any more."""


def follow(runner: Runner, work: Work) -> "Run[Any]":
    """A task that was sent, or is about to be, as its caller follows it."""

    def stop() -> None:
        background.call_soon(runner.cancel, [work])

    work.future.stop_with(stop)
    work.future.runs_while(lambda: work.running)
    if work.stream is not None:
        work.stream.connect(
            lambda units: background.call_soon(runner.credit, work, units),
            lambda blob: runner.fetch(work, blob),
            lambda keys: background.call_soon(runner.drop, work, keys),
            stop,
        )
    return Run(work.future, lambda: [work], work.stream)


@dataclass(frozen=True, slots=True)
class Remains:
    """What there is of one task.

    Attributes:
        node: rank of the node that it was sent to last; None if it was sent nowhere.
        is_over: whether it has ended.
        value: what it returned, or left when it was stopped; None for neither.
        is_lost: whether it was stopped, or failed, and what it left is lost with it.
    """

    node: int | None
    is_over: bool
    value: Any = None
    is_lost: bool = False


class Run[T]:
    """A task, or a broadcast, that was sent.

    Attributes:
        future: its result; for a broadcast the list of results in the order of ranks; for a generator function, what
            the generator returned, at the end of the stream.
    """

    def __init__(self, future: TaskFuture[T], works: Callable[[], Sequence[Work]], stream: StreamBuffer | None) -> None:
        self.future = future
        self._works = works
        self._stream = stream

    @property
    def is_stream(self) -> bool:
        """Whether it is a generator function's, so that `items()` gives its elements."""
        return self._stream is not None

    def items(self) -> RemoteIterator:
        """The elements of a generator function as they arrive. Closing or dropping the iterator stops the generator.

        Raises:
            OperatorError: the function is no generator function.
        """
        if self._stream is None:
            raise OperatorError("Only a generator function has items; take the result from `.future`.")
        return RemoteIterator(self._stream)

    def given(self) -> TaskFuture[Any]:
        """A future of what the call gives: its result; for a generator function, at once, the iterator of `items`."""
        if self._stream is None:
            return self.future
        ready: TaskFuture[Any] = TaskFuture()
        ready.name = self.future.name
        ready.set_result(self.items())
        return ready

    def release_kept(self) -> None:
        """Let go of the handles of kept values in its result, which its caller has taken out of it."""
        for work in self._works():
            work.future.release_kept()
            if work.left is not None:
                work.left.kept.clear()

    def cancel(self) -> bool:
        """Stop the work on its nodes; False if it is over. The future ends when the nodes have stopped."""
        return not self.future.done() and self.future.cancel()

    @property
    def is_leaving(self) -> bool:
        """Whether what it returned, or left when it was stopped, is being packed or is on its way here."""
        return any((work.is_leaving or work.coming) and not work.future.done() for work in self._works())

    @property
    def coming(self) -> int:
        """Bytes on their way here of what came of tasks that have ended on their nodes."""
        return sum(work.coming for work in self._works() if not work.future.done())

    def remains(self) -> list[Remains]:
        """What there is of each of its tasks, in the order of ranks. Waits for none of them."""
        return [_remains_of(work) for work in self._works()]

    @property
    def nodes(self) -> list[int]:
        """Ranks it runs on, or ran on, in the order of starting."""
        return [rank for work in self._works() for rank in work.nodes]

    @property
    def tasks(self) -> list[int]:
        """The numbers of its tasks, by which `pool.logs(task=...)` knows them; none until the pool has taken it."""
        return [work.task for work in self._works() if work.task]

    @property
    def state(self) -> Literal["queued", "running", "done", "failed", "cancelled"]:
        """How far it is."""
        if self.future.done():
            if self.future.cancelled():
                return "cancelled"
            return "failed" if Future.exception(self.future) is not None or self.failed else "done"
        return "running" if any(work.running for work in self._works()) else "queued"

    @property
    def failed(self) -> int:
        """Number of its tasks that have failed; a cell that raised has, though its task has a result."""
        return sum(_has_failed(work) for work in self._works())

    @property
    def size(self) -> int:
        """Number of its tasks."""
        return len(self._works())

    @property
    def retries(self) -> list[tuple[int, str]]:
        """Of each task that was queued again: how often, and why the last time."""
        return [(work.retried, work.retried_after) for work in self._works() if work.retried]

    @property
    def cost(self) -> float:
        """USD that its tasks have cost so far: their shares of the price of their machines while they ran."""
        now = time.monotonic()
        return sum(cost_of(work, now) for work in self._works())

    @property
    def hardware(self) -> list[str]:
        """What the nodes are that it runs on, or ran on, each kind once: accelerators, or a provider."""
        return list(dict.fromkeys(work.terms.hardware for work in self._works() if work.terms.hardware))

    @property
    def elapsed(self) -> float | None:
        """Seconds of running, the longest of its tasks; None while one of them runs."""
        times = [work.seconds for work in self._works()]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None


def _remains_of(work: Work) -> Remains:
    future, node = work.future, work.nodes[-1] if work.nodes else None
    if not future.done():
        return Remains(node, is_over=False)
    if not future.cancelled() and future.exception() is None:
        return Remains(node, True, future.result())
    if work.left is not None:
        return Remains(node, True, work.left.decode())
    return Remains(node, True, is_lost=node is not None)


def _has_failed(work: Work) -> bool:
    future = work.future
    return bool(work.error) or (future.done() and not future.cancelled() and Future.exception(future) is not None)
