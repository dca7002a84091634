"""Removal of what is unused from the cache of volumes: by a machine after a bootstrap, by a client with local nodes.

Files of dead workers that may not be in the store yet are named, and removed only once they are old.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from skyward.caches.items import DAY, UNUSED_FOR, CacheItem, bytes_lacking, last_use, size_on_disk, unwanted
from skyward.caches.pruning import empty_trash, set_aside
from skyward.caches.users import CacheUsers
from skyward.formatting import count_text
from skyward.storage.location import printable
from skyward.worker.volumes.locks import is_locked
from skyward.worker.volumes.trees import PART, RECORD, USED, locked_prefix

__all__ = ["SYNCED", "WAITING", "VolumeCache", "prune_volumes"]

SYNCED, WAITING = "synced", "waiting"
"""Folders of the cache, with a folder for each volume of a worker: its files, and files that wait for their upload."""

_NAMED = 20
"""Files that a line names at most."""

_PRUNED = ".pruned"
_RCLONE_NOTES = "vfsMeta"


@dataclass(frozen=True, slots=True)
class VolumeCache:
    """The cache of volumes on a machine.

    Attributes:
        folder: the folder.
    """

    folder: Path

    def items(self) -> list[CacheItem]:
        """Return the copies, complete or not. Those that a process uses are busy."""
        return [item for prefix in self._prefixes() for item in _copies(prefix)]

    def remove(self, items: Iterable[CacheItem]) -> None:
        """Set copies aside, except those in use by now. `empty_trash` removes them."""
        for item in items:
            with locked_prefix(item.path.parent) as is_ours:
                known = {each.path: each for each in _copies(item.path.parent)} if is_ours else {}
                if item.path in known and not known[item.path].busy and known[item.path].used <= item.used:
                    for file in (_beside(item.path, RECORD), item.path, _beside(item.path, USED)):
                        set_aside(file, self.folder)

    def remove_abandoned(self, now: float) -> Iterator[str]:
        """Remove the files of dead workers that are old, and yield a line for each folder with files.

        They may not be in the store. Those younger than `UNUSED_FOR` stay.
        """
        living = CacheUsers(self.folder).living()
        for kind in (SYNCED, WAITING):
            for folder in _folders(self.folder / kind):
                if folder.name.rpartition("-")[0] in living:
                    continue
                names = sorted(_names(folder))
                age = now - last_use(folder)
                if names and age <= UNUSED_FOR:
                    yield f"{_listed(folder, names)} may not be uploaded, since the worker was killed: kept"
                    continue
                if age > DAY:  # a younger one may be that of a worker which begins
                    set_aside(folder, self.folder)
                    if names:
                        yield f"{_listed(folder, names)} may not be uploaded: removed after {age / DAY:.0f} days"

    def _prefixes(self) -> Iterator[Path]:
        for folder in _folders(self.folder):
            if folder.name not in (SYNCED, WAITING) and not folder.name.startswith("."):
                yield folder


def prune_volumes(folder: Path, now: float) -> list[str]:
    """Prune the cache of volumes in a folder, unless that was done in the last day.

    Returns:
        A line for each worker that was killed, with its files that may not be uploaded.
    """
    done = folder / _PRUNED
    if not folder.is_dir() or (done.exists() and now - done.stat().st_mtime < DAY and not bytes_lacking(folder)):
        return []
    done.touch()
    cache = VolumeCache(folder)
    cache.remove(unwanted(cache.items(), now, bytes_lacking(folder)))
    lines = list(cache.remove_abandoned(now))
    empty_trash(folder)
    return lines


def _names(folder: Path) -> Iterator[str]:
    for file in folder.rglob("*"):
        name = file.relative_to(folder)
        if file.is_file() and name.parts[0] != _RCLONE_NOTES:
            yield printable(str(name))


def _copies(prefix: Path) -> Iterator[CacheItem]:
    for folder in _folders(prefix):
        mark = _beside(folder, USED)
        is_busy = mark.exists() and is_locked(mark)
        if is_busy:
            mark.touch()
        used = mark.stat().st_mtime if mark.exists() else last_use(folder)
        if folder.suffix == PART:
            used = last_use(folder)
        yield CacheItem(folder, used, size_on_disk(folder), is_busy)


def _beside(copy: Path, suffix: str) -> Path:
    return copy.with_name(f"{copy.name}{suffix}")


def _folders(folder: Path) -> list[Path]:
    return [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()] if folder.is_dir() else []


def _listed(folder: Path, names: list[str]) -> str:
    more = f" and {count_text(len(names) - _NAMED, 'more file')}" if len(names) > _NAMED else ""
    return f"{folder}: {', '.join(names[:_NAMED])}{more}"
