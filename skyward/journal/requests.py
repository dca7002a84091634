"""Requests to the owner of a pool, by another process of the same user, to close it: a file for each.

The owner looks for it every second, closes the pool, and removes the file.
"""

import contextlib
from pathlib import Path

from skyward.errors import JournalError
from skyward.journal.installation import data_directory

__all__ = ["is_requested", "request_to_close", "withdraw_request"]


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


def withdraw_request(pool: str) -> None:
    """Remove the request, if there is one."""
    with contextlib.suppress(OSError, JournalError):
        _path(pool).unlink(missing_ok=True)


def _path(pool: str) -> Path:
    return data_directory() / "requests" / pool
