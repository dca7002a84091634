"""Stopping work when its caller is interrupted: all of it in one step, which a second interrupt does not break off."""

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Protocol

from skyward.process import background

__all__ = ["GRACE", "Stoppable", "stop_all"]

GRACE = 1.5
"""Seconds that nodes have to say that they have stopped, before the caller goes on without."""


class Stoppable(Protocol):
    """Work that can be stopped."""

    def cancel(self) -> bool:
        """Stop it; False if it is over."""


def stop_all[S: Stoppable](works: Iterable[S]) -> Future[list[S]]:
    """Stop all of `works`, soon, on the library's loop; a future of those that were not over."""
    given, stopped = tuple(works), Future[list[S]]()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result([work for work in given if work.cancel()])

    while True:
        try:
            background.call_soon(stop)
        except KeyboardInterrupt:  # all the more
            continue
        return stopped
