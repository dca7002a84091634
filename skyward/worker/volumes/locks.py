"""Locks by which processes of a machine tell that a folder is in use."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_locked", "locked"]


def is_locked(path: Path) -> bool:
    """Return whether a process holds a lock on a file; False if there is no such file."""
    with contextlib.suppress(OSError), _taken(path, os.O_RDWR, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
        return not is_ours
    return False


def locked(path: Path, *, waits: bool = False) -> contextlib.AbstractContextManager[bool]:
    """Return a context that holds the lock on a file, which is made if it is not there, and whether that is so.

    Args:
        path: the file.
        waits: whether to wait for other processes that hold it.
    """
    return _taken(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


@contextlib.contextmanager
def _taken(path: Path, flags: int, operation: int) -> Iterator[bool]:
    lock = os.open(path, flags, 0o600)
    try:
        try:
            fcntl.flock(lock, operation)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)
