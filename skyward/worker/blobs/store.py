"""The blobs of a node, in memory that every process of the node can open, with few descriptors.

A small blob shares one file with the other small ones, and a task reads a copy of it. A large blob has a file of its
own, which tasks map copy-on-write. Either way, a task may write to its argument, and the blob does not change. The
number of descriptors does not grow with the number of blobs: large blobs beyond a share of the limit are stored like
small ones.
"""

import contextlib
import mmap
import os
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable
from threading import Lock  # tasks may replace the attributes of the module
from typing import Any, NamedTuple
from weakref import WeakSet, finalize

from skyward.wire.payloads.digest import fresh_key
from skyward.worker.machine.hardware import free_memory

__all__ = ["BlobLocation", "BlobStore", "StoredBlob", "read_place"]

OWN_FROM = 4 * 1024 * 1024
"""Bytes from which a blob has a file of its own. Below that, mapping takes longer than copying."""

_PART = 4
"""Divisor of the descriptor limit: files of large blobs may take this part of the descriptors."""

_CHECK_EVERY = 4 * 1024 * 1024
"""Bytes of stored blobs between two checks of the free memory."""

_SPARE = 128 * 1024 * 1024
"""Bytes of memory that blobs leave free."""

_PUNCHED = hasattr(os, "memfd_create") and hasattr(mmap, "MADV_REMOVE")
_MOST = (1 << 40) if _PUNCHED else (1 << 30)
"""Size of a shared file, in bytes of offsets, at which another one is begun. Smaller where holes cannot be punched."""

_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
"""Options of a map that keeps no descriptor. Python 3.12 lacks them: there, each live large argument has one."""


class BlobLocation(NamedTuple):
    """Location of a blob for another process of the node: a path to open, and the bytes in that file."""

    path: str
    start: int
    size: int
    own: bool


def read_place(place: BlobLocation) -> memoryview:
    """Return the bytes of a blob that another process of the node holds, as private writable memory."""
    fd = os.open(place.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return _read(fd, place.start, place.size, own=place.own)
    finally:
        os.close(fd)


class _Private(mmap.mmap):
    """A private map of a file: writes are not visible to others.

    Attributes:
        before: another map of the file, with the original bytes; None where a map keeps a descriptor.
    """

    before: mmap.mmap | None = None


def _read(fd: int, start: int, size: int, *, own: bool) -> memoryview:
    if own:  # pages are shared until they are written to
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        pages = _Private(fd, size, flags=mmap.MAP_PRIVATE, prot=protection, **_UNTRACKED)
        if _UNTRACKED:
            pages.before = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ, **_UNTRACKED)
        return memoryview(pages)
    copy = memoryview(bytearray(size))
    done = 0
    while done < size:
        count = os.preadv(fd, [copy[done:]], start + done)
        if count == 0:
            raise EOFError("the blob is shorter than it should be")
        done += count
    return copy


class _File:
    """An anonymous file in memory, closed with the last reference. `end`: offset of its unused part."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _anonymous() if fd is None else fd
        self.end = 0
        finalize(self, os.close, self.fd).atexit = False


class StoredBlob:
    """Room for one blob. Its memory is freed with the last reference.

    Attributes:
        fd: descriptor of its file.
        start: offset of the blob in the file.
        size: bytes.
        own: True if the file holds nothing else.
    """

    __slots__ = ("__weakref__", "_file", "own", "size", "start")

    def __init__(self, file: _File, start: int, size: int, *, own: bool) -> None:
        self._file = file
        self.start = start
        self.size = size
        self.own = own
        if not own and _PUNCHED:
            finalize(self, _punch, file, start, size, os.getpid()).atexit = False

    @property
    def fd(self) -> int:
        return self._file.fd

    @property
    def place(self) -> BlobLocation:
        """Location of the blob for other processes of the node."""
        return BlobLocation(f"/proc/{os.getpid()}/fd/{self.fd}", self.start, self.size, self.own)

    def write(self, data: memoryview, at: int) -> None:
        """Write `data` at offset `at` of the blob.

        Raises:
            MemoryError: there is not enough memory for it.
        """
        at += self.start
        try:
            while data:
                written = os.pwrite(self.fd, data, at)
                at, data = at + written, data[written:]
        except OSError as error:
            raise MemoryError(f"a blob of {self.size:,} bytes cannot be stored: {error}") from None

    def read(self) -> memoryview:
        """Return the bytes, as private writable memory."""
        return _read(self.fd, self.start, self.size, own=self.own)


class BlobStore:
    """Blobs by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._blobs: dict[bytes, StoredBlob] = {}
        self._holders: Counter[bytes] = Counter()
        self._dropped: set[bytes] = set()
        self._made: set[bytes] = set()
        self._owned: dict[bytes, memoryview] = {}
        self._shared: _File | None = None
        self._files: WeakSet[_File] = WeakSet()
        self._unchecked = 0

    def reserve(self, size: int) -> StoredBlob:
        """Reserve room for a blob, to be written, and then to be passed to `publish`.

        Raises:
            MemoryError: there is not enough memory.
        """
        self._check_room(size)
        with self._lock:
            if size >= OWN_FROM and self._may_open:
                with contextlib.suppress(OSError):  # no descriptor is free
                    self._files.add(file := _File())
                    return StoredBlob(file, 0, size, own=True)
            try:
                return self._allocate(size)
            except OSError as error:
                raise MemoryError(f"a blob of {size:,} bytes cannot be stored: {error}") from None

    def _allocate(self, size: int) -> StoredBlob:
        """Return a part of the shared file. Parts are not reused, so that none is freed while it is read."""
        if self._shared is None or self._shared.end + size > min(_MOST, _limit(resource.RLIMIT_FSIZE)):
            self._shared = _File()
        start = self._shared.end
        os.ftruncate(self._shared.fd, start + size)
        self._shared.end += -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        return StoredBlob(self._shared, start, size, own=False)

    @property
    def _may_open(self) -> bool:
        return len(self._files) < _limit(resource.RLIMIT_NOFILE) // _PART

    def _check_room(self, size: int) -> None:
        """Refuse blobs beyond the free memory. Checked rarely: a check takes as long as writing 1 MiB."""
        with self._lock:
            self._unchecked += size
            if self._unchecked < _CHECK_EVERY:
                return
        free = free_memory()
        if free is None or size <= free - _SPARE:
            self._unchecked = 0
        else:
            raise MemoryError(f"{size:,} bytes are needed, and {max(0, free - _SPARE):,} bytes of memory are free")

    def publish(self, key: bytes, blob: StoredBlob) -> None:
        """Make the blob readable under `key`. Idempotent: a blob that is already there has the same bytes."""
        with self._lock:
            self._dropped.discard(key)
            self._blobs.setdefault(key, blob)

    def retain(self, key: bytes) -> bool:
        """Return whether the blob is here; cancel a pending drop of it."""
        with self._lock:
            self._dropped.discard(key)
            return key in self._blobs or key in self._owned

    def keep(self, view: memoryview) -> bytes:
        """Store a copy of this buffer under a fresh key; return the key.

        Raises:
            MemoryError: see `reserve`.
        """
        blob = self.reserve(view.nbytes)
        blob.write(view.cast("B"), 0)
        return self._publish_made(blob)

    def own(self, view: memoryview) -> bytes:
        """Keep memory that no one else can write to, without a copy; return its key. The first `get` stores it."""
        key = fresh_key()
        with self._lock:
            self._owned[key] = view.cast("B")
        return key

    def owned(self, key: bytes) -> memoryview | None:
        """Return the memory that `own` was given under `key`, or None."""
        with self._lock:
            return self._owned.get(key)

    def take_over(self, place: BlobLocation) -> StoredBlob:
        """Store a blob that another process of the node holds: its file, or a copy of its bytes.

        Raises:
            EOFError: the location does not hold the blob.
            MemoryError: see `reserve`.
            OSError: the other process has ended.
        """
        if place.own and (file := self._open(place)) is not None:
            return StoredBlob(file, 0, place.size, own=True)
        blob = self.reserve(place.size)
        blob.write(read_place(place), 0)
        return blob

    def _open(self, place: BlobLocation) -> _File | None:
        with self._lock:
            if not self._may_open:
                return None
            self._files.add(file := _File(os.open(place.path, os.O_RDWR | os.O_CLOEXEC)))
        if os.fstat(file.fd).st_size != place.size:
            raise EOFError("the location does not hold the blob")
        return file

    def adopt(self, place: BlobLocation) -> bytes:
        """Take over a result that another process of the node made; return its key.

        Raises:
            EOFError, MemoryError, OSError: see `take_over`.
        """
        return self._publish_made(self.take_over(place))

    def _publish_made(self, blob: StoredBlob) -> bytes:
        key = fresh_key()
        with self._lock:
            self._made.add(key)
        self.publish(key, blob)
        return key

    def get(self, key: bytes) -> StoredBlob:
        """Return the blob of `key`, which exists as long as the caller refers to it.

        Raises:
            KeyError: it was dropped, or was never here.
            MemoryError: it is still memory of a task's result, and cannot be stored.
        """
        with self._lock:
            if (stored := self._blobs.get(key)) is not None:
                return stored
            view = self._owned[key]
        blob = self.reserve(view.nbytes)
        blob.write(view, 0)
        with self._lock:
            if key in self._owned:
                del self._owned[key]
                self._made.add(key)
                self._blobs.setdefault(key, blob)
            return self._blobs.get(key, blob)

    def sizes(self) -> dict[bytes, int]:
        """Return the size of every blob that was sent here, without results and without pending drops."""
        with self._lock:
            hidden = self._dropped | self._made
            return {key: blob.size for key, blob in self._blobs.items() if key not in hidden}

    def read(self, key: bytes) -> memoryview:
        """Return the bytes of the blob of `key`, as private writable memory.

        Raises:
            KeyError: see `get`.
        """
        return self.get(key).read()

    def drop(self, keys: Collection[bytes]) -> None:
        """Drop these blobs, held ones once they are released. Memory that was read from them stays valid."""
        with self._lock:
            self._dropped.update(key for key in keys if key in self._blobs or key in self._owned)
            self._clear(keys)

    def hold(self, keys: Iterable[bytes]) -> list[bytes]:
        """Hold these blobs until `release`, even if they are dropped; return the keys of those that are here."""
        with self._lock:
            held = [key for key in keys if key in self._blobs or key in self._owned]
            self._holders.update(held)
            return held

    def release(self, keys: Iterable[bytes]) -> None:
        """Release holds, one for each occurrence of a key."""
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
                    self._blobs.pop(key, None)
                    self._owned.pop(key, None)


def _limit(resource_: int) -> int:
    soft, _ = resource.getrlimit(resource_)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _anonymous() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("skyward-blob", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # not Linux
        return os.dup(file.fileno())


def _punch(file: _File, start: int, size: int, owner: int) -> None:
    """Free the memory of a part of a file."""
    if os.getpid() != owner:  # a process that a task has forked: the blob is its parent's
        return
    with contextlib.suppress(OSError, ValueError), mmap.mmap(file.fd, size, offset=start, **_UNTRACKED) as part:
        part.madvise(mmap.MADV_REMOVE)
