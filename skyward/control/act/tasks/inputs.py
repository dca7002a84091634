"""Inputs of a task: results of other tasks that it takes as arguments, and tasks that must succeed before it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from skyward.control.act.tasks.future import when_done
from skyward.control.act.tasks.remote_blobs import RemoteBlob
from skyward.process import background
from skyward.wire.kinds.exceptions import copy_exception
from skyward.wire.payloads.payload import encode_argument
from skyward.wire.protocol.messages import Payload

if TYPE_CHECKING:
    from skyward.kept.handles import Kept

__all__ = ["InputValue", "LocalValue", "TaskInputs", "with_note"]


class InputValue(Protocol):
    """A result that another task takes, encoded as its node sent it."""

    @property
    def payload(self) -> Payload:
        """The result without its blobs."""

    @property
    def blobs(self) -> Mapping[bytes, memoryview | RemoteBlob]:
        """The blobs of the result."""

    @property
    def kept(self) -> "Sequence[Kept[Any]]":
        """Handles of kept values inside the result."""

    def use(self) -> None:
        """Add a user: an unfinished task that takes the value."""

    def release(self) -> None:
        """Remove a user: the task has ended."""


@dataclass(frozen=True, slots=True)
class LocalValue:
    """A result in the memory of the client."""

    payload: Payload
    blobs: Mapping[bytes, memoryview] = field(default_factory=dict)
    kept: "tuple[Kept[Any], ...]" = ()

    def use(self) -> None:
        """Do nothing: the value is never released."""

    def release(self) -> None:
        """Do nothing, as in `use`."""


@dataclass(slots=True, eq=False)
class TaskInputs:
    """The futures that a task waits for. Runs on the library's loop.

    Attributes:
        name: name of the task's function.
        takes: futures whose values it takes, by the index of their markers.
        after: futures that must succeed before it runs.
        arrived: the values of `takes`, by the same index, once all of them are available.
        in_use: True while `arrived` is kept for the task.
    """

    name: str
    takes: tuple[Future[Any], ...]
    after: tuple[Future[Any], ...] = ()
    arrived: tuple[InputValue, ...] = ()
    in_use: bool = False

    @property
    def futures(self) -> tuple[Future[Any], ...]:
        """All futures, each once."""
        return tuple(dict.fromkeys((*self.takes, *self.after)))

    def wait(self, callback: Callable[[Future[Any] | None], object]) -> None:
        """Call `callback` once, on the loop: with the first future that fails, or with None once all have succeeded."""
        left = len(self.futures)
        over = False

        def ended(future: Future[Any]) -> None:
            nonlocal left, over
            left -= 1
            failed = future.cancelled() or Future.exception(future) is not None
            if not over and (failed or not left):
                over = True
                callback(future if failed else None)

        for future in self.futures:
            when_done(future, lambda each: background.call_soon(ended, each))

    @property
    def is_ready(self) -> bool:
        """True once there is nothing left to wait for."""
        return not self.takes and not self.after

    @property
    def bytes_here(self) -> int:
        """Size in bytes of the blobs of its values in the memory of the client."""
        blobs = [view for value in self.arrived for view in value.blobs.values()]
        return sum(view.nbytes for view in blobs if not isinstance(view, RemoteBlob))

    def release(self) -> None:
        """Release the values: the task has ended. Idempotent."""
        in_use, self.in_use = self.in_use, False
        for value in self.arrived if in_use else ():
            value.release()

    def again(self) -> "TaskInputs":
        """Return a copy that holds the same values, for a task that runs again."""
        for value in self.arrived:
            value.use()
        return TaskInputs(self.name, (), (), self.arrived, in_use=True)

    async def gather(self, undecoded: Callable[[Future[Any]], InputValue | None]) -> None:
        """Collect the values, once all futures are done.

        Args:
            undecoded: returns the encoded result of a task; None for a value that must be pickled here.

        Raises:
            PayloadError: a value cannot be sent.
        """
        found: list[InputValue] = []
        for future in self.takes:
            value = undecoded(future)
            # Pickling runs the user's code, which must not run on the library's loop.
            found.append(await asyncio.to_thread(_pickled, future, self.name) if value is None else value)
        for value in found:
            value.use()
        self.arrived, self.takes, self.after, self.in_use = tuple(found), (), (), True

    def failure(self, failed: Future[Any]) -> BaseException | None:
        """Return the error of the task because `failed` failed, with a note; None if `failed` was cancelled."""
        if failed.cancelled():
            return None
        original = Future.exception(failed)
        assert original is not None
        return with_note(original, f"{self.name}() did not run: {self.reason(failed)}, which failed.")

    def reason(self, ended: Future[Any]) -> str:
        """Return a phrase for the dependency of the task on `ended`."""
        name = getattr(ended, "name", "a future")
        return f"it takes the result of {name}" if ended in self.takes else f"it was to run after {name}"


def with_note(error: BaseException, note: str) -> BaseException:
    """Return a copy of `error` with a note; `error` itself if it cannot be copied."""
    try:
        copy = copy_exception(error)
        BaseException.add_note(copy, note)
    except Exception:  # raised by the exception's class: it must not end the loop
        return error
    return copy


def _pickled(future: Future[Any], name: str) -> LocalValue:
    outgoing = encode_argument(future.result(), f"a result that {name}() takes")
    return LocalValue(outgoing.payload, outgoing.blobs, outgoing.kept)
