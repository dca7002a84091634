"""Blobs in transfer to a node, whose received bytes can be read before the rest arrives.

An interrupted transfer is kept for a while: the next one, from any source, resumes it, and readers do not notice.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread  # tasks may replace the attributes of the module

from skyward.process.clock import clock
from skyward.process.conditions import LockedCondition
from skyward.worker.blobs.store import BlobLocation, BlobStore, StoredBlob

__all__ = ["Arrival", "BlobSource", "IncomingBlobs"]

KEEP = 60.0
"""Seconds that part of a blob is kept while no more bytes arrive."""


class Arrival:
    """A blob that is written from its front on.

    Attributes:
        blob: room for all of it.
        reached: number of bytes from the front that have arrived.
        gone: True if the transfer was given up.
        writers: number of transfers that write it.
    """

    def __init__(self, blob: StoredBlob, changed: LockedCondition) -> None:
        self.blob = blob
        self.reached = 0
        self.gone = False
        self.writers = 0
        self._changed = changed

    def write(self, data: memoryview, at: int) -> None:
        """Write `data` at offset `at`; all bytes before `at` have arrived."""
        self.blob.write(data, at)
        with self._changed.lock:
            if at + len(data) > self.reached:
                self.reached = at + len(data)
                self._changed.notify_all()


class BlobSource:
    """A blob for a reader. `blob` exists as long as the source does."""

    def __init__(self, blob: StoredBlob, arrival: Arrival | None, changed: LockedCondition) -> None:
        self.blob = blob
        self._arrival = arrival
        self._changed = changed

    def reached(self, beyond: int, within: float) -> int:
        """Return the number of bytes from the front, after waiting up to `within` seconds for more than `beyond`.

        Raises:
            EOFError: the transfer was given up.
        """
        arrival = self._arrival
        if arrival is None:
            return self.blob.size
        with self._changed.lock:
            self._changed.wait_for(lambda: arrival.reached > beyond or arrival.gone, within)
            if arrival.gone and arrival.reached <= beyond:
                raise EOFError("the transfer of the blob was given up")
            return arrival.reached


class IncomingBlobs:
    """Blobs in transfer to a node. A complete blob is published in `store`. Thread-safe."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._changed = LockedCondition()
        self._transfers: dict[bytes, Arrival] = {}

    @contextmanager
    def writing(self, key: bytes, size: int) -> Iterator[Arrival]:
        """Open a blob for writing, from any offset up to the bytes that have arrived; publish it once it is complete.

        Raises:
            MemoryError: there is not enough memory for it.
        """
        with self._changed.lock:
            arrival = self._transfers.get(key)
            if arrival is None or arrival.blob.size != size:
                arrival = self._transfers[key] = Arrival(self._store.reserve(size), self._changed)
                self._changed.notify_all()
            arrival.writers += 1
        try:
            yield arrival
            with self._changed.lock:
                if arrival.reached == size and self._transfers.get(key) is arrival:
                    self._store.publish(key, arrival.blob)
                    del self._transfers[key]
        finally:
            self._leave(key, arrival)

    def _leave(self, key: bytes, arrival: Arrival) -> None:
        """End a transfer; keep an incomplete blob without writers for a while, to be resumed."""
        with self._changed.lock:
            arrival.writers -= 1
            if arrival.writers or self._transfers.get(key) is not arrival:
                return
        # No `Timer`: its constructor uses the global `Thread`, which a task may replace.
        Thread(target=self._give_up, args=(key, arrival, arrival.reached), name="skyward-arrival", daemon=True).start()

    def _give_up(self, key: bytes, arrival: Arrival, reached: int) -> None:
        clock.sleep(KEEP)
        with self._changed.lock:
            if self._transfers.get(key) is arrival and not arrival.writers and arrival.reached == reached:
                self._forget(key, arrival)

    def _forget(self, key: bytes, arrival: Arrival) -> None:
        del self._transfers[key]
        arrival.gone = True
        self._changed.notify_all()

    def spoil(self, key: bytes, arrival: Arrival) -> None:
        """Discard the received bytes of a blob, which are not its content. The next transfer starts from the front."""
        with self._changed.lock:
            if self._transfers.get(key) is arrival:
                self._forget(key, arrival)

    def adopt(self, key: bytes, place: BlobLocation) -> None:
        """Take over a blob that is complete in another process.

        Raises:
            EOFError, MemoryError, OSError: see `BlobStore.take_over`.
        """
        blob = self._store.take_over(place)
        with self._changed.lock:
            self._store.publish(key, blob)
            if (arrival := self._transfers.get(key)) is not None:
                self._forget(key, arrival)
            self._changed.notify_all()

    def retain(self, key: bytes) -> bool:
        """Return whether a blob is complete; cancel a pending drop of it."""
        return self._store.retain(key)

    def has(self, key: bytes) -> bool:
        """Return whether a blob is complete."""
        try:
            self._store.get(key)
        except (KeyError, MemoryError):
            return False
        return True

    @contextmanager
    def reading(self, key: bytes, within: float) -> Iterator[BlobSource | None]:
        """Open a blob for reading, also one in transfer; None if no transfer starts `within` so many seconds."""
        self.has(key)  # may have to store the blob, which takes too long under the lock
        with self._changed.lock:
            self._changed.wait_for(lambda: key in self._transfers or self.has(key), within)
            source = self._source(key)
        yield source

    def _source(self, key: bytes) -> BlobSource | None:
        if (arrival := self._transfers.get(key)) is not None:
            return BlobSource(arrival.blob, arrival, self._changed)
        try:
            return BlobSource(self._store.get(key), None, self._changed)
        except KeyError:
            return None
