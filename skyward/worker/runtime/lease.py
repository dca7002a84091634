"""The lease of a worker that outlives its connection: without a word from its client for so long, it ends itself."""

from collections.abc import Callable
from threading import Thread  # tasks may replace the attributes of the module

from skyward.process.clock import clock

__all__ = ["FINISH_WITHIN", "Lease"]

FINISH_WITHIN = 600.0
"""Seconds that running tasks have to finish once the lease is over, unless the client is back."""

_LOOK = 1.0


class Lease:
    """Calls `end` once nobody has renewed it for `seconds`, and what is running has finished or had its time.

    It counts the seconds that this process ran: a machine that was frozen gives its client the same time as ever.

    Args:
        idle: whether nothing is running.
        look: seconds between looks at it.
        pause: waits so many seconds.
        renewed: is called at each look that finds it renewed.
    """

    def __init__(
        self,
        seconds: float,
        idle: Callable[[], bool],
        end: Callable[[], None],
        *,
        finish_within: float = FINISH_WITHIN,
        look: float = _LOOK,
        pause: Callable[[float], None] = clock.sleep,
        renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self._seconds = seconds
        self._idle = idle
        self._end = end
        self._finish_within = finish_within
        self._look = look
        self._pause = pause
        self._on_renewed = renewed
        self._renewed = True

    def renew(self) -> None:
        """The client has spoken. From any thread."""
        self._renewed = True

    def start(self) -> None:
        """Keep it, on a thread of its own."""
        Thread(target=self.keep, name="skyward-lease", daemon=True).start()

    def keep(self) -> None:
        """Wait until it is over, then end."""
        silent = 0.0
        while silent < self._seconds or not (self._idle() or silent >= self._seconds + self._finish_within):
            self._pause(self._look)
            if self._renewed:
                self._renewed, silent = False, 0.0
                self._on_renewed()
            else:
                silent += self._look
        self._end()
