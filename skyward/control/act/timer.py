"""A timer that can be set repeatedly, and fires at the earliest of the requested times."""

import asyncio
import time
from collections.abc import Callable

__all__ = ["Timer"]


class Timer:
    """Timer that calls `ring` at a time of `time.monotonic`. Runs on a loop."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, at: float) -> None:
        """Fire at that time, unless an earlier time is set."""
        if self._timer is not None:
            if self._at <= at:
                return
            self._timer.cancel()
        self._at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - time.monotonic()), self._fire)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self) -> None:
        self._timer = None
        self._ring()
