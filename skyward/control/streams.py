"""Both ends of streams at the client: elements that arrive from a generator, and iterators that feed a task."""

import asyncio
import itertools
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self

from skyward.wire.failure import capture_failure
from skyward.wire.flow import WINDOW, cost
from skyward.wire.messages import Blob, Payload
from skyward.wire.payload import Outgoing, decode, encode, outgoing

__all__ = ["Feeder", "RemoteIterator", "StreamBuffer", "feeder"]


class StreamBuffer:
    """Elements that have arrived from a generator and were not taken yet; at most a window of them."""

    def __init__(self) -> None:
        self._credit: Callable[[int], None] = _unconnected
        self._fetch: Callable[[Blob], memoryview] = _unconnected
        self._stop: Callable[[], None] = _unconnected
        self._changed = threading.Condition()
        self._items: deque[Payload] = deque()
        self._consumed = 0
        self._ended = False
        self._end: Callable[[], Any] | None = None
        self.received = 0

    def connect(
        self, credit: Callable[[int], None], fetch: Callable[[Blob], memoryview], stop: Callable[[], None]
    ) -> None:
        """Say how to tell the node what was consumed, how to get a large element, and how to stop the task."""
        self._credit, self._fetch, self._stop = credit, fetch, stop

    def arrive(self, items: tuple[Payload, ...]) -> None:
        """Queue elements."""
        with self._changed:
            self.received += len(items)
            if not self._ended:
                self._items.extend(items)
                self._changed.notify_all()

    def finish(self, end: Callable[[], Any]) -> None:
        """The stream is over. `end` gives what the generator returned, or raises what ended it."""
        with self._changed:
            if not self._ended:
                self._ended, self._end = True, end
                self._changed.notify_all()

    def take(self) -> Any:
        """The next element, once there is one.

        Raises:
            StopIteration: the stream is over; its value is what the generator returned.
        """
        with self._changed:
            while not self._items and not self._ended:
                self._changed.wait()
            if not self._items:
                end, self._end = self._end, None
                raise StopIteration(end() if end is not None else None)
            payload = self._items.popleft()
            last = not self._items
        self._consumed += cost(payload)
        if self._consumed >= WINDOW // 4 or last:
            self._credit(self._consumed)
            self._consumed = 0
        return decode(payload, self._fetch)

    def close(self) -> None:
        """Stop the generator on its node, unless it has ended. Twice does no harm."""
        with self._changed:
            self._items.clear()
            if self._ended:
                return
            self._ended = True
            self._changed.notify_all()
        self._stop()


class RemoteIterator(Iterator[Any]):
    """The elements of a generator that runs on a node, as they arrive.

    Closing it, or dropping it, stops the generator. What the generator raises is raised here, after every element that
    it yielded before.
    """

    def __init__(self, buffer: StreamBuffer) -> None:
        self._buffer = buffer

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._buffer.take()

    def close(self) -> None:
        """Stop the generator on its node. Twice does no harm."""
        self._buffer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


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

    def grant(self, units: int) -> None:
        """The task has room for more."""
        with self._changed:
            self._room += units
            self._changed.notify_all()

    def stop(self) -> None:
        """Read no further."""
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
