"""SQLite files that several processes open at once."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from skyward.journal import Journal
from skyward.market import OfferRepository
from skyward.sqlite import use_wal

pytestmark = pytest.mark.unit


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Connection that is reading a file, which therefore cannot be switched."""
    with closing(sqlite3.connect(tmp_path / "file.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE numbers (number INTEGER)")
        db.execute("BEGIN")
        db.execute("SELECT * FROM numbers").fetchall()
        yield db


def test_wal_is_used_once_no_other_connection_uses_the_file(
    reader: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: reader.execute("COMMIT"))
    with closing(sqlite3.connect(tmp_path / "file.db", timeout=0)) as db:
        use_wal(db, patience=60)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.usefixtures("reader")
def test_file_that_stays_in_use_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(sqlite3.OperationalError, match="database is locked")
    with closing(sqlite3.connect(tmp_path / "file.db", timeout=0)) as db, refused:
        use_wal(db, patience=0)


@pytest.mark.parametrize("open_file", [Journal, OfferRepository])
def test_new_file_is_opened_by_several_at_once(
    open_file: Callable[[Path], Journal | OfferRepository], tmp_path: Path
) -> None:
    """Regression: one process of two that used Skyward first on a computer failed with "database is locked"."""
    openers = 4
    together = threading.Barrier(openers)

    def open_and_close(directory: Path) -> None:
        together.wait(60)
        open_file(directory).close()

    with ThreadPoolExecutor(openers) as threads:
        for number in range(50):
            directory = tmp_path / str(number)
            directory.mkdir()
            list(threads.map(open_and_close, [directory] * openers))
