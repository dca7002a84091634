"""Streams on the client: elements that arrive from a generator, and iterators that feed a task."""

import asyncio
import gc
import itertools
import pickle
import threading
import time
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from types import CellType
from typing import Any, Protocol, Self

from skyward.process.blocked_threads import Blocked
from skyward.process.conditions import LockedCondition
from skyward.process.forked import is_forked, refuse_forked
from skyward.process.thread_events import ThreadEvent
from skyward.wire.failures.failure import capture_failure
from skyward.wire.payloads.payload import Outgoing, blobs_of, decode, encode, encode_argument, outgoing
from skyward.wire.protocol.flow import WINDOW, cost
from skyward.wire.protocol.messages import Blob, Payload

__all__ = ["Buffered", "Feeder", "RemoteIterator", "Stream", "StreamBuffer", "feeder"]


_SEARCHED = 1000
"""Maximum number of objects that are searched for the streams that an iterator wraps."""


_CREDIT_EVERY = 0.05
"""Seconds after which consumed elements are credited, however few: uncredited ones are given again after a crash."""


class Buffered(Protocol):
    """Buffered that have arrived from generators and were not consumed yet."""

    def take(self) -> Any:
        """Wait for the next element, and return it.

        Raises:
            StopIteration: the stream has ended.
        """

    async def take_soon(self) -> Any:
        """Wait for the next element in a coroutine, and return it. If cancelled, no element is consumed.

        Raises:
            StopAsyncIteration: the stream has ended.
        """

    def close(self) -> None:
        """Stop the work on its node, unless it has ended. Idempotent."""

    @property
    def parts(self) -> "tuple[StreamBuffer, ...]":
        """The buffers of the generators."""


class StreamBuffer:
    """Buffer of elements that have arrived from a generator and were not consumed yet; at most one window of them.

    Args:
        granted: credit that the generator was granted; None if another process granted some.

    Attributes:
        received: number of elements that have arrived.
        on_change: called when elements have arrived, or the stream has ended.
    """

    def __init__(self, granted: int | None = WINDOW) -> None:
        self._credit: Callable[[int], None] = _unconnected
        self._fetch: Callable[[Blob], Future[memoryview]] = _unconnected
        self._drop: Callable[[tuple[bytes, ...]], None] = _unconnected
        self._stop: Callable[[], None] = _unconnected
        self._changed = LockedCondition()
        self._bell = ThreadEvent()
        self._items: deque[Payload] = deque()
        self._consumed = 0
        self._ended = False
        self._end: Callable[[], Any] | None = None
        self._granted = granted
        self._credit_at = 0.0
        self._paused_at = -1
        self._reader: weakref.ref[threading.Thread] | None = None
        self._fetched: dict[bytes, memoryview] = {}
        self.received = 0
        self.on_change: Callable[[], None] = _do_nothing

    def connect(
        self,
        credit: Callable[[int], None],
        fetch: Callable[[Blob], Future[memoryview]],
        drop: Callable[[tuple[bytes, ...]], None],
        stop: Callable[[], None],
    ) -> None:
        """Set the functions that grant credit, fetch large elements, drop them on the node, and stop the task."""
        self._credit, self._fetch, self._drop, self._stop = credit, fetch, drop, stop

    def arrive(self, items: tuple[Payload, ...]) -> None:
        """Queue elements."""
        with self._changed.lock:
            self.received += len(items)
            if not self._ended:
                self._items.extend(items)
                self._notify()
                return
        self._discard(items)

    def _notify(self) -> None:
        """Wake all waiting threads and coroutines."""
        self._changed.notify_all()
        self._bell.notify()
        self.on_change()

    def _discard(self, items: Iterable[Payload]) -> None:
        """Have the node drop the blobs of elements."""
        if blobs := blobs_of(items):
            self._drop(tuple(blob.key for blob in blobs))

    def pause(self, credited: int) -> None:
        """Record that the generator waits for credit. `credited`: total credit it had received at that time."""
        with self._changed.lock:
            self._paused_at = credited

    def finish(self, end: Callable[[], Any]) -> None:
        """End the stream. `end` returns the generator's return value, or raises the error that ended it."""
        with self._changed.lock:
            if not self._ended:
                self._ended, self._end = True, end
                self._notify()

    def take(self) -> Any:
        """Wait for the next element, and return it.

        Raises:
            StopIteration: the stream has ended; its value is the generator's return value.
        """
        refuse_forked()
        self.read_by(threading.current_thread())
        with self._changed.lock:
            if not self._items and not self._ended:
                with Blocked(self):
                    while not self._items and not self._ended:
                        self._changed.wait()
            payload, credit = self._pop()
        return self._deliver(payload, credit)

    def read_by(self, thread: threading.Thread) -> None:
        """Record the thread that reads the stream."""
        self._reader = weakref.ref(thread)

    async def take_soon(self) -> Any:
        """Wait for the next element in a coroutine, and return it. If cancelled, no element is consumed.

        Raises:
            StopAsyncIteration: the stream has ended.
        """
        refuse_forked()
        self._reader = None
        while True:
            with self._changed.lock:
                missing = self._missing()
                if not missing and (self._items or self._ended):
                    try:
                        payload, credit = self._pop()
                    except StopIteration:
                        raise StopAsyncIteration from None
                    break
                arriving = self._bell.next_notification()
            for blob in missing:
                self._fetched[blob.key] = await asyncio.wrap_future(self._fetch(blob))
            if not missing:
                await arriving
        return self._deliver(payload, credit)

    def _missing(self) -> list[Blob]:
        """Return the blobs of the next element that are still on the node."""
        return [blob for blob in blobs_of(itertools.islice(self._items, 1)) if blob.key not in self._fetched]

    def _pop(self) -> tuple[Payload, int]:
        """Return the next element and the credit to grant for it. Requires the lock; raises as `take` does."""
        if not self._items:
            end, self._end = self._end, None
            self._credit = self._fetch = self._stop = _unconnected  # they hold the task, and so its error
            try:
                value = end() if end is not None else None
            finally:
                del end  # for the same reason
            raise StopIteration(value)
        payload = self._items.popleft()
        self._consumed += cost(payload)
        now = time.monotonic()
        # The node keeps elements for a next client until they are credited: one with blobs before these are dropped.
        if (
            self._consumed >= WINDOW // 4
            or not self._items
            or now >= self._credit_at
            or payload.buffers
            or isinstance(payload.data, Blob)
        ):
            credit, self._credit_at = self._consumed, now + _CREDIT_EVERY
        else:
            credit = 0
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
        """Return a blob of an element; fetches it from the node if needed."""
        fetched = self._fetched.pop(blob.key, None)
        return self._fetch(blob).result() if fetched is None else fetched

    @property
    def has_elements(self) -> bool:
        """True if `take` would return an element at once."""
        return bool(self._items)

    @property
    def reader(self) -> threading.Thread | None:
        """Thread that last requested an element; None before the first request, and once the thread is gone."""
        return None if self._reader is None else self._reader()

    def paused(self) -> bool | None:
        """Return whether the generator waits for elements to be consumed; None if that is unknown.

        It does if it reported a pause and was granted no credit since. The state of a stream with buffered elements is
        unknown if another process granted credit to its generator.
        """
        with self._changed.lock:
            if self._ended or not self._items:
                return False
            return None if self._granted is None else self._paused_at == self._granted

    @property
    def parts(self) -> "tuple[StreamBuffer, ...]":
        """The buffers of the generators: this one."""
        return (self,)

    def close(self) -> None:
        """Stop the generator on its node, unless it has ended. Idempotent."""
        with self._changed.lock:
            items, self._items = self._items, deque()
            self._fetched.clear()
            ended, self._ended = self._ended, True
            self._notify()
        self._discard(items)
        if not ended:
            self._stop()
        elif items:
            self._credit(self._consumed + sum(map(cost, items)))  # so that the node does not keep them


class Stream[T](Iterator[T], AsyncIterator[T]):
    """Iterator over results as they arrive, for `for` on any thread, and for `async for`, which blocks no thread.

    Closing or dropping it stops the work.

    Example:
        @sky.function
        def count(n: int):
            yield from range(n)

        with sky.Compute() as pool, contextlib.closing(count(3) >> pool) as numbers:
            for number in numbers:
                print(number)
    """

    def __iter__(self) -> Self:
        return self

    @abstractmethod
    def __next__(self) -> T:
        """Wait for the next result, and return it."""

    def __aiter__(self) -> Self:
        return self

    @abstractmethod
    async def __anext__(self) -> T:
        """Wait for the next result in a coroutine, and return it."""

    @abstractmethod
    def close(self) -> None:
        """Stop the work on its node. Idempotent."""

    async def aclose(self) -> None:
        """Stop the work as `close` does, for `contextlib.aclosing`."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not is_forked():  # the work belongs to the parent process
            self.close()


class RemoteIterator[B: Buffered](Stream[Any]):
    """Iterator over the elements of a generator that runs on a node, as they arrive.

    An exception of the generator is raised after all elements that it yielded before.
    """

    def __init__(self, buffer: B) -> None:
        self.buffer = buffer

    def __next__(self) -> Any:
        return self.buffer.take()

    async def __anext__(self) -> Any:
        return await self.buffer.take_soon()

    def close(self) -> None:
        """Stop the generator on its node. Idempotent."""
        self.buffer.close()


def _do_nothing() -> None:
    pass


def _unconnected(*_: object) -> Any:
    raise RuntimeError("the stream was used before its task was sent")


class Feeder:
    """Reader of one iterator argument, on a thread of its own, at most one window ahead of the task.

    Args:
        source: the iterator that the caller passed.
        name: name of the thread.

    Attributes:
        order: lock that is held while elements are sent, to keep their order.
    """

    def __init__(self, source: Iterator[Any], name: str) -> None:
        self._source = source
        self._name = name
        self._changed = LockedCondition()
        self._room = WINDOW
        self._stopped = False
        self._waiting: list[Outgoing] = []
        self._thread: threading.Thread | None = None
        self._over = False
        self._failure: Outgoing | None = None
        self.order = asyncio.Lock()

    def start(self, ready: Callable[[], None]) -> None:
        """Start reading. `ready` is called on the feeder's thread when there is something to `take`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(ready,), name=self._name, daemon=True)
            self._thread.start()

    def reads(self) -> set[StreamBuffer]:
        """Return the streams that it will read once started: its source, or those that iterators like `map` wrap."""
        found: set[StreamBuffer] = set()
        seen: dict[int, object] = {}
        queue: deque[object] = deque() if self._thread is not None else deque([self._source])
        while queue and len(seen) < _SEARCHED:
            each = queue.popleft()
            if id(each) in seen:
                continue
            seen[id(each)] = each
            if isinstance(each, RemoteIterator):
                found |= {*each.buffer.parts}
            elif hasattr(type(each), "__next__") or type(each) in (tuple, list, dict, CellType):
                queue.extend(gc.get_referents(each))
        return found

    def grant(self, units: int) -> None:
        """Allow `units` more to be read."""
        with self._changed.lock:
            self._room += units
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop reading. A source that was never read is dropped, so that the streams in it are closed."""
        if self._thread is None:
            self._source = iter(())
        with self._changed.lock:
            self._stopped = True
            self._changed.notify_all()

    def take(self) -> tuple[list[Outgoing], bool, Outgoing | None]:
        """Return the elements read since the last call, whether these are the last, and the iterator's failure."""
        with self._changed.lock:
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
        with self._changed.lock:
            self._over, self._failure = True, failure
        ready()

    def _push(self, element: Outgoing, ready: Callable[[], None]) -> bool:
        units = cost(element.payload)
        with self._changed.lock:
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
    return encode_argument(element, "an element of the input stream")


_names = itertools.count(1)


def feeder(source: Iterator[Any]) -> Feeder:
    """Return a feeder for `source`."""
    return Feeder(source, f"skyward-feed-{next(_names)}")
