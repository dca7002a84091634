"""The results of a group one by one, each as soon as it is there."""

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, Any

from skyward.control.act.tasks.run import Run
from skyward.control.act.tasks.stopping import stop_all
from skyward.control.act.tasks.streams import Stream
from skyward.process.blocked_threads import Blocked
from skyward.process.thread_events import ThreadEvent

if TYPE_CHECKING:
    from skyward.control.act.tasks.task import TaskFuture

__all__ = ["GroupStream"]


class GroupStream(Stream[Any]):
    """What `gather(..., stream=True) >> pool` gives. The first error is raised, and stops the other calls.

    A call of a generator function gives its stream, at once.

    Args:
        runs: the calls of the group, in their order.
        ordered: keep that order; False gives each result as it completes.
    """

    def __init__(self, runs: Iterable[Run[Any]], *, ordered: bool) -> None:
        self._runs = list(runs)  # those that `_waiting` is of
        self._waiting: list[TaskFuture[Any]] = [run.given() for run in self._runs]
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
            result = self._waiting[place].take()
            del self._waiting[place], self._runs[place]  # a stream that was given is its reader's
            return result
        except BaseException:
            self.close()
            raise

    async def __anext__(self) -> Any:
        if self._bell is None:
            self._bell = ThreadEvent()  # the futures refer to it, and not to this, which stops them when it is dropped
            for future in self._waiting:
                future.add_done_callback(self._bell.ring)
        await self._bell.until(lambda: not self._waiting or self._next_done() is not None)
        if not self._waiting:
            raise StopAsyncIteration
        return next(self)

    def _next_done(self) -> int | None:
        """The place of the next result, where that is there."""
        candidates = self._waiting[:1] if self._ordered else self._waiting
        return next((place for place, future in enumerate(candidates) if future.done()), None)

    def close(self) -> None:
        """Stop the calls that are not over. Twice does no harm."""
        runs, self._runs = self._runs, []
        self._waiting.clear()
        if runs:
            stop_all(runs)
