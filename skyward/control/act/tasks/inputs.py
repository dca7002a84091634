"""What a task waits for: the results of other tasks that it takes, and tasks that must have ended well before it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from skyward.control.act.tasks.remote_blobs import RemoteBlob
from skyward.process import background
from skyward.wire.kinds.exceptions import copy_exception
from skyward.wire.payloads.payload import encode
from skyward.wire.protocol.messages import Payload

if TYPE_CHECKING:
    from skyward.kept.handles import Kept

__all__ = ["HomeValue", "Inputs", "Value", "with_note"]


class Value(Protocol):
    """What a task takes from another: the result as its node sent it."""

    @property
    def payload(self) -> Payload:
        """The result, but for its large parts."""

    @property
    def blobs(self) -> Mapping[bytes, memoryview | RemoteBlob]:
        """Its large parts."""

    @property
    def kept(self) -> "Sequence[Kept[Any]]":
        """The handles of kept values that are part of it."""

    def use(self) -> None:
        """A task takes it, and has not ended."""

    def let_go(self) -> None:
        """Such a task has ended."""


@dataclass(frozen=True, slots=True)
class HomeValue:
    """A result that is here."""

    payload: Payload
    blobs: Mapping[bytes, memoryview] = field(default_factory=dict)
    kept: "tuple[Kept[Any], ...]" = ()

    def use(self) -> None:
        """It is here in any case."""

    def let_go(self) -> None:
        """See `use`."""


@dataclass(slots=True, eq=False)
class Inputs:
    """The futures that a task waits for. Lives on the library's loop.

    Attributes:
        name: of the task's function.
        takes: those whose values it takes, by the index of their markers.
        after: those that must have ended well.
        arrived: the values, by the same index, once all of them are there.
        in_use: whether these are kept for the task.
    """

    name: str
    takes: tuple[Future[Any], ...]
    after: tuple[Future[Any], ...] = ()
    arrived: tuple[Value, ...] = ()
    in_use: bool = False

    @property
    def futures(self) -> tuple[Future[Any], ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((*self.takes, *self.after)))

    def wait(self, told: Callable[[Future[Any] | None], None]) -> None:
        """Call `told` once, on the loop: with the first that does not end well, or with None once all have ended."""
        left = len(self.futures)
        over = False

        def ended(future: Future[Any]) -> None:
            nonlocal left, over
            left -= 1
            failed = future.cancelled() or Future.exception(future) is not None
            if not over and (failed or not left):
                over = True
                told(future if failed else None)

        for future in self.futures:
            when_over = getattr(future, "when_over", future.add_done_callback)
            when_over(lambda each: background.call_soon(ended, each))

    @property
    def is_ready(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return not self.takes and not self.after

    @property
    def bytes_here(self) -> int:
        """Bytes of the large parts of its values that are here."""
        blobs = [view for value in self.arrived for view in value.blobs.values()]
        return sum(view.nbytes for view in blobs if not isinstance(view, RemoteBlob))

    def let_go(self) -> None:
        """The task has ended. Twice does no harm."""
        in_use, self.in_use = self.in_use, False
        for value in self.arrived if in_use else ():
            value.let_go()

    def again(self) -> "Inputs":
        """The same, with its values at hand, for a task that runs again after it has ended."""
        for value in self.arrived:
            value.use()
        return Inputs(self.name, (), (), self.arrived, in_use=True)

    async def gather(self, undecoded: Callable[[Future[Any]], Value | None]) -> None:
        """Have the values at hand, once all have ended.

        Args:
            undecoded: returns the result of a task as it came; None for what has to be pickled here.

        Raises:
            PayloadError: one cannot travel.
        """
        found: list[Value] = []
        for future in self.takes:
            value = undecoded(future)
            # Nothing of the user's runs on the library's loop.
            found.append(await asyncio.to_thread(_pickled, future, self.name) if value is None else value)
        for value in found:
            value.use()
        self.arrived, self.takes, self.after, self.in_use = tuple(found), (), (), True

    def failure(self, failed: Future[Any]) -> BaseException | None:
        """The error that the task ends with because `failed` has, with a note that says so; None for a cancel."""
        if failed.cancelled():
            return None
        original = Future.exception(failed)
        assert original is not None
        return with_note(original, f"{self.name}() did not run: {self.reason(failed)}, which failed.")

    def reason(self, ended: Future[Any]) -> str:
        """What `ended` is to the task."""
        name = getattr(ended, "name", "a future")
        return f"it takes the result of {name}" if ended in self.takes else f"it was to run after {name}"


def with_note(error: BaseException, note: str) -> BaseException:
    """Another exception that holds the same as `error`, and a note."""
    try:
        copy = copy_exception(error)
        BaseException.add_note(copy, note)
    except Exception:  # of the class of the exception: it must not end the loop
        return error
    return copy


def _pickled(future: Future[Any], name: str) -> HomeValue:
    outgoing = encode(future.result(), f"a result that {name}() takes")
    return HomeValue(outgoing.payload, outgoing.blobs, outgoing.kept)
