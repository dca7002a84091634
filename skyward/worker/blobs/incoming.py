"""Blobs on their way in, which others can read as far as they have come.

A blob that stops coming is kept for a while: what comes next, from wherever, goes on where it stopped, and those who
read it notice nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Thread  # tasks may replace the attributes of the module

from skyward.process.clock import clock
from skyward.worker.blobs.store import BlobLocation, BlobStore, StoredBlob

__all__ = ["Arrival", "IncomingBlobs", "Source"]

KEEP = 60.0
"""Seconds that part of a blob is kept while none of the rest comes."""


class Arrival:
    """A blob that is written from its front on.

    Attributes:
        blob: room for all of it.
        reached: bytes from the front that are there.
        gone: whether it is given up.
    """

    def __init__(self, blob: StoredBlob, changed: Condition) -> None:
        self.blob = blob
        self.reached = 0
        self.gone = False
        self.writers = 0
        self._changed = changed

    def write(self, data: memoryview, at: int) -> None:
        """Write what follows the first `at` bytes, all of which are there."""
        self.blob.write(data, at)
        with self._changed:
            if at + len(data) > self.reached:
                self.reached = at + len(data)
                self._changed.notify_all()


class Source:
    """A blob as another reads it: `blob` is there as long as this is."""

    def __init__(self, blob: StoredBlob, arrival: Arrival | None, changed: Condition) -> None:
        self.blob = blob
        self._arrival = arrival
        self._changed = changed

    def reached(self, beyond: int, within: float) -> int:
        """Bytes from the front that are there; waits so many seconds at most until there are more than `beyond`.

        Raises:
            EOFError: there will be no more.
        """
        arrival = self._arrival
        if arrival is None:
            return self.blob.size
        with self._changed:
            self._changed.wait_for(lambda: arrival.reached > beyond or arrival.gone, within)
            if arrival.gone and arrival.reached <= beyond:
                raise EOFError("the rest of the blob does not come")
            return arrival.reached


class IncomingBlobs:
    """The blobs that come to a node, each whole before it is in `store`. Used from every thread of the worker."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._changed = Condition()
        self._coming: dict[bytes, Arrival] = {}

    @contextmanager
    def writing(self, key: bytes, size: int) -> Iterator[Arrival]:
        """A blob to write, from anywhere up to where it has come to. After that it is in the store, if it is whole.

        Raises:
            MemoryError: there is not enough memory for it.
        """
        with self._changed:
            arrival = self._coming.get(key)
            if arrival is None or arrival.blob.size != size:
                arrival = self._coming[key] = Arrival(self._store.reserve(size), self._changed)
                self._changed.notify_all()
            arrival.writers += 1
        try:
            yield arrival
            with self._changed:
                if arrival.reached == size and self._coming.get(key) is arrival:
                    self._store.publish(key, arrival.blob)
                    del self._coming[key]
        finally:
            self._leave(key, arrival)

    def _leave(self, key: bytes, arrival: Arrival) -> None:
        """Keep what nobody writes to any more for a while, where more may come."""
        with self._changed:
            arrival.writers -= 1
            if arrival.writers or self._coming.get(key) is not arrival:
                return
        # No `Timer`: its constructor uses the global `Thread`, which a task may replace.
        Thread(target=self._give_up, args=(key, arrival, arrival.reached), name="skyward-arrival", daemon=True).start()

    def _give_up(self, key: bytes, arrival: Arrival, reached: int) -> None:
        clock.sleep(KEEP)
        with self._changed:
            if self._coming.get(key) is arrival and not arrival.writers and arrival.reached == reached:
                self._forget(key, arrival)

    def _forget(self, key: bytes, arrival: Arrival) -> None:
        del self._coming[key]
        arrival.gone = True
        self._changed.notify_all()

    def spoil(self, key: bytes, arrival: Arrival) -> None:
        """What has come of a blob is not what it should be: begin anew."""
        with self._changed:
            if self._coming.get(key) is arrival:
                self._forget(key, arrival)

    def adopt(self, key: bytes, place: BlobLocation) -> None:
        """Take over a blob that is whole in another process.

        Raises:
            EOFError, MemoryError, OSError: see `BlobStore.take_over`.
        """
        blob = self._store.take_over(place)
        with self._changed:
            self._store.publish(key, blob)
            if (arrival := self._coming.get(key)) is not None:
                self._forget(key, arrival)
            self._changed.notify_all()

    def retain(self, key: bytes) -> bool:
        """Return whether a blob is there as a whole; it stays, also if it was dropped while a task holds it."""
        return self._store.retain(key)

    def has(self, key: bytes) -> bool:
        """Whether a blob is there as a whole."""
        try:
            self._store.get(key)
        except (KeyError, MemoryError):
            return False
        return True

    @contextmanager
    def reading(self, key: bytes, within: float) -> Iterator[Source | None]:
        """A blob to read, also one that is still coming; None where it has not begun to within so many seconds."""
        self.has(key)  # which may have to store it, and that takes too long with the lock
        with self._changed:
            self._changed.wait_for(lambda: key in self._coming or self.has(key), within)
            source = self._source(key)
        yield source

    def _source(self, key: bytes) -> Source | None:
        if (arrival := self._coming.get(key)) is not None:
            return Source(arrival.blob, arrival, self._changed)
        try:
            return Source(self._store.get(key), None, self._changed)
        except KeyError:
            return None
