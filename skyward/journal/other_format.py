"""Journals of other versions of Skyward: set aside if nothing that they list can be running, and refused otherwise.

Only the tables `pools`, `clusters`, `requests` and `machines` are read, and no pickle in them: those are the same in
all formats so far. A journal that lacks one of them is refused.
"""

import contextlib
import fcntl
import logging
import os
import shlex
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skyward.errors import JournalError
from skyward.formatting import count_text
from skyward.journal.claim import SELF_TERMINATION, Claim

__all__ = ["set_aside"]

_logger = logging.getLogger(__name__)

_OF_POOL = "FROM {0} JOIN clusters ON {0}.cluster = number WHERE clusters.pool = pools.id"
_POOLS = f"""
SELECT id, name, host, pid, lease,
    (SELECT count(*) {_OF_POOL.format("machines")}),
    (SELECT count(*) {_OF_POOL.format("machines")} AND machines.worker IS NULL),
    (SELECT count(*) {_OF_POOL.format("requests")})
FROM pools ORDER BY opened
"""


@dataclass(frozen=True, slots=True)
class _Listed:
    """A pool in such a journal, with the numbers of its machines, of those without a worker, and of open requests."""

    id: str
    name: str
    host: str
    pid: int
    lease: float
    machines: int
    unfinished: int
    requests: int


def set_aside(path: Path, format: int) -> None:
    """Rename the journal at `path`, which has another format than `format`, and log where it is now.

    No effect if another process has renamed it meanwhile.

    Raises:
        JournalError: machines that it lists may be running, or it is in use.
        sqlite3.Error: it cannot be read.
    """
    with _only_one(path.parent), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        (found,) = db.execute("PRAGMA user_version").fetchone()
        if found in (0, format):
            return
        is_other = (
            f"The journal {path} has format {found}, of another version of Skyward; this one writes format {format}"
        )
        aside = _free_name(path, found)
        if running := _running(db):
            command = shlex.join(["mv", str(path), str(aside)])
            raise JournalError(
                f"{is_other}. Machines that it lists may be running: {'; '.join(running)}. Close these pools, or run "
                f"`skyward reap`, with that version. If you know that none is left, set the file aside: `{command}`. "
                "To use both versions, name another directory in the environment variable SKYWARD_DATA_DIR."
            )
        try:
            db.execute("PRAGMA journal_mode = DELETE")  # fails if another process has it open; leaves one file
        except sqlite3.OperationalError as error:
            raise JournalError(
                f"{is_other}, and a process of that version uses it ({error}). End that process, or name another "
                "directory in the environment variable SKYWARD_DATA_DIR."
            ) from error
        path.rename(aside)
    _logger.warning("%s. No machine that it lists can be running, so it was renamed to %s.", is_other, aside.name)


def _running(db: sqlite3.Connection) -> list[str]:
    """Return a text for each pool whose machines may be running."""
    try:
        listed = [_Listed(*row) for row in db.execute(_POOLS)]
    except sqlite3.OperationalError as error:
        return [f"it cannot be read ({error})"]
    return [text for pool in listed if (text := _may_run(pool))]


def _may_run(pool: _Listed) -> str:
    """Return what may be running of a pool; empty if nothing can: it has no machines, or its lease has expired."""
    claim = Claim.take(pool.id)
    try:
        owned = claim is None and Claim.exists(pool.id)
        if not owned:
            if not pool.machines + pool.requests:
                return ""
            ended_alone = not pool.unfinished + pool.requests  # only workers end with their lease
            if claim is not None and ended_alone and claim.silent > pool.lease + SELF_TERMINATION:
                return ""
    finally:
        if claim is not None:
            claim.release()
    unknown = f" and {count_text(pool.requests, 'unanswered request')}" if pool.requests else ""
    state = "is running" if owned else "is gone"
    machines = count_text(pool.machines, "machine")
    return f"pool {pool.name!r} with {machines}{unknown}, whose process {pool.pid} on {pool.host} {state}"


@contextlib.contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    """Exclude other threads and processes that set the journal of a directory aside."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _free_name(path: Path, format: int) -> Path:
    """Return the name of the file when it is set aside: one that no file has."""
    number = 1
    while (free := path.with_stem(f"{path.stem}-format-{format}{f'-{number}' if number > 1 else ''}")).exists():
        number += 1
    return free
