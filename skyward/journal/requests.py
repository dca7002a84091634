"""Requests to the owner of a pool, by another process of the same user, to close it: a file for each.

The owner looks for it every second, marks it as heeded, closes the pool, and removes the file.
"""

import contextlib
from pathlib import Path

from skyward.errors import JournalError
from skyward.journal.installation import data_directory

__all__ = ["heed_request", "is_heeded", "is_requested", "request_to_close", "withdraw_request"]

_HEEDED = b"heeded"


def request_to_close(pool: str) -> None:
    """Ask the owner of a pool, by its id, to close it."""
    path = _path(pool)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)


def is_requested(pool: str) -> bool:
    """Return whether the owner of a pool is asked to close it; False where that cannot be known."""
    try:
        return _path(pool).exists()
    except (OSError, JournalError):
        return False


def heed_request(pool: str) -> None:
    """Tell the other process that the owner of the pool closes it."""
    with contextlib.suppress(OSError, JournalError):
        _path(pool).write_bytes(_HEEDED)


def is_heeded(pool: str) -> bool:
    """Return whether the owner of a pool has seen the request."""
    try:
        return _path(pool).read_bytes() == _HEEDED
    except FileNotFoundError:  # it has closed the pool
        return True


def withdraw_request(pool: str) -> None:
    """Remove the request, if there is one."""
    with contextlib.suppress(OSError, JournalError):
        _path(pool).unlink(missing_ok=True)


def _path(pool: str) -> Path:
    return data_directory() / "requests" / pool
