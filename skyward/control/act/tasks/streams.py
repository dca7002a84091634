"""Both ends of streams at the client: elements that arrive from a generator, and iterators that feed a task."""

import asyncio
import gc
import itertools
import pickle
import threading
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from types import CellType
from typing import Any, Self

from skyward.process.blocked_threads import Blocked
from skyward.process.forked import is_forked, refuse_forked
from skyward.process.thread_events import ThreadEvent
from skyward.wire.failures.failure import capture_failure
from skyward.wire.payloads.payload import Outgoing, blobs_of, decode, encode, outgoing
from skyward.wire.protocol.flow import WINDOW, cost
from skyward.wire.protocol.messages import Blob, Payload

__all__ = ["Feeder", "RemoteIterator", "Stream", "StreamBuffer", "feeder"]


_LOOKED_AT = 1000
"""Objects looked at to find the streams that an iterator wraps."""


class StreamBuffer:
    """Elements that have arrived from a generator and were not taken yet; at most a window of them.

    Args:
        granted: the credit that the generator was given; None where another process gave it some.

    Attributes:
        received: how many elements have arrived.
    """

    def __init__(self, granted: int | None = WINDOW) -> None:
        self._credit: Callable[[int], None] = _unconnected
        self._fetch: Callable[[Blob], Future[memoryview]] = _unconnected
        self._drop: Callable[[tuple[bytes, ...]], None] = _unconnected
        self._stop: Callable[[], None] = _unconnected
        self._changed = threading.Condition()
        self._bell = ThreadEvent()
        self._items: deque[Payload] = deque()
        self._consumed = 0
        self._ended = False
        self._end: Callable[[], Any] | None = None
        self._granted = granted
        self._paused_at = -1
        self._reader: weakref.ref[threading.Thread] | None = None
        self._fetched: dict[bytes, memoryview] = {}
        self.received = 0

    def connect(
        self,
        credit: Callable[[int], None],
        fetch: Callable[[Blob], Future[memoryview]],
        drop: Callable[[tuple[bytes, ...]], None],
        stop: Callable[[], None],
    ) -> None:
        """Say how to tell the node what was consumed, get large elements and have it drop them, and stop the task."""
        self._credit, self._fetch, self._drop, self._stop = credit, fetch, drop, stop

    def arrive(self, items: tuple[Payload, ...]) -> None:
        """Queue elements."""
        with self._changed:
            self.received += len(items)
            if not self._ended:
                self._items.extend(items)
                self._notify()
                return
        self._discard(items)

    def _notify(self) -> None:
        """Wake whoever waits, threads and coroutines."""
        self._changed.notify_all()
        self._bell.ring()

    def _discard(self, items: Iterable[Payload]) -> None:
        """Have the node forget the large parts of elements."""
        if blobs := blobs_of(items):
            self._drop(tuple(blob.key for blob in blobs))

    def pause(self, credited: int) -> None:
        """The generator waits for room. It had been given `credited` units of credit in all when it said so."""
        with self._changed:
            self._paused_at = credited

    def finish(self, end: Callable[[], Any]) -> None:
        """The stream is over. `end` gives what the generator returned, or raises what ended it."""
        with self._changed:
            if not self._ended:
                self._ended, self._end = True, end
                self._notify()

    def take(self) -> Any:
        """The next element, once there is one.

        Raises:
            StopIteration: the stream is over; its value is what the generator returned.
        """
        refuse_forked()
        self._reader = weakref.ref(threading.current_thread())
        with self._changed:
            if not self._items and not self._ended:
                with Blocked(self):
                    while not self._items and not self._ended:
                        self._changed.wait()
            payload, credit = self._pop()
        return self._deliver(payload, credit)

    async def take_soon(self) -> Any:
        """The next element, as `take` gives it, in a coroutine. Cancelled, it has taken none.

        Raises:
            StopAsyncIteration: the stream is over.
        """
        refuse_forked()
        self._reader = None
        while True:
            with self._changed:
                missing = self._missing()
                if not missing and (self._items or self._ended):
                    try:
                        payload, credit = self._pop()
                    except StopIteration:
                        raise StopAsyncIteration from None
                    break
                arriving = self._bell.rung()
            for blob in missing:
                self._fetched[blob.key] = await asyncio.wrap_future(self._fetch(blob))
            if not missing:
                await arriving
        return self._deliver(payload, credit)

    def _missing(self) -> list[Blob]:
        """The large parts of the next element that are still on the node."""
        return [blob for blob in blobs_of(itertools.islice(self._items, 1)) if blob.key not in self._fetched]

    def _pop(self) -> tuple[Payload, int]:
        """The next element, and how much credit follows from it. With the lock; raises what `take` raises."""
        if not self._items:
            end, self._end = self._end, None
            self._credit = self._fetch = self._stop = _unconnected  # they keep the task, and so what ended it
            try:
                value = end() if end is not None else None
            finally:
                del end  # as above
            raise StopIteration(value)
        payload = self._items.popleft()
        self._consumed += cost(payload)
        credit = self._consumed if self._consumed >= WINDOW // 4 or not self._items else 0
        self._consumed -= credit
        if self._granted is not None:
            self._granted += credit
        return payload, credit

    def _deliver(self, payload: Payload, credit: int) -> Any:
        if credit:
            self._credit(credit)
        try:
            return decode(payload, self._part)
        finally:
            self._discard([payload])

    def _part(self, blob: Blob) -> memoryview:
        """A large part of an element; waits where it is not here yet."""
        fetched = self._fetched.pop(blob.key, None)
        return self._fetch(blob).result() if fetched is None else fetched

    @property
    def reader(self) -> threading.Thread | None:
        """The thread that asked for an element last; None before the first, and once the thread is gone."""
        return None if self._reader is None else self._reader()

    def paused(self) -> bool | None:
        """Return whether the generator waits until elements are taken; None where that is not known.

        It does if it has said so, and was given no credit since. A stream with elements that wait to be taken, whose
        generator another process has given credit, may be paused.
        """
        with self._changed:
            if self._ended or not self._items:
                return False
            return None if self._granted is None else self._paused_at == self._granted

    def close(self) -> None:
        """Stop the generator on its node, unless it has ended. Twice does no harm."""
        with self._changed:
            items, self._items = self._items, deque()
            self._fetched.clear()
            ended, self._ended = self._ended, True
            self._notify()
        self._discard(items)
        if not ended:
            self._stop()


class Stream[T](Iterator[T], AsyncIterator[T]):
    """Results as they arrive: for `for` on any thread, and for `async for` in a coroutine, which blocks no thread.

    Closing it, or dropping it, stops the work that makes them.
    """

    def __iter__(self) -> Self:
        return self

    @abstractmethod
    def __next__(self) -> T:
        """The next one, once it is there."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> T:
        """The next one, once it is there."""

    @abstractmethod
    def close(self) -> None:
        """Stop the work on its node. Twice does no harm."""

    async def aclose(self) -> None:
        """The same as `close`, for `contextlib.aclosing`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not is_forked():  # the work is the parent's
            self.close()


class RemoteIterator(Stream[Any]):
    """The elements of a generator that runs on a node, as they arrive.

    What the generator raises is raised here, after every element that it yielded before.
    """

    def __init__(self, buffer: StreamBuffer) -> None:
        self.buffer = buffer

    def __next__(self) -> Any:
        return self.buffer.take()

    async def __anext__(self) -> Any:
        return await self.buffer.take_soon()

    def close(self) -> None:
        """Stop the generator on its node. Twice does no harm."""
        self.buffer.close()


def _unconnected(*_: object) -> Any:
    raise RuntimeError("the stream was used before its task was sent")


class Feeder:
    """Reads one iterator argument on a thread of its own, no further ahead than a window, and sends its elements.

    Args:
        source: what the caller passed.
        name: of the thread.

    Attributes:
        order: held while elements are on their way, so that they keep their order.
    """

    def __init__(self, source: Iterator[Any], name: str) -> None:
        self._source = source
        self._name = name
        self._changed = threading.Condition()
        self._room = WINDOW
        self._stopped = False
        self._waiting: list[Outgoing] = []
        self._thread: threading.Thread | None = None
        self._over = False
        self._failure: Outgoing | None = None
        self.order = asyncio.Lock()

    def start(self, ready: Callable[[], None]) -> None:
        """Begin to read. `ready` is called when there is something to `take`, from the feeder's thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(ready,), name=self._name, daemon=True)
            self._thread.start()

    def reads(self) -> set[StreamBuffer]:
        """Return the streams that it will read once it has started: its source, or what iterators like `map` wrap."""
        found: set[StreamBuffer] = set()
        seen: dict[int, object] = {}
        look: deque[object] = deque() if self._thread is not None else deque([self._source])
        while look and len(seen) < _LOOKED_AT:
            each = look.popleft()
            if id(each) in seen:
                continue
            seen[id(each)] = each
            if isinstance(each, RemoteIterator):
                found.add(each.buffer)
            elif hasattr(type(each), "__next__") or type(each) in (tuple, list, dict, CellType):
                look.extend(gc.get_referents(each))
        return found

    def grant(self, units: int) -> None:
        """The task has room for more."""
        with self._changed:
            self._room += units
            self._changed.notify_all()

    def stop(self) -> None:
        """Read no further. A source that was never read is let go, so that the streams in it are closed."""
        if self._thread is None:
            self._source = iter(())
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def take(self) -> tuple[list[Outgoing], bool, Outgoing | None]:
        """Elements read since the last call, whether they are the last, and the failure that ended the iterator."""
        with self._changed:
            items, self._waiting = self._waiting, []
            return items, self._over, self._failure

    def _run(self, ready: Callable[[], None]) -> None:
        failure: Outgoing | None = None
        try:
            for element in self._source:
                sent = _encode_element(element)
                if not self._push(sent, ready):
                    return
        except BaseException as error:
            failure = encode(capture_failure(error))
        with self._changed:
            self._over, self._failure = True, failure
        ready()

    def _push(self, element: Outgoing, ready: Callable[[], None]) -> bool:
        units = cost(element.payload)
        with self._changed:
            while self._room < units and self._room < WINDOW and not self._stopped:
                self._changed.wait()
            if self._stopped:
                return False
            self._room -= units
            self._waiting.append(element)
            first = len(self._waiting) == 1
        if first:
            ready()
        return True


def _encode_element(element: object) -> Outgoing:
    if type(element) in (int, float, str, bool):
        return outgoing(pickle.dumps(element, protocol=5), ())
    return encode(element, "an element of the input stream")


_names = itertools.count(1)


def feeder(source: Iterator[Any]) -> Feeder:
    """A feeder for `source`."""
    return Feeder(source, f"skyward-feed-{next(_names)}")
