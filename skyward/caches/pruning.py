"""Removal of what is unused from the caches of frameworks."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from skyward.caches.frameworks import CONTAINERS
from skyward.caches.items import DAY, CacheItem, last_use, size_on_disk
from skyward.caches.users import CacheUsers

__all__ = ["FrameworkCaches", "empty_trash", "set_aside"]

_TRASH = ".trash"


@dataclass(frozen=True, slots=True)
class FrameworkCaches:
    """The caches of frameworks in one folder.

    Attributes:
        folder: the folder.
    """

    folder: Path

    def items(self) -> list[CacheItem]:
        """Return the items. Those that a worker may use are busy: which it has open, or has read since its start."""
        if not self.folder.is_dir():
            return []
        users = CacheUsers(self.folder)
        began = min(users.living().values(), default=None)
        known = 0.0 if _knows_reads(self.folder) else users.last_use()
        used_since = float("inf") if began is None else 0.0 if known else began - DAY  # reads are known to the day
        opened = frozenset(_open_below(self.folder))
        found = []
        for path in self._entries():
            used = max(last_use(path), known)
            busy = used >= used_since or any(each == path or path in each.parents for each in opened)
            found.append(CacheItem(path, used, size_on_disk(path), busy))
        return found

    def remove(self, items: Iterable[CacheItem]) -> None:
        """Set items aside, except those that were used meanwhile. `empty_trash` removes them."""
        for item in items:
            if last_use(item.path) <= item.used:
                set_aside(item.path, self.folder)

    def _entries(self) -> Iterator[Path]:
        containers = {self.folder / name for name in CONTAINERS}
        for container in sorted(containers):
            for path in tuple(container.iterdir()) if container.is_dir() else ():
                if path not in containers and not (container == self.folder and path.name.startswith(".")):
                    yield path


def set_aside(path: Path, cache: Path) -> None:
    """Move something to the trash of a cache, on the same disk, which is instantaneous."""
    trash = cache / _TRASH
    trash.mkdir(exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.rename(trash / f"{path.name}.{os.urandom(4).hex()}")


def empty_trash(cache: Path) -> None:
    """Remove what was set aside, including the rest of an interrupted run."""
    shutil.rmtree(cache / _TRASH, ignore_errors=True)


def _knows_reads(folder: Path) -> bool:
    """Return whether the file system keeps the time of the last read."""
    return not os.statvfs(folder).f_flag & getattr(os, "ST_NOATIME", 0)


def _open_below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that processes of this machine have open, or mapped into memory."""
    start = f"{folder.resolve()}/"
    for process in Path("/proc").glob("[0-9]*"):
        for path in (*_descriptors(process), *_mapped(process)):
            if path.startswith(start):
                yield folder / path.removeprefix(start)


def _descriptors(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for each in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(each)


def _mapped(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for line in (process / "maps").read_text(errors="replace").splitlines():
            yield line[line.find("/") :]
