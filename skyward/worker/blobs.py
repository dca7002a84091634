"""The blobs that a node holds, in memory that every process of the node can map.

Each task maps a blob for itself, copy on write: an array argument can be written to, costs nothing until it is, and
leaves the blob as it came.
"""

import mmap
import os
import secrets
import tempfile
import threading
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

__all__ = ["BlobStore", "StoredBlob", "map_private"]


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """One blob: an open descriptor of the memory that holds it."""

    fd: int
    size: int

    @property
    def path(self) -> str:
        """Where another process of the same node can open it."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"


def map_private(fd: int, size: int) -> memoryview:
    """The blob as writable memory of the caller's own, shared until it is written to."""
    return memoryview(mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))


class BlobStore:
    """Blobs by key. Used from every thread of the worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blobs: dict[bytes, StoredBlob] = {}
        self._holders: Counter[bytes] = Counter()
        self._dropped: set[bytes] = set()
        self._made: set[bytes] = set()
        self._owned: dict[bytes, memoryview] = {}

    def reserve(self, size: int) -> StoredBlob:
        """Room for a blob, empty: write it to the descriptor, and `publish` or `discard` it then."""
        return StoredBlob(_anonymous(), size)

    def publish(self, key: bytes, blob: StoredBlob) -> None:
        """Make the blob readable under `key`. One that is there already stays: it has the same bytes."""
        with self._lock:
            self._dropped.discard(key)
            kept = self._blobs.setdefault(key, blob)
        if kept is not blob:
            os.close(blob.fd)

    def discard(self, blob: StoredBlob) -> None:
        """Give up a blob that was never published."""
        os.close(blob.fd)

    def keep(self, view: memoryview) -> bytes:
        """Store a copy of this buffer under a fresh key; the key."""
        blob = self.reserve(view.nbytes)
        rest = view.cast("B")
        while rest:
            rest = rest[os.write(blob.fd, rest) :]
        return self._publish_made(blob)

    def own(self, view: memoryview) -> bytes:
        """Have memory that nobody else can write to, as it is; its key. Only `owned` knows it, until it is dropped."""
        key = secrets.token_bytes(32)
        with self._lock:
            self._owned[key] = view.cast("B")
        return key

    def owned(self, key: bytes) -> memoryview | None:
        """What `own` was given under `key`."""
        with self._lock:
            return self._owned.get(key)

    def adopt(self, path: str, size: int) -> bytes:
        """Take over a blob that another process of the node made; its key."""
        return self._publish_made(StoredBlob(os.open(path, os.O_RDWR), size))

    def _publish_made(self, blob: StoredBlob) -> bytes:
        key = secrets.token_bytes(32)
        with self._lock:
            self._made.add(key)
        self.publish(key, blob)
        return key

    def get(self, key: bytes) -> StoredBlob:
        """The blob of `key`.

        Raises:
            KeyError: it was dropped, or never came.
        """
        with self._lock:
            return self._blobs[key]

    def open(self, key: bytes) -> StoredBlob:
        """The blob of `key` behind a descriptor of the caller's own, to be closed by it.

        Raises:
            KeyError: see `get`.
        """
        with self._lock:
            blob = self._blobs[key]
            return StoredBlob(os.dup(blob.fd), blob.size)

    def sizes(self) -> dict[bytes, int]:
        """Every blob that was brought here, but those that go once nobody holds them. Results are not among them."""
        with self._lock:
            hidden = self._dropped | self._made
            return {key: blob.size for key, blob in self._blobs.items() if key not in hidden}

    def map(self, key: bytes) -> memoryview:
        """The blob of `key` as `map_private` gives it.

        Raises:
            KeyError: see `get`.
        """
        with self._lock:
            blob = self._blobs[key]
            return map_private(blob.fd, blob.size)

    def drop(self, keys: Collection[bytes]) -> None:
        """Forget these blobs, those that are held once they are not. Memory goes when the last map of it does."""
        with self._lock:
            self._dropped.update(key for key in keys if key in self._blobs)
            self._clear(keys)
            for key in keys:
                self._owned.pop(key, None)

    def hold(self, keys: Iterable[bytes]) -> list[bytes]:
        """Keep those of these blobs that there are until `release`, even if they are dropped; which those are."""
        with self._lock:
            held = [key for key in keys if key in self._blobs]
            self._holders.update(held)
            return held

    def release(self, keys: Iterable[bytes]) -> None:
        """End as many holds, one for each time that a key is given."""
        with self._lock:
            self._holders.subtract(keys)
            self._clear(keys)

    def _clear(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            if self._holders[key] <= 0:
                del self._holders[key]
                if key in self._dropped:
                    self._dropped.discard(key)
                    self._made.discard(key)
                    os.close(self._blobs.pop(key).fd)


def _anonymous() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("skyward-blob", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # not Linux
        return os.dup(file.fileno())
