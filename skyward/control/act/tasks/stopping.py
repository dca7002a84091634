"""Cancellation of work when its caller is interrupted: in one step, which a second interrupt cannot abort."""

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Protocol

from skyward.process import background

__all__ = ["GRACE", "Cancellable", "stop_all"]

GRACE = 1.5
"""Seconds that the caller waits for nodes to confirm that they have stopped."""


class Cancellable(Protocol):
    """Work that can be stopped."""

    def cancel(self) -> bool:
        """Stop the work; False if it has ended."""


def stop_all[S: Cancellable](works: Iterable[S]) -> Future[list[S]]:
    """Stop all of `works`, soon, on the library's loop. Return a future of those that were unfinished."""
    given, stopped = tuple(works), Future[list[S]]()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result([work for work in given if work.cancel()])

    while True:
        try:
            background.call_soon(stop)
        except KeyboardInterrupt:  # a further interrupt is one more reason to stop
            continue
        return stopped
