"""The blobs that a node holds, in memory that every process of the node can open, with few descriptors.

A small blob shares one file with the other small ones, and a task reads a copy of it. A large blob has a file of its
own, which tasks map copy on write. Either way an argument can be written to and leaves the blob as it came. So the
number of descriptors does not grow with the number of blobs: large ones beyond a share of the limit are stored as
small ones are.
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
"""Bytes from which a blob has a file of its own. To map less takes longer than to copy it."""

_SHARE = 4
"""One descriptor in so many of those that the process may open is for files of large blobs, at most."""

_LOOK_EVERY = 4 * 1024 * 1024
"""Bytes of blobs that are stored between two looks at the memory that is free."""

_SPARE = 128 * 1024 * 1024
"""Bytes of memory that blobs leave free."""

_PUNCHED = hasattr(os, "memfd_create") and hasattr(mmap, "MADV_REMOVE")
_MOST = (1 << 40) if _PUNCHED else (1 << 30)
"""Bytes of offsets in the shared file before another one is begun. Where no hole can be made in it, only then."""

_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
"""Have a map keep no descriptor. Python 3.12 cannot: there, each large argument that is alive has one."""


class BlobLocation(NamedTuple):
    """Where another process of the node finds a blob: a path to open, and the bytes in that file."""

    path: str
    start: int
    size: int
    own: bool


def read_place(place: BlobLocation) -> memoryview:
    """The bytes of a blob that another process of the node holds, as writable memory of the caller's own."""
    fd = os.open(place.path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return _read(fd, place.start, place.size, own=place.own)
    finally:
        os.close(fd)


class _Private(mmap.mmap):
    """A map of a file that others do not see the writes to.

    Attributes:
        before: another map of the file, which has the bytes as they were; None where a map keeps a descriptor.
    """

    before: mmap.mmap | None = None


def _read(fd: int, start: int, size: int, *, own: bool) -> memoryview:
    if own:  # shared with all who map it, until it is written to
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
    """A file in memory without a name, closed with the last reference to it. `end`: where nothing was written yet."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _anonymous() if fd is None else fd
        self.end = 0
        finalize(self, os.close, self.fd).atexit = False


class StoredBlob:
    """Room for one blob. It is given back with the last reference to it.

    Attributes:
        fd: the file that it is in, from `start` on.
        size: bytes.
        own: whether nothing else is in that file.
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
        """Where another process of the same node finds it."""
        return BlobLocation(f"/proc/{os.getpid()}/fd/{self.fd}", self.start, self.size, self.own)

    def write(self, data: memoryview, at: int) -> None:
        """Write `data`, `at` bytes after the front.

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
        """The bytes, as writable memory of the caller's own."""
        return _read(self.fd, self.start, self.size, own=self.own)


class BlobStore:
    """Blobs by key. Used from every thread of the worker."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._blobs: dict[bytes, StoredBlob] = {}
        self._holders: Counter[bytes] = Counter()
        self._dropped: set[bytes] = set()
        self._made: set[bytes] = set()
        self._owned: dict[bytes, memoryview] = {}
        self._shared: _File | None = None
        self._files: WeakSet[_File] = WeakSet()
        self._unseen = 0

    def reserve(self, size: int) -> StoredBlob:
        """Room for a blob, to be written, and to be given to `publish` then.

        Raises:
            MemoryError: there is not enough memory.
        """
        self._look_for_room(size)
        with self._lock:
            if size >= OWN_FROM and self._may_open:
                with contextlib.suppress(OSError):  # no descriptor is free
                    self._files.add(file := _File())
                    return StoredBlob(file, 0, size, own=True)
            try:
                return self._share_out(size)
            except OSError as error:
                raise MemoryError(f"a blob of {size:,} bytes cannot be stored: {error}") from None

    def _share_out(self, size: int) -> StoredBlob:
        """A part of the shared file. No part is used again, so that none is given back while it is read."""
        if self._shared is None or self._shared.end + size > min(_MOST, _limit(resource.RLIMIT_FSIZE)):
            self._shared = _File()
        start = self._shared.end
        os.ftruncate(self._shared.fd, start + size)
        self._shared.end += -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        return StoredBlob(self._shared, start, size, own=False)

    @property
    def _may_open(self) -> bool:
        return len(self._files) < _limit(resource.RLIMIT_NOFILE) // _SHARE

    def _look_for_room(self, size: int) -> None:
        """Refuse what the machine has no memory for. Only now and then: to look takes as long as to write 1 MB."""
        with self._lock:
            self._unseen += size
            if self._unseen < _LOOK_EVERY:
                return
        free = free_memory()
        if free is None or size <= free - _SPARE:
            self._unseen = 0
        else:
            raise MemoryError(f"{size:,} bytes are needed, and {max(0, free - _SPARE):,} bytes of memory are free")

    def publish(self, key: bytes, blob: StoredBlob) -> None:
        """Make the blob readable under `key`. One that is there already stays: it has the same bytes."""
        with self._lock:
            self._dropped.discard(key)
            self._blobs.setdefault(key, blob)

    def retain(self, key: bytes) -> bool:
        """Return whether the blob is here; one that only waits for its holders to be forgotten stays then."""
        with self._lock:
            self._dropped.discard(key)
            return key in self._blobs or key in self._owned

    def keep(self, view: memoryview) -> bytes:
        """Store a copy of this buffer under a fresh key; the key.

        Raises:
            MemoryError: see `reserve`.
        """
        blob = self.reserve(view.nbytes)
        blob.write(view.cast("B"), 0)
        return self._publish_made(blob)

    def own(self, view: memoryview) -> bytes:
        """Have memory that nobody else can write to, as it is; its key. It is stored once somebody is to `get` it."""
        key = fresh_key()
        with self._lock:
            self._owned[key] = view.cast("B")
        return key

    def owned(self, key: bytes) -> memoryview | None:
        """What `own` was given under `key`."""
        with self._lock:
            return self._owned.get(key)

    def take_over(self, place: BlobLocation) -> StoredBlob:
        """Store a blob that another process of the node holds: its file, or a copy of its bytes.

        Raises:
            EOFError: it is not there.
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
            raise EOFError("what is there is not the blob")
        return file

    def adopt(self, place: BlobLocation) -> bytes:
        """Take over a result that another process of the node made; its key.

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
        """The blob of `key`, which is there as long as the caller refers to it.

        Raises:
            KeyError: it was dropped, or never came.
            MemoryError: it is memory of a task's result still, and cannot be stored.
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
        """Every blob that was brought here, but those that go once nobody holds them. Results are not among them."""
        with self._lock:
            hidden = self._dropped | self._made
            return {key: blob.size for key, blob in self._blobs.items() if key not in hidden}

    def read(self, key: bytes) -> memoryview:
        """The bytes of the blob of `key`, as writable memory of the caller's own.

        Raises:
            KeyError: see `get`.
        """
        return self.get(key).read()

    def drop(self, keys: Collection[bytes]) -> None:
        """Forget these blobs, those that are held once they are not. What was read of them stays as it is."""
        with self._lock:
            self._dropped.update(key for key in keys if key in self._blobs or key in self._owned)
            self._clear(keys)

    def hold(self, keys: Iterable[bytes]) -> list[bytes]:
        """Keep those of these blobs that there are until `release`, even if they are dropped; which those are."""
        with self._lock:
            held = [key for key in keys if key in self._blobs or key in self._owned]
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
    """Give the memory of a part of a file back."""
    if os.getpid() != owner:  # a process that a task has forked ends, and the blob is its parent's
        return
    with contextlib.suppress(OSError, ValueError), mmap.mmap(file.fd, size, offset=start, **_UNTRACKED) as part:
        part.madvise(mmap.MADV_REMOVE)
