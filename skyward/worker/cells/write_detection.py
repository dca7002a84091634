"""Detection of writes to memory that a task was given.

Linux reports which pages of a private mapping have been copied on write, so such memory is not read at all. Otherwise
the content addresses are compared, or the bytes themselves if they are few.
"""

import ctypes
import functools
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass

from skyward.wire.payloads.digest import content_address

__all__ = ["Watch", "address_of", "watch_writes"]

_COPIED_UP_TO = 1 << 20
"""Bytes up to which a copy is kept, which is faster than a content address, and preserves the original bytes."""

_PAGE = mmap.PAGESIZE
_IN_FILE, _SWAPPED, _PRESENT = 1 << 5, 1 << 6, 1 << 7
"""Bits 61 to 63 of an entry of `/proc/self/pagemap`: a page of the file; swapped out; in memory."""
_OWN = bytes(bool(bits & _SWAPPED or (bits & _PRESENT and not bits & _IN_FILE)) for bits in range(256))
"""By the highest byte of an entry, 1 if the page is a private copy of this process."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Write detection for one block of memory.

    Attributes:
        written: returns whether the memory has been written to.
        before: returns the original bytes; None if no copy exists.
        address: content address of the original bytes, if they were read.
    """

    written: Callable[[], bool]
    before: Callable[[], bytes | memoryview | None]
    address: bytes | None = None


def watch_writes(memory: bytes | bytearray | memoryview) -> Watch:
    """Start to watch `memory` for writes."""
    view = memoryview(memory).cast("B")
    if view.readonly:
        return Watch(lambda: False, lambda: view)
    if view.nbytes <= _COPIED_UP_TO:
        copy = bytes(view)
        return Watch(lambda: bytes(view) != copy, lambda: copy)
    source = view.obj
    if isinstance(source, mmap.mmap) and _reports_copied_pages() and not _has_own_pages(view):
        before = getattr(source, "before", None)
        return Watch(lambda: _has_own_pages(view), lambda: None if before is None else memoryview(before))
    address = content_address(view)
    return Watch(lambda: content_address(view) != address, lambda: None, address)


class _Buffer(ctypes.Structure):
    """The fields of `Py_buffer` that are used."""

    _fields_ = [("address", ctypes.c_void_p), ("owner", ctypes.py_object), ("rest", ctypes.c_ssize_t * 12)]


def address_of(view: memoryview) -> int:
    """Return the address of the first byte of `view`."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    address: int = buffer.address or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


def _has_own_pages(view: memoryview) -> bool:
    """Return whether any page of `view`, in a private mapping of a file, was written to."""
    start = address_of(view)
    first, end = start // _PAGE, -(-(start + view.nbytes) // _PAGE)
    with open("/proc/self/pagemap", "rb", buffering=0) as pages:
        entries = os.pread(pages.fileno(), 8 * (end - first), 8 * first)
    if len(entries) < 8 * (end - first):
        return True
    return b"\1" in entries[7::8].translate(_OWN)


@functools.cache
def _reports_copied_pages() -> bool:
    """Return whether the system reports copied pages correctly."""
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
