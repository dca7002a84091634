"""Tasks and broadcasts that wait for others before they are queued."""

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from skyward.control.act.tasks.inputs import HomeValue, Inputs, Value
from skyward.control.act.tasks.remote_results import RemoteResult
from skyward.control.act.tasks.task import Arrived, TaskFuture, handles_in

__all__ = ["Prerequisites"]


class Prerequisites:
    """Those of one pool, by number. Lives on the library's loop.

    Args:
        spawn: runs a coroutine for as long as the pool is open.
    """

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._spawn = spawn
        self._waiting: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(
        self,
        number: int,
        inputs: Inputs,
        ready: Callable[[], None],
        broken: Callable[[BaseException, str], None],
        unwanted: Callable[[str], None],
    ) -> None:
        """Wait for `inputs`, and call one of these, unless it is let go before.

        Args:
            ready: all of them are there.
            broken: one failed, or could not be had: given the error, and what it has to do with the task.
            unwanted: one was cancelled: given what it has to do with the task.
        """
        self._waiting.add(number)

        async def go_on(failed: Future[Any] | None) -> None:
            error: BaseException | None = None
            why = "" if failed is None else inputs.reason(failed)
            if failed is None:
                try:
                    await inputs.gather(_as_it_came)
                except Exception as refused:  # of a value that has to be pickled here
                    error = refused
            else:
                error = inputs.failure(failed)
            if not self.let_go(number):
                inputs.let_go()
                return
            if error is not None:
                broken(error, f"{why}, which failed" if why else "")
            elif failed is not None:
                unwanted(f"{why}, which was cancelled")
            else:
                ready()

        inputs.wait(lambda failed: self._spawn(go_on(failed)))

    def let_go(self, number: int) -> bool:
        """Wait for it no longer; False where it does not wait."""
        waits = number in self._waiting
        self._waiting.discard(number)
        return waits

    def close(self) -> None:
        """Wait for nothing any more."""
        self._waiting.clear()


def _as_it_came(future: Future[Any]) -> Value | None:
    """The result of a task that was lent for others; None for any other future."""
    arrived = Future.result(future)
    if isinstance(arrived, RemoteResult):
        return arrived
    if isinstance(future, TaskFuture) and isinstance(arrived, Arrived):
        return HomeValue(arrived.payload, arrived.blobs, tuple(handles_in(arrived.payload)))
    return None
