"""One timer that is set again and again, to the earliest of the times that were asked for."""

import asyncio
import time
from collections.abc import Callable

__all__ = ["Timer"]


class Timer:
    """Calls `ring` at a time of `time.monotonic`. Lives on a loop."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def set(self, at: float) -> None:
        """Ring at that time, unless it rings before."""
        if self._timer is not None:
            if self._at <= at:
                return
            self._timer.cancel()
        self._at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - time.monotonic()), self._rings)

    def stop(self) -> None:
        """Do not ring any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _rings(self) -> None:
        self._timer = None
        self._ring()
