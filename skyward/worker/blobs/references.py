"""References of a node's tasks to blobs: a `Drop` of the client takes effect when the last one is released."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock  # tasks may replace the attributes of the module

from skyward.wire.payloads.payload import blobs_of
from skyward.wire.protocol.flow import cost
from skyward.wire.protocol.messages import Feed, Need, Payload
from skyward.worker.blobs.store import BlobStore

__all__ = ["BlobReferences"]


@dataclass(slots=True)
class _Held:
    keys: list[bytes]
    feeds: dict[int, deque[tuple[int, list[bytes]]]] = field(default_factory=dict)


class BlobReferences:
    """References by task: to its code and call until it ends, to an element of an input until it is consumed."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._lock = Lock()
        self._tasks: dict[int, _Held] = {}

    def submitted(self, task: int, payloads: Iterable[Payload]) -> None:
        """Hold the blobs of a submitted task."""
        with self._lock:
            self._tasks[task] = _Held(self._hold(payloads))

    def fed(self, feed: Feed) -> None:
        """Hold the blobs of elements for a task."""
        with self._lock:
            held = self._tasks.get(feed.task)
            if held is not None:
                elements = held.feeds.setdefault(feed.index, deque())
                elements.extend((cost(item), self._hold([item])) for item in feed.items)
                if feed.failure is not None:
                    held.keys += self._hold([feed.failure])

    def consumed(self, need: Need) -> None:
        """Release elements that a task has consumed, by the cost that it reports."""
        with self._lock:
            held = self._tasks.get(need.task)
            elements = held.feeds.get(need.index) if held is not None else None
            room = need.count
            while elements and room >= elements[0][0]:
                units, keys = elements.popleft()
                room -= units
                self._store.release(keys)

    def ended(self, task: int) -> None:
        """Release the blobs of a task that has ended."""
        with self._lock:
            held = self._tasks.pop(task, None)
            if held is not None:
                self._store.release(held.keys)
                for elements in held.feeds.values():
                    for _, keys in elements:
                        self._store.release(keys)

    def _hold(self, payloads: Iterable[Payload]) -> list[bytes]:
        keys = [blob.key for blob in blobs_of(payloads)]
        return self._store.hold(keys) if keys else keys
