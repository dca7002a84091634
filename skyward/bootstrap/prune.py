"""Run on the node now and then, after a bootstrap: removes unused environments, and the files sent for them.

    python -m skyward.bootstrap.prune DIRECTORY

Each environment, and each folder of included files, has a mark in `DIRECTORY/used`: its time is that of the last use,
and its users hold a shared lock on it. Unused ones are renamed while no bootstrap runs, which is instantaneous, and
removed after that. Ends with status 75 if a bootstrap is running, and with 76 if it has removed an environment, so that
uv's cache of its packages can be pruned, too.

The caches of frameworks and volumes are pruned as well, and to make room on a disk that is nearly full. What workers
that were killed have written to volumes, and may not be uploaded, is named on standard output.
"""

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from skyward.caches.items import UNUSED_FOR, CacheItem, bytes_lacking, unwanted
from skyward.caches.pruning import FrameworkCaches, empty_trash
from skyward.caches.users import CACHES, VOLUMES
from skyward.worker.volumes.pruning import VolumeCache

__all__ = ["KEPT", "CachedItem", "doomed", "main", "prune", "prune_caches"]


KEPT = 5
"""Number of environments, and of folders of included files, that are kept regardless of their age."""

_BUSY = 75
_REMOVED = 76


@dataclass(frozen=True, slots=True)
class CachedItem:
    """An item that a machine keeps: the time of its last use, in seconds since 1970, and True if it is in use."""

    name: str
    used: float
    busy: bool = False


def doomed(found: Iterable[CachedItem], now: float, *, newest: int = KEPT, unused_for: float = UNUSED_FOR) -> list[str]:
    """Return the sorted names of the items to remove: unused for so long, not in use, and not among the newest."""
    by_use = sorted(found, key=lambda each: (each.used, each.name), reverse=True)
    return sorted(each.name for each in by_use[newest:] if not each.busy and now - each.used > unused_for)


def prune(root: Path, now: float) -> list[str]:
    """Remove the `doomed` items of a directory; return the names of removed environments.

    Raises:
        BlockingIOError: a bootstrap is running.
    """
    trash = root / "trash"
    trash.mkdir(exist_ok=True)
    with (root / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = list(_set_aside(root, "state", ("envs", "state", "logs"), trash, now))
        for _ in _set_aside(root, "trees", ("trees",), trash, now):
            pass
        for folder in ("blobs", "run"):
            for name in doomed(_by_change(root / folder), now, newest=0):
                (root / folder / name).unlink(missing_ok=True)
        (root / "pruned").touch()
    for left in trash.iterdir():  # including the rest of an interrupted run
        shutil.rmtree(left, ignore_errors=True)
    return gone


def prune_caches(root: Path, now: float) -> list[str]:
    """Remove the unwanted items of the caches of frameworks and volumes in a directory.

    Returns:
        A line for each worker that was killed, with its files that may not be uploaded.

    Raises:
        BlockingIOError: a bootstrap is running, whose set-up may use them.
    """
    frameworks, volumes = FrameworkCaches(root / CACHES), VolumeCache(root / VOLUMES)
    gone = _unwanted([*frameworks.items(), *volumes.items()], now)
    with (root / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for cache in (frameworks, volumes):
            cache.remove(item for item in gone if cache.folder in item.path.parents)
        lines = list(volumes.remove_abandoned(now))
    for cache in (frameworks, volumes):
        empty_trash(cache.folder)
    return lines


def _unwanted(found: Iterable[CacheItem], now: float) -> list[CacheItem]:
    """Return the unwanted items of each disk that has some."""
    by_disk: dict[int, list[CacheItem]] = {}
    for item in found:
        by_disk.setdefault(item.path.parent.stat().st_dev, []).append(item)
    return [each for items in by_disk.values() for each in unwanted(items, now, bytes_lacking(items[0].path.parent))]


def _set_aside(root: Path, kind: str, folders: Iterable[str], trash: Path, now: float) -> Iterator[str]:
    """Rename the doomed items of a kind, with everything that belongs to them; yield their names."""
    marks = root / "used"
    for name in doomed(_by_use(root / kind, marks, now), now):
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                (root / folder / name).rename(trash / f"{folder}-{name}.{os.getpid()}")
        (marks / name).unlink(missing_ok=True)
        yield name


def _by_use(folder: Path, marks: Path, now: float) -> Iterator[CachedItem]:
    for path in folder.iterdir():
        if path.name.startswith("."):  # incomplete
            continue
        mark = marks / path.name
        if _is_held(mark):
            os.utime(mark, (now, now))
            yield CachedItem(path.name, now, busy=True)
        else:
            yield CachedItem(path.name, (mark if mark.exists() else path).stat().st_mtime)


def _by_change(folder: Path) -> Iterator[CachedItem]:
    for path in folder.iterdir():
        if path.is_file():
            yield CachedItem(path.name, path.stat().st_mtime)


def _is_held(mark: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), mark.open("r+") as stream:  # NFS needs a writable file for the lock
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def main(directory: str) -> None:
    """Prune one directory, and exit with the status."""
    try:
        gone = prune(Path(directory), time.time())
        for line in prune_caches(Path(directory), time.time()):
            sys.stdout.write(f"{line}\n")
    except BlockingIOError:
        sys.exit(_BUSY)
    sys.exit(_REMOVED if gone else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
