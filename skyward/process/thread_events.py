"""A condition that coroutines wait for and other threads notify, without a thread for each wait.

By hand: `asyncio.Condition` belongs to one loop and is not thread-safe, and `threading.Condition` would block the loop.
"""

import asyncio
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ThreadEvent"]

_WAKE_INTERVAL = 0.2
"""Seconds between wakes of a loop with waiters.

A notebook's kernel handles an interrupt in Python code of the loop's
thread, which does not run while the loop sleeps, and the cancel that follows from it does not wake the loop.
"""


class ThreadEvent:
    """Condition that wakes the coroutines waiting for it, on any loop. Any thread may notify."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._wakes: list[Callable[[], None]] = []

    def notify(self, *_: object) -> None:
        """Wake the current waiters."""
        with self._lock:
            wakes, self._wakes = self._wakes, []
        for wake in wakes:
            wake()

    def next_notification(self) -> asyncio.Future[None]:
        """Return a future of the running loop that ends at the next `notify`."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not waiting.done():
                waiting.set_result(None)

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed, so there is no waiter
                loop.call_soon_threadsafe(end)

        with self._lock:
            self._wakes.append(wake)
        _awake.setdefault(loop, _Awake()).add(waiting)
        return waiting

    async def wait_for(self, is_true: "Callable[[], object]") -> None:
        """Wait until `is_true()` is true. It is checked now and after each `notify`."""
        while not is_true():
            notified = self.next_notification()
            if is_true():  # set between the check and the subscription
                notified.cancel()
                return
            await notified


class _Awake:
    """Timer that wakes its loop periodically while the loop has waiters."""

    def __init__(self) -> None:
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiting: asyncio.Future[None]) -> None:
        """Keep the loop awake until this future is done."""
        self._count += 1
        waiting.add_done_callback(self._done)
        if self._timer is None:
            self._tick()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_WAKE_INTERVAL, self._tick)

    def _done(self, _: asyncio.Future[None]) -> None:
        self._count -= 1
        if not self._count and self._timer is not None:
            self._timer.cancel()
            self._timer = None


_awake: WeakKeyDictionary[asyncio.AbstractEventLoop, _Awake] = WeakKeyDictionary()
