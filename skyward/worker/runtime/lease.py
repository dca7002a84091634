"""The lease of a worker that outlives its connection: it ends itself when its client is silent for too long."""

from collections.abc import Callable
from threading import Thread  # tasks may replace the attributes of the module

from skyward.process.clock import clock

__all__ = ["FINISH_WITHIN", "Lease"]

FINISH_WITHIN = 600.0
"""Seconds that running tasks have to finish once the lease has expired, unless the client is back."""

_CHECK_EVERY = 1.0


class Lease:
    """A timer that calls `end` once the lease has expired, and the running tasks have finished or timed out.

    It counts running time of this process: after a machine was frozen, its client has the same time as before.

    Args:
        seconds: duration of the lease.
        idle: returns whether nothing is running.
        end: called when the lease is over.
        finish_within: seconds that running tasks have to finish after the lease has expired.
        check_every: seconds between checks.
        pause: sleeps for a number of seconds.
        renewed: called at each check that finds the lease renewed.
    """

    def __init__(
        self,
        seconds: float,
        idle: Callable[[], bool],
        end: Callable[[], None],
        *,
        finish_within: float = FINISH_WITHIN,
        check_every: float = _CHECK_EVERY,
        pause: Callable[[float], None] = clock.sleep,
        renewed: Callable[[], None] = lambda: None,
    ) -> None:
        self._terms = seconds, finish_within
        self._idle = idle
        self._end = end
        self._check_every = check_every
        self._pause = pause
        self._on_renewed = renewed
        self._renewed = True

    @property
    def longest(self) -> float:
        """Seconds after the last message of the client by which the running tasks have ended, too."""
        return sum(self._terms)

    def renew(self) -> None:
        """Renew the lease. Thread-safe."""
        self._renewed = True

    def change(self, seconds: float, finish_within: float) -> None:
        """Change the duration of the lease, and the time that running tasks have to finish after it. Thread-safe."""
        self._terms = seconds, finish_within
        self._renewed = True

    def start(self) -> None:
        """Watch the lease on a thread of its own."""
        Thread(target=self.keep, name="skyward-lease", daemon=True).start()

    def keep(self) -> None:
        """Wait until the lease is over, then call `end`."""
        silent = 0.0
        while silent < self._terms[0] or not (self._idle() or silent >= self.longest):
            self._pause(self._check_every)
            if self._renewed:
                self._renewed, silent = False, 0.0
                self._on_renewed()
            else:
                silent += self._check_every
        self._end()
