"""Which blobs the tasks of a node still need: a `Drop` of the client does not take them away before."""

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
    """What each task holds: its code and call to its end, an element of an input stream until it is consumed."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._lock = Lock()
        self._tasks: dict[int, _Held] = {}

    def submitted(self, task: int, payloads: Iterable[Payload]) -> None:
        """A task came, with these payloads."""
        with self._lock:
            self._tasks[task] = _Held(self._hold(payloads))

    def fed(self, feed: Feed) -> None:
        """Elements for a task came."""
        with self._lock:
            held = self._tasks.get(feed.task)
            if held is not None:
                elements = held.feeds.setdefault(feed.index, deque())
                elements.extend((cost(item), self._hold([item])) for item in feed.items)
                if feed.failure is not None:
                    held.keys += self._hold([feed.failure])

    def consumed(self, need: Need) -> None:
        """A task has taken elements that cost as much as it has room for again."""
        with self._lock:
            held = self._tasks.get(need.task)
            elements = held.feeds.get(need.index) if held is not None else None
            room = need.count
            while elements and room >= elements[0][0]:
                units, keys = elements.popleft()
                room -= units
                self._store.release(keys)

    def ended(self, task: int) -> None:
        """A task is over."""
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
