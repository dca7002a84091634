"""The parts of a cache that are removed as one, and the choice among them."""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DAY", "UNUSED_FOR", "CacheItem", "bytes_lacking", "last_use", "size_on_disk", "unwanted"]

DAY = 86400.0

UNUSED_FOR = 30 * DAY
"""Seconds after which something unused may be removed."""

_FREE_PART, _FREE_BYTES = 0.1, 50 * 1024**3
"""A disk with less free than both is nearly full. `node.sh` has the same numbers."""


@dataclass(frozen=True, slots=True)
class CacheItem:
    """A part of a cache that is removed as one.

    Attributes:
        path: its file or folder.
        used: time of its last use, in seconds since 1970, to within a day.
        size: bytes on disk.
        busy: True if it is in use.
    """

    path: Path
    used: float
    size: int = 0
    busy: bool = False


def unwanted(found: Iterable[CacheItem], now: float, lacking: int = 0) -> list[CacheItem]:
    """Return the items to remove, the longest unused first.

    These are all that were unused for `UNUSED_FOR`, and of those that were not used in the last day as many as it takes
    to free `lacking` bytes. None of them is busy.
    """
    chosen, freed = [], 0
    for item in sorted(found, key=lambda each: (each.used, each.path)):
        unused = now - item.used
        if not item.busy and unused > DAY and (unused > UNUSED_FOR or freed < lacking):
            chosen.append(item)
            freed += item.size
    return chosen


def bytes_lacking(folder: Path) -> int:
    """Return the bytes to free on the disk of a folder until it is not nearly full; 0 if it is not."""
    disk = shutil.disk_usage(folder)
    return max(0, int(min(disk.total * _FREE_PART, _FREE_BYTES)) - disk.free)


def last_use(item: Path) -> float:
    """Return when a file, or any file in a folder, was last read or written. Links do not count: looking uses them."""
    return max((max(each.st_mtime, _read_time(each)) for each in _inodes(item)), default=0.0)


def _read_time(inode: os.stat_result) -> float:
    return 0.0 if stat.S_ISDIR(inode.st_mode) else inode.st_atime  # looking reads a folder


def size_on_disk(item: Path) -> int:
    """Return the bytes that removing an item frees: files that have other names are left out."""
    return sum(each.st_blocks * 512 for each in _inodes(item) if each.st_nlink == 1)


def _inodes(item: Path) -> Iterator[os.stat_result]:
    """Yield the status of an item, and of everything in it, except links."""
    for path in (item, *(Path(parent, name) for parent, folders, names in os.walk(item) for name in folders + names)):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if not stat.S_ISLNK(found.st_mode):
                yield found
