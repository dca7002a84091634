"""Locks on the parts of the machine's environment cache that a worker uses, so that they are not pruned."""

import contextlib
import fcntl
import os
from pathlib import Path

__all__ = ["hold"]


def hold(marks: str) -> None:
    """Hold a shared lock on each of these files, one a line, for as long as this process lives.

    Without file locks this has no effect; pruning then relies on age.
    """
    for mark in marks.splitlines():
        with contextlib.suppress(OSError):
            fcntl.flock(os.open(Path(mark), os.O_RDONLY), fcntl.LOCK_SH)
