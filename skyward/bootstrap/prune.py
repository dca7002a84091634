"""Run on the node, now and then, after a bootstrap: removes environments that nobody has used for long, and what was
sent for them.

    python -m skyward.bootstrap.prune DIRECTORY

Each environment, and each folder of included files, has a mark in `DIRECTORY/used`: its time is that of the last use,
and whoever uses it holds a shared lock on it. What is to go is renamed while no bootstrap is at work, which takes no
time, and removed when it is out of everybody's way. Ends with status 75 where a bootstrap is at work, 76 where it has
removed an environment, for then what uv keeps of its packages takes the room.
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

__all__ = ["KEPT", "UNUSED_FOR", "Kept", "doomed", "main", "prune"]

UNUSED_FOR = 30 * 86400.0
"""Seconds after which what nobody used may go."""

KEPT = 5
"""How many environments, and folders of included files, stay however old they are."""

_AT_WORK = 75
_REMOVED = 76


@dataclass(frozen=True, slots=True)
class Kept:
    """Something that a machine keeps: when it was used last, in seconds since 1970, and whether it is used now."""

    name: str
    used: float
    busy: bool = False


def doomed(found: Iterable[Kept], now: float, *, newest: int = KEPT, unused_for: float = UNUSED_FOR) -> list[str]:
    """The names of what is to go, sorted: unused for so long, not in use, and not among the newest."""
    by_use = sorted(found, key=lambda each: (each.used, each.name), reverse=True)
    return sorted(each.name for each in by_use[newest:] if not each.busy and now - each.used > unused_for)


def prune(root: Path, now: float) -> list[str]:
    """Remove what is `doomed` of a directory of ours; the environments among it.

    Raises:
        BlockingIOError: a bootstrap is at work.
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
    for left in trash.iterdir():  # what an earlier one was cut at, too
        shutil.rmtree(left, ignore_errors=True)
    return gone


def _set_aside(root: Path, kind: str, folders: Iterable[str], trash: Path, now: float) -> Iterator[str]:
    """Rename what is doomed of a kind, with all that belongs to it; the names."""
    marks = root / "used"
    for name in doomed(_by_use(root / kind, marks, now), now):
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):
                (root / folder / name).rename(trash / f"{folder}-{name}.{os.getpid()}")
        (marks / name).unlink(missing_ok=True)
        yield name


def _by_use(folder: Path, marks: Path, now: float) -> Iterator[Kept]:
    for path in folder.iterdir():
        if path.name.startswith("."):  # it is being made, or was cut
            continue
        mark = marks / path.name
        if _is_held(mark):
            os.utime(mark, (now, now))
            yield Kept(path.name, now, busy=True)
        else:
            yield Kept(path.name, (mark if mark.exists() else path).stat().st_mtime)


def _by_change(folder: Path) -> Iterator[Kept]:
    for path in folder.iterdir():
        if path.is_file():
            yield Kept(path.name, path.stat().st_mtime)


def _is_held(mark: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), mark.open("r+") as stream:  # NFS locks for itself what may be written
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def main(directory: str) -> None:
    """Prune one directory, and say with the status how it went."""
    try:
        gone = prune(Path(directory), time.time())
    except BlockingIOError:
        sys.exit(_AT_WORK)
    sys.exit(_REMOVED if gone else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
