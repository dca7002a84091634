"""SQLite files that the processes of one user share."""

import sqlite3
import time

__all__ = ["use_wal"]

_PAUSE = 0.01
"""Seconds between attempts."""


def use_wal(db: sqlite3.Connection, patience: float) -> None:
    """Switch a file to write-ahead logging, and wait up to `patience` seconds for others that do the same.

    The timeout of SQLite does not apply then: of two connections that switch a new file, one fails at once.

    Raises:
        sqlite3.Error: the file cannot be written, is damaged, or is in use for longer.

    Example:
        >>> with sqlite3.connect(":memory:") as db:
        ...     use_wal(db, patience=10)
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)
