"""Locks by which processes of a machine tell that a folder is in use."""

import contextlib
import fcntl
import os
from pathlib import Path

__all__ = ["is_locked"]


def is_locked(path: Path) -> bool:
    """Return whether a process holds a lock on a file."""
    with contextlib.suppress(OSError):
        lock = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
    return False
