"""The pace of requests to an API that limits it for each account."""

import asyncio
import threading
import time
from weakref import WeakValueDictionary

__all__ = ["Pace"]


class Pace:
    """Lets one caller pass every `interval` seconds, in the order in which they came."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._next = 0.0
        self._lock = threading.Lock()

    async def wait(self) -> None:
        """Wait for the caller's turn."""
        with self._lock:
            now = time.monotonic()
            turn = max(self._next, now)
            self._next = turn + self.interval
        await asyncio.sleep(turn - now)

    @classmethod
    def shared(cls, account: object, interval: float) -> "Pace":
        """Return the pace of `account`, the same for all callers in this process while one of them holds it."""
        with _lock:
            return _shared.setdefault((account, interval), cls(interval))


_lock = threading.Lock()
_shared: WeakValueDictionary[tuple[object, float], Pace] = WeakValueDictionary()
