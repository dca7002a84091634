"""Memory that a task was given, and whether it was written to since.

Where Linux says which pages of a private map are its own by now, nothing has to be read. Otherwise the bytes are
compared by their content address, and short ones as they are.
"""

import ctypes
import functools
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass

from skyward.wire.payloads.digest import content_address

__all__ = ["Watch", "address_of", "watch"]

_COPIED_UP_TO = 1 << 20
"""Bytes up to which a copy is kept, which takes less time than a content address, and says what was there."""

_PAGE = mmap.PAGESIZE
_IN_FILE, _SWAPPED, _PRESENT = 1 << 5, 1 << 6, 1 << 7
"""Bits 61 to 63 of an entry of `/proc/self/pagemap`: a page of the file; swapped out; in memory."""
_OWN = bytes(bool(bits & _SWAPPED or (bits & _PRESENT and not bits & _IN_FILE)) for bits in range(256))
"""By the highest byte of an entry, whether the page is a copy that belongs to this process."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What is known of memory that a task was given.

    Attributes:
        written: tells whether it was written to since.
        before: gives its bytes as they were; None where nobody has them any more.
        address: their content address, where they were read.
    """

    written: Callable[[], bool]
    before: Callable[[], bytes | memoryview | None]
    address: bytes | None = None


def watch(memory: bytes | bytearray | memoryview) -> Watch:
    """Return what tells, later, whether `memory` was written to since now, and what was there."""
    view = memoryview(memory).cast("B")
    if view.readonly:
        return Watch(lambda: False, lambda: view)
    if view.nbytes <= _COPIED_UP_TO:
        copy = bytes(view)
        return Watch(lambda: bytes(view) != copy, lambda: copy)
    source = view.obj
    if isinstance(source, mmap.mmap) and _pages_tell() and not _has_own_pages(view):
        before = getattr(source, "before", None)
        return Watch(lambda: _has_own_pages(view), lambda: None if before is None else memoryview(before))
    address = content_address(view)
    return Watch(lambda: content_address(view) != address, lambda: None, address)


class _Buffer(ctypes.Structure):
    """`Py_buffer`, as far as it is used."""

    _fields_ = [("address", ctypes.c_void_p), ("owner", ctypes.py_object), ("rest", ctypes.c_ssize_t * 12)]


def address_of(view: memoryview) -> int:
    """Return the address of the first byte of `view`."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    address: int = buffer.address or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


def _has_own_pages(view: memoryview) -> bool:
    """Return whether some pages of `view`, on a private map of a file, were written to."""
    start = address_of(view)
    first, end = start // _PAGE, -(-(start + view.nbytes) // _PAGE)
    with open("/proc/self/pagemap", "rb", buffering=0) as pages:
        entries = os.pread(pages.fileno(), 8 * (end - first), 8 * first)
    if len(entries) < 8 * (end - first):
        return True
    return b"\1" in entries[7::8].translate(_OWN)


@functools.cache
def _pages_tell() -> bool:
    """Return whether this system tells pages that were written to from those that were not."""
    try:
        fd = os.memfd_create("skyward", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        return False
    try:
        os.ftruncate(fd, 2 * _PAGE)
        os.pwrite(fd, b"1" * 2 * _PAGE, 0)
        pages = mmap.mmap(fd, 2 * _PAGE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        with memoryview(pages) as view:
            was_read = view[0] == view[_PAGE]
            before = _has_own_pages(view)
            view[_PAGE] = 2
            tells = was_read and not before and _has_own_pages(view)
        pages.close()
        return tells
    except OSError:
        return False
    finally:
        os.close(fd)
