"""Tasks and broadcasts that wait for others before they are queued."""

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from skyward.control.act.tasks.future import EncodedResult, TaskFuture, handles_in
from skyward.control.act.tasks.inputs import InputValue, LocalValue, TaskInputs
from skyward.control.act.tasks.remote_results import RemoteResult

__all__ = ["Prerequisites"]


class Prerequisites:
    """Tasks and broadcasts of one pool that wait, by number. Runs on the library's loop.

    Args:
        spawn: runs a coroutine for as long as the pool is open.
    """

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._spawn = spawn
        self._waiting: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(
        self,
        number: int,
        inputs: TaskInputs,
        ready: Callable[[], None],
        broken: Callable[[BaseException, str], None],
        unwanted: Callable[[str], None],
    ) -> None:
        """Wait for `inputs`, then call one of the callbacks, unless `drop` is called first.

        Args:
            number: number of the task or broadcast.
            inputs: the futures to wait for.
            ready: called once all inputs are available.
            broken: called if an input failed, with the error and the input's relation to the task.
            unwanted: called if an input was cancelled, with its relation to the task.
        """
        self._waiting.add(number)

        async def go_on(failed: Future[Any] | None) -> None:
            error: BaseException | None = None
            why = "" if failed is None else inputs.reason(failed)
            if failed is None:
                try:
                    await inputs.gather(_undecoded)
                except Exception as refused:  # from pickling a value
                    error = refused
            else:
                error = inputs.failure(failed)
            if not self.drop(number):
                inputs.release()
                return
            if error is not None:
                broken(error, f"{why}, which failed" if why else "")
            elif failed is not None:
                unwanted(f"{why}, which was cancelled")
            else:
                ready()

        inputs.wait(lambda failed: self._spawn(go_on(failed)))

    def drop(self, number: int) -> bool:
        """Stop waiting for a task's inputs; False if it was not waiting."""
        was_waiting = number in self._waiting
        self._waiting.discard(number)
        return was_waiting

    def close(self) -> None:
        """Stop waiting for all inputs."""
        self._waiting.clear()


def _undecoded(future: Future[Any]) -> InputValue | None:
    """Return the encoded result of a lent future; None for any other future."""
    arrived = Future.result(future)
    if isinstance(arrived, RemoteResult):
        return arrived
    if isinstance(future, TaskFuture) and isinstance(arrived, EncodedResult):
        return LocalValue(arrived.payload, arrived.blobs, tuple(handles_in(arrived.payload)))
    return None
