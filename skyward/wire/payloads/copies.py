"""Copies of memory that its owner may write to while a task waits to be sent: one copy per content."""

import contextlib
import mmap
import threading
from weakref import WeakValueDictionary

from blake3 import blake3

from skyward.errors import TooLargeError
from skyward.formatting import size_text
from skyward.wire.payloads.digest import content_address

__all__ = ["allocate", "unchanging"]

_LARGE_PAGE = 2 * 1024 * 1024
_AT_ONCE = 8 * 1024 * 1024
"""Bytes that are copied and then hashed at once, while the processor's caches hold them."""

_PARALLEL_FROM = 1024 * 1024

_copies: WeakValueDictionary[bytes, memoryview] = WeakValueDictionary()
"""Copies by content address: tasks that take the same array share one copy."""

_lock = threading.Lock()


def unchanging(view: memoryview) -> tuple[bytes, memoryview]:
    """Return the content address of a flat view, and immutable bytes: its own if they are read-only, otherwise a copy.

    Raises:
        TooLargeError: there is not enough memory for a copy.
    """
    if not _may_change(view):
        return content_address(view), view
    with _lock:
        may_be_there = any(copy.nbytes == view.nbytes for copy in _copies.values())
    if may_be_there and (known := _copies.get(key := content_address(view))) is not None:
        return key, known
    try:
        copy = allocate(view.nbytes)
    except MemoryError:
        raise TooLargeError(
            f"Not enough memory here for a copy of {size_text(view.nbytes)}, which isolates the task from later "
            "changes. Wait for the task where it is sent (`f(x) >> pool`), which needs no copy, or send less at a time."
        ) from None
    hashed = blake3(max_threads=blake3.AUTO if view.nbytes >= _PARALLEL_FROM else 1)
    for start in range(0, view.nbytes, _AT_ONCE):
        copy[start : start + _AT_ONCE] = view[start : start + _AT_ONCE]
        hashed.update(copy[start : start + _AT_ONCE])
    key = hashed.digest()
    with _lock:
        return key, _copies.setdefault(key, copy)


def _may_change(view: memoryview) -> bool:
    """Return whether any code in this process can write to the memory of `view`."""
    owner: object = view
    while True:
        if isinstance(owner, memoryview):
            if not owner.readonly:
                return True
            inner = owner.obj
        elif hasattr(owner, "flags") and hasattr(owner, "base"):  # an array, read-only or not
            inner = owner.base
            if inner is None or getattr(owner.flags, "writeable", True):
                return True  # an array that owns its memory can be made writable again
        else:
            try:
                return not memoryview(owner).readonly  # type: ignore[arg-type]  # TypeError without a buffer
            except TypeError:
                return True
        owner = inner


def allocate(size: int) -> memoryview:
    """Return memory for `size` bytes, in large pages where available, because their allocation is several times faster.

    Raises:
        MemoryError: there is not enough.
    """
    if size < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return memoryview(bytearray(size))
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no memory for {size:,} bytes: {error}") from None
    with contextlib.suppress(OSError):  # not supported by this kernel
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)
