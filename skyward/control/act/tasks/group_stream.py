"""Streamed results of a group: each as soon as it is available."""

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any

from skyward.control.act.tasks.future import TaskFuture, wait_result
from skyward.control.act.tasks.run import Run, future_of
from skyward.control.act.tasks.stopping import stop_all
from skyward.control.act.tasks.streams import Stream
from skyward.process.blocked_threads import Blocked
from skyward.process.thread_events import ThreadEvent

__all__ = ["GroupStream"]


class GroupStream(Stream[Any]):
    """Iterator over the results of `gather(..., stream=True) >> pool`. The first error stops the other calls.

    A call of a generator function yields its stream at once.

    Args:
        runs: the calls of the group, in order.
        ordered: True to yield results in that order; False to yield them as they complete.
    """

    def __init__(self, runs: Iterable[Run[Any]], *, ordered: bool) -> None:
        self._runs = list(runs)  # parallel to `_waiting`
        self._waiting: list[TaskFuture[Any]] = [future_of(run) for run in self._runs]
        self._ordered = ordered
        self._bell: ThreadEvent | None = None

    def __next__(self) -> Any:
        if not self._waiting:
            raise StopIteration
        try:
            if not self._ordered and self._next_done() is None:
                with Blocked(tuple(self._waiting)):
                    wait(self._waiting, return_when=FIRST_COMPLETED)
            place = self._next_done() or 0
            result = wait_result(self._waiting[place])
            del self._waiting[place], self._runs[place]  # a stream that was yielded belongs to its reader
            return result
        except BaseException:
            self.close()
            raise

    async def __anext__(self) -> Any:
        if self._bell is None:
            self._bell = ThreadEvent()  # the futures must not refer to `self`, which stops them when it is dropped
            for future in self._waiting:
                future.add_done_callback(self._bell.notify)
        await self._bell.wait_for(lambda: not self._waiting or self._next_done() is not None)
        if not self._waiting:
            raise StopAsyncIteration
        return next(self)

    def _next_done(self) -> int | None:
        """Return the index of the next result; None if it is not available yet."""
        candidates = self._waiting[:1] if self._ordered else self._waiting
        return next((place for place, future in enumerate(candidates) if future.done()), None)

    def close(self) -> None:
        """Stop the unfinished calls. Idempotent."""
        runs, self._runs = self._runs, []
        self._waiting.clear()
        if runs:
            stop_all(runs)
