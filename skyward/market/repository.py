"""Repository of the offers of providers: a SQLite file that the processes of one user share.

The file holds nothing that cannot be asked again. A damaged one, or one of another version of Skyward, is set aside.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from skyward.market.filters import allowed_in
from skyward.market.rows import COLUMNS, SCHEMA, offer_of, queries, row_of, size_query
from skyward.providers.protocol import PROVIDER_FIELDS, Offer
from skyward.specs import Spec
from skyward.sqlite import use_wal

__all__ = ["FILE_NAME", "FORMAT", "OfferRepository", "RepositoryError"]

FILE_NAME: Final = "offers.db"

FORMAT: Final = 1
"""Number of the format of the file."""

_BUSY = 10.0
"""Seconds to wait for other writing processes."""

_KEPT = 30 * 86400.0
"""Seconds after which the offers of settings that were not asked again are deleted."""

_logger = logging.getLogger(__name__)


class RepositoryError(Exception):
    """Offers cannot be stored, or stored ones cannot be read."""


class OfferRepository:
    """Offers as providers listed them, for the settings of each. Thread-safe; each method is one transaction.

    Raises:
        RepositoryError: the file cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._lock = threading.Lock()
        self._db = self._open()

    def fetched(self, settings: str) -> float | None:
        """Return the Unix time at which the offers of these settings were listed; None if none are stored."""
        row = self._run(lambda: self._db.execute("SELECT at FROM fetches WHERE settings = ?", (settings,)).fetchone())
        return None if row is None else float(row[0])

    def replace(self, settings: str, provider: str, offers: Sequence[Offer], at: float) -> None:
        """Replace the offers of these settings.

        Raises:
            RepositoryError: they cannot be stored. Those stored before are kept.
        """
        try:
            rows = [row_of(offer) for offer in offers]
        except (TypeError, ValueError, AttributeError) as error:
            raise RepositoryError(f"the offers of provider {provider!r} cannot be stored: {error}") from error

        def write() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM fetches WHERE settings = ? OR at < ?", (settings, time.time() - _KEPT))
            added = self._db.execute(
                "INSERT INTO fetches (settings, provider, at) VALUES (?, ?, ?)", (settings, provider, at)
            )
            if rows:
                places = ", ".join("?" * (len(rows[0]) + 1))
                self._db.executemany(f"INSERT INTO offers VALUES ({places})", ((added.lastrowid, *row) for row in rows))

        self._run(write)

    def select(
        self,
        settings: str,
        spec: Spec,
        fields: frozenset[str] = PROVIDER_FIELDS,
        *,
        priced: bool = False,
        limit: int | None = None,
    ) -> tuple[Offer, ...]:
        """Return the offers of these settings that fit `spec`: in each market, the best `limit` at least.

        `fields` and `priced` are those of `skyward.market.rank`.
        """
        found: dict[int, Offer] = {}

        def read() -> None:
            self._db.execute("BEGIN")  # both markets from one fetch
            if (size := size_query(spec, fields)) is not None:
                chosen, values = size
                if self._db.execute(chosen, (settings, *values)).fetchone() is None:
                    return
            for market in allowed_in(spec):
                for chosen, values in queries(spec, fields, market, priced=priced):
                    rows = self._db.execute(f"{chosen} LIMIT ?", (settings, *values, -1 if limit is None else limit))
                    found.update((number, offer_of(tuple(row))) for number, *row in rows if number not in found)

        self._run(read)
        return tuple(found.values())

    def all(self, settings: str) -> tuple[Offer, ...]:
        """Return all offers of these settings."""
        chosen = f"SELECT {', '.join(COLUMNS)} FROM offers JOIN fetches ON fetch = number WHERE settings = ?"
        return self._run(lambda: tuple(map(offer_of, self._db.execute(chosen, (settings,)))))

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run[T](self, act: Callable[[], T]) -> T:
        """Run statements as one transaction."""
        try:
            with self._lock, self._db:
                return act()
        except (sqlite3.Error, ValueError, OverflowError) as error:  # also text or a number that SQLite does not store
            if _is_damaged(error):
                self._recover(error)
            raise RepositoryError(f"{self.path} cannot be used: {error}") from error

    def _open(self) -> sqlite3.Connection:
        try:
            try:
                return _connect(self.path)
            except _OtherFormatError as error:
                _set_aside(self.path, str(error))
            except sqlite3.Error as error:
                if not _is_damaged(error):
                    raise
                _set_aside(self.path, f"it is damaged ({error})")
            return _connect(self.path)
        except (OSError, sqlite3.Error, _OtherFormatError) as error:
            raise RepositoryError(f"{self.path} cannot be used: {error}") from error

    def _recover(self, error: Exception) -> None:
        """Set a file aside that turned out to be damaged. Without an effect if that fails."""
        with self._lock, contextlib.suppress(OSError, sqlite3.Error, _OtherFormatError):
            self._db.close()
            _set_aside(self.path, f"it is damaged ({error})")
            self._db = _connect(self.path)


class _OtherFormatError(Exception):
    """The file has the format of another version of Skyward."""


def _connect(path: Path) -> sqlite3.Connection:
    _create(path)
    db = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
    try:
        (format,) = db.execute("PRAGMA user_version").fetchone()
        if format not in (0, FORMAT):
            raise _OtherFormatError(f"it has format {format}, of another version of Skyward; this one writes {FORMAT}")
        use_wal(db, _BUSY)
        for statement in ("synchronous = NORMAL", "foreign_keys = ON"):
            db.execute(f"PRAGMA {statement}")
        db.execute("SELECT count(*) FROM fetches" if format else "SELECT 1").fetchone()
        if not format:
            db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def _is_damaged(error: Exception) -> bool:
    """Return whether an error says that the file is not, or no longer, a database of ours."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def _create(path: Path) -> None:
    """Create an empty file that only its user can read, unless it exists. An existing one is not opened."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))


def _set_aside(path: Path, reason: str) -> None:
    """Rename an unusable file, in place of the one that was set aside before. No effect if it can be used by now."""
    with _only_one(path.parent):
        with contextlib.suppress(sqlite3.Error, _OtherFormatError), contextlib.closing(_connect(path)) as db:
            if db.execute("PRAGMA quick_check(1)").fetchone() == ("ok",):
                return
        aside = path.with_stem(f"{path.stem}-set-aside")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
    _logger.warning("The stored offers in %s cannot be used: %s. It was renamed to %s.", path, reason, aside.name)


@contextlib.contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    """Exclude other threads and processes that set the file of a directory aside."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
