"""Streams of events: an iterator, synchronous and asynchronous, over a bounded buffer."""

import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, cast

from skyward.errors import UsageError
from skyward.events.kinds import BaseEvent, EventsDropped
from skyward.process.conditions import LockedCondition
from skyward.values import limits
from skyward.values.validation import number

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

__all__ = ["EventBuffer", "EventStream"]

WAITING = 10_000
"""Events that are buffered for a slow reader."""

LOOK_EVERY = 1.0
"""Seconds between checks for the end of the program."""


class EventBuffer:
    """Bounded buffer of events for one reader. Methods may be called from any thread.

    Args:
        size: maximum number of events; the oldest are dropped.
    """

    def __init__(self, size: int = WAITING) -> None:
        self._events: deque[BaseEvent] = deque()
        self._size = size
        self._dropped = 0
        self._last_dropped: BaseEvent | None = None
        self._changed = LockedCondition()  # reentrant: a stream may be garbage-collected while its buffer is filled
        self._waiters: list[tuple[AbstractEventLoop, Future[None]]] = []
        self.ended = False

    def offer(self, event: BaseEvent) -> None:
        """Add an event. Never blocks."""
        with self._changed.lock:
            if self.ended:
                return
            if len(self._events) >= self._size:
                self._last_dropped = self._events.popleft()
                self._dropped += 1
            self._events.append(event)
            self._wake()

    def end(self) -> None:
        """Add no more events. The reader still gets the pending ones."""
        with self._changed.lock:
            self.ended = True
            self._wake()

    def close(self) -> None:
        """Drop everything: the reader is gone."""
        with self._changed.lock:
            self.ended = True
            self._events.clear()
            self._dropped = 0
            self._wake()

    def take(self, timeout: float | None = None) -> BaseEvent | None:
        """Return the next event, waiting at most `timeout` seconds; None at the end.

        Raises:
            TimeoutError: there was none in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed.lock:
            while not self._has_something():
                left = LOOK_EVERY if deadline is None else min(LOOK_EVERY, deadline - time.monotonic())
                if left <= 0:
                    raise TimeoutError
                self._changed.wait(left)
                self._end_with_the_program()
            return self._next()

    async def take_async(self) -> BaseEvent | None:
        """Return the next event, waiting on the running loop; None at the end."""
        import asyncio

        while True:
            with self._changed.lock:
                if self._has_something():
                    return self._next()
                loop = asyncio.get_running_loop()
                waiter = loop.create_future()
                entry = loop, waiter
                self._waiters.append(entry)
            try:
                await asyncio.wait([waiter], timeout=LOOK_EVERY)
                self._end_with_the_program()
            finally:
                with self._changed.lock:
                    if entry in self._waiters:
                        self._waiters.remove(entry)

    def _end_with_the_program(self) -> None:
        """End with the main thread: pools are closed only after every non-daemon thread has ended."""
        if not threading.main_thread().is_alive():
            self.ended = True

    def _has_something(self) -> bool:
        return bool(self._events) or self.ended

    def _next(self) -> BaseEvent | None:
        if self._dropped and (last := self._last_dropped) is not None:
            count, self._dropped = self._dropped, 0
            return EventsDropped(last.pool, last.number, last.time, count)
        return self._events.popleft() if self._events else None

    def _wake(self) -> None:
        self._changed.notify_all()
        waiters, self._waiters = self._waiters, []
        for loop, waiter in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_set, waiter)


def _set(waiter: "Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class EventStream[E: BaseEvent](Iterator[E | EventsDropped], AsyncIterator[E | EventsDropped]):
    """Live events of a pool, for `for` and `async for`; see `Compute.events`.

    Ends when the pool is closed. Closing it, leaving its `with` block or deleting it unsubscribes.
    """

    def __init__(self, buffer: EventBuffer, unsubscribe: Callable[[EventBuffer], object]) -> None:
        self._buffer = buffer
        self._release = weakref.finalize(self, unsubscribe, buffer)
        self._release.atexit = False

    def get(self, timeout: float | None = None) -> E | EventsDropped | None:
        """Return the next event; None at the end of the stream.

        Raises:
            TimeoutError: nothing happened for `timeout` seconds.
            UsageError: called in a callback of a future, where waiting would block the pool.
            SpecError: `timeout` is not a number of seconds.
        """
        number(timeout, "timeout", zero=True, optional=True, most=limits.SECONDS)
        from skyward.process import background  # imported late: the types of events are usable without a loop

        if background.on_loop():
            raise UsageError(
                "Cannot wait for events in a callback of a future: that would block the pool. Use a thread."
            )
        return cast("E | EventsDropped | None", self._buffer.take(timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> E | EventsDropped:
        event = self.get()
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E | EventsDropped:
        event = await self._buffer.take_async()
        if event is None:
            raise StopAsyncIteration
        return cast("E | EventsDropped", event)

    def close(self) -> None:
        """Unsubscribe. A thread that waits for an event gets the end of the stream. Idempotent."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
