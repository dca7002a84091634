"""What a task waits for: the results of other tasks that it takes, and tasks that must have ended well before it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from skyward.control import background
from skyward.wire.exceptions import copy_exception
from skyward.wire.payload import Outgoing, encode

__all__ = ["Inputs"]


@dataclass(slots=True, eq=False)
class Inputs:
    """The futures that a task waits for. Lives on the library's loop.

    Attributes:
        name: of the task's function.
        takes: those whose values it takes, by the index of their markers.
        after: those that must have ended well.
        arrived: the values, by the same index, once all of them are there.
    """

    name: str
    takes: tuple[Future[Any], ...]
    after: tuple[Future[Any], ...] = ()
    arrived: tuple[Outgoing, ...] = ()

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
            future.add_done_callback(lambda each: background.call_soon(ended, each))

    async def gather(self, undecoded: Callable[[Future[Any]], Outgoing | None]) -> None:
        """Have the values at hand, once all have ended.

        Args:
            undecoded: returns the result of a task as it came; None for what has to be pickled here.

        Raises:
            PayloadError: one cannot travel.
        """
        found = []
        for future in self.takes:
            value = undecoded(future)
            # Nothing of the user's runs on the library's loop.
            found.append(await asyncio.to_thread(_pickled, future, self.name) if value is None else value)
        self.arrived, self.takes = tuple(found), ()

    def failure(self, failed: Future[Any]) -> BaseException | None:
        """The error that the task ends with because `failed` has, with a note that says so; None for a cancel."""
        if failed.cancelled():
            return None
        original = Future.exception(failed)
        assert original is not None
        try:
            error = copy_exception(original)
            BaseException.add_note(error, f"{self.name}() did not run: {self.reason(failed)}, which failed.")
        except Exception:  # of the class of the exception: it must not end the loop
            return original
        return error

    def reason(self, ended: Future[Any]) -> str:
        """What `ended` is to the task."""
        name = getattr(ended, "name", "a future")
        return f"it takes the result of {name}" if ended in self.takes else f"it was to run after {name}"


def _pickled(future: Future[Any], name: str) -> Outgoing:
    return encode(future.result(), f"a result that {name}() takes")
