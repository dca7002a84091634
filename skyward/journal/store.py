"""Storage of the journal: a SQLite file that the processes of one user share."""

import contextlib
import json
import os
import pickle
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Self

from skyward.errors import JournalError
from skyward.journal.entries import (
    BillEntry,
    ClusterEntry,
    CostEntry,
    MachineEntry,
    PoolEntry,
    SizeEntry,
    SpecsEntry,
    UpdateEntry,
    WorkerEntry,
)
from skyward.journal.installation import data_directory
from skyward.journal.other_format import set_aside
from skyward.journal.sealing import JournalSeal
from skyward.journal.warm import WARM_TABLE, Execute, WarmMachines
from skyward.providers.protocol import Instance
from skyward.sqlite import use_wal

__all__ = ["Journal"]

_BUSY = 10.0
"""Seconds to wait for other writing processes."""

_creating = threading.Lock()

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS pools (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, opened REAL NOT NULL,
    lease REAL NOT NULL, settings BLOB NOT NULL, rests INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS clusters (
    number INTEGER PRIMARY KEY, pool TEXT NOT NULL REFERENCES pools ON DELETE CASCADE, "group" TEXT NOT NULL,
    offered BLOB NOT NULL, cluster BLOB, lender INTEGER
) STRICT;
CREATE TABLE IF NOT EXISTS requests (
    token TEXT PRIMARY KEY, cluster INTEGER NOT NULL REFERENCES clusters ON DELETE CASCADE, at REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS machines (
    cluster INTEGER NOT NULL REFERENCES clusters ON DELETE CASCADE, id TEXT NOT NULL, instance BLOB NOT NULL,
    worker BLOB, PRIMARY KEY (cluster, id)
) STRICT;
CREATE TABLE IF NOT EXISTS costs (
    pool TEXT PRIMARY KEY REFERENCES pools ON DELETE CASCADE, spent REAL NOT NULL, per_hour REAL NOT NULL,
    at REAL NOT NULL, budget REAL
) STRICT;
CREATE TABLE IF NOT EXISTS sizes (
    pool TEXT PRIMARY KEY REFERENCES pools ON DELETE CASCADE, bounds TEXT NOT NULL, desired TEXT NOT NULL,
    draining TEXT NOT NULL, leaving TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS specs (
    pool TEXT NOT NULL REFERENCES pools ON DELETE CASCADE, "group" TEXT NOT NULL, first INTEGER NOT NULL,
    specs BLOB NOT NULL, PRIMARY KEY (pool, "group", first)
) STRICT;
CREATE TABLE IF NOT EXISTS updates (
    pool TEXT NOT NULL REFERENCES pools ON DELETE CASCADE, "group" TEXT NOT NULL, before INTEGER NOT NULL,
    fell_back INTEGER NOT NULL, PRIMARY KEY (pool, "group")
) STRICT;
CREATE TABLE IF NOT EXISTS bills (
    pool TEXT NOT NULL, machine INTEGER NOT NULL, instance TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
    began REAL NOT NULL, ended REAL, at REAL NOT NULL, spent REAL NOT NULL, per_hour REAL NOT NULL,
    PRIMARY KEY (pool, machine, began)
) STRICT;
CREATE TABLE IF NOT EXISTS took (
    provider TEXT NOT NULL, image TEXT NOT NULL, phase TEXT NOT NULL, seconds REAL NOT NULL
) STRICT;
{WARM_TABLE}
"""
_FORMAT = 8
"""Number of the format. Versions of Skyward that understand each other's tables and pickles have the same."""

_POOL = "id, name, host, pid, opened, lease, settings"
"""Columns of a `PoolEntry`."""

_SPENT = "spent = spent + per_hour * (? - at) / 3600, at = ?"
_OPEN = "ended IS NULL AND pool = ?"
_END_BILLS = f"UPDATE bills SET {_SPENT}, ended = ? WHERE {_OPEN}"
"""Parts of statements on bills: what was spent until a time, the bills of a pool that are not ended, and their end."""

_BILLS_KEPT = 400 * 86400.0
"""Seconds for which bills are kept."""

_MOST_TOOK = 5000
"""Maximum number of recorded durations: those of images out of use are dropped as the oldest."""


class Journal:
    """The journal of this user. Each method is one transaction, which is on disk when it returns.

    Attributes:
        path: its file.
        warm: the warm machines.

    Raises:
        JournalError: the file cannot be written, is damaged, or lists machines of another version that may be running.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.path = (directory or data_directory()) / "journal.db"
        self._lock = threading.Lock()
        self.warm = WarmMachines(self._read, self._transaction)
        try:
            self._db = self._connect()
            try:
                while self._format() not in (0, _FORMAT):
                    self._db.close()
                    set_aside(self.path, _FORMAT)
                    self._db = self._connect()
                self._set_up()
            except BaseException:
                self._db.close()
                raise
        except (OSError, sqlite3.Error) as error:
            raise self._unwritable(error) from error

    def _connect(self) -> sqlite3.Connection:
        _create(self.path)
        return sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False)

    def _format(self) -> int:
        """Return the number of the file's format; 0 for a new file."""
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        return int(found)

    def _set_up(self) -> None:
        use_wal(self._db, _BUSY)
        for statement in ("synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
            self._db.execute(f"PRAGMA {statement}")
        self._db.executescript(f"{_SCHEMA} PRAGMA user_version = {_FORMAT};")

    def _unwritable(self, error: Exception) -> JournalError:
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            return JournalError(
                f"Skyward records the machines it launches in {self.path}, which is damaged ({error}): remove or "
                "rename it. Machines recorded only there end when their leases expire."
            )
        return JournalError(
            f"Skyward records the machines it launches in {self.path}, which cannot be written ({error}); "
            "name another directory in the environment variable SKYWARD_DATA_DIR."
        )

    def _write(self, statement: str, *values: object) -> sqlite3.Cursor:
        try:
            with self._lock, self._db:
                return self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise self._unwritable(error) from error

    def _write_all(self, statements: Sequence[tuple[str, Sequence[object]]]) -> None:
        with self._transaction() as execute:
            for statement, values in statements:
                execute(statement, *values)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Execute]:
        """Run statements in one transaction, by the function that the context returns."""
        try:
            with self._lock, self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield lambda statement, *values: self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise self._unwritable(error) from error

    # Writing.

    def add_pool(self, pool: PoolEntry) -> None:
        """Record a pool that is about to be opened."""
        self._write(
            f"INSERT INTO pools ({_POOL}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            pool.id, pool.name, pool.host, pool.pid, pool.opened, pool.lease, pool.settings,
        )  # fmt: skip  # in the order of the columns

    def bill(self, pool: str, machine: int, instance: str, kind: str, per_hour: float, now: float) -> None:
        """Record that a machine costs USD per hour from now on; `kind`: its source, as text.

        The bill that it has under the number of an earlier owner of the pool ends.
        """
        with self._transaction() as execute:
            execute(f"{_END_BILLS} AND instance = ?", now, now, now, pool, instance)
            execute(
                "INSERT OR IGNORE INTO bills SELECT id, ?, ?, name, ?, ?, NULL, ?, 0, ? FROM pools WHERE id = ?",
                machine, instance, kind, now, now, per_hour, pool,
            )  # fmt: skip  # in the order of the columns

    def bill_found(
        self, pool: str, instances: Iterable[str], kind: str, per_hour: float, began: float, now: float
    ) -> None:
        """Record what machines cost that no request had returned, and that were found at their provider and terminated.

        They have no numbers in their pool; those of their bills are negative. A machine that had a bill gets no other.
        """
        with self._transaction() as execute:
            for instance in instances:
                (lowest,) = execute("SELECT min(machine) FROM bills WHERE pool = ?", pool).fetchone()
                if execute("SELECT 1 FROM bills WHERE pool = ? AND instance = ?", pool, instance).fetchone():
                    continue
                number, spent = min(0, lowest or 0) - 1, per_hour * (now - began) / 3600
                execute(
                    "INSERT INTO bills SELECT id, ?, ?, name, ?, ?, ?, ?, ?, ? FROM pools WHERE id = ?",
                    number, instance, kind, began, now, now, spent, per_hour, pool,
                )  # fmt: skip  # in the order of the columns

    def set_price(self, pool: str, machine: int, per_hour: float, now: float) -> None:
        """Record another price of a machine, USD per hour, from now on."""
        changed = f"UPDATE bills SET {_SPENT}, per_hour = ? WHERE {_OPEN} AND machine = ?"
        self._write(changed, now, now, per_hour, pool, machine)

    def end_bill(self, pool: str, machine: int, now: float) -> None:
        """Record that a machine costs nothing from now on."""
        self._write(f"{_END_BILLS} AND machine = ?", now, now, now, pool, machine)

    def end_bills(self, pool: str, now: float) -> None:
        """Record that no machine of a pool costs anything from now on, except for those that it keeps warm."""
        warm = "SELECT warm.machine FROM warm JOIN clusters ON warm.cluster = number WHERE clusters.pool = bills.pool"
        self._write(f"{_END_BILLS} AND machine NOT IN ({warm})", now, now, now, pool)
        self._write("DELETE FROM bills WHERE ended < ?", now - _BILLS_KEPT)

    def hand_over(self, pool: str, host: str, pid: int) -> None:
        """Record the new owner of a pool."""
        self._write("UPDATE pools SET host = ?, pid = ? WHERE id = ?", host, pid, pool)

    def set_lease(self, pool: str, seconds: float) -> None:
        """Record another lease of the nodes of a pool."""
        self._write("UPDATE pools SET lease = ? WHERE id = ?", seconds, pool)

    def set_costs(self, pool: str, costs: CostEntry) -> None:
        """Record the costs of a pool, in place of those recorded before."""
        self._write(
            "INSERT OR REPLACE INTO costs VALUES (?, ?, ?, ?, ?)",
            pool, costs.spent, costs.per_hour, costs.at, costs.budget,
        )  # fmt: skip  # in the order of the columns

    def set_size(self, pool: str, size: SizeEntry) -> None:
        """Record the size of a pool, in place of the one recorded before."""
        counts = dict(size.bounds), dict(size.desired), sorted(size.draining), sorted(size.leaving)
        self._write("INSERT OR REPLACE INTO sizes VALUES (?, ?, ?, ?, ?)", pool, *map(json.dumps, counts))

    def set_specs(self, pool: str, specs: SpecsEntry) -> None:
        """Record the specs that a group of a pool has from now on."""
        self._write("INSERT OR REPLACE INTO specs VALUES (?, ?, ?, ?)", pool, specs.group, specs.first, specs.specs)

    def set_updates(self, pool: str, updates: Iterable[UpdateEntry]) -> None:
        """Record the updates of the groups of a pool, in place of those recorded before."""
        statements: list[tuple[str, Sequence[object]]] = [("DELETE FROM updates WHERE pool = ?", (pool,))]
        for each in updates:
            values = pool, each.group, each.before, each.fell_back
            statements.append(("INSERT INTO updates VALUES (?, ?, ?, ?)", values))
        self._write_all(statements)

    def forget_pool(self, pool: str) -> None:
        """Delete a pool with all its entries."""
        self._write("DELETE FROM pools WHERE id = ?", pool)

    def add_cluster(self, pool: str, group: str, offered: bytes) -> int:
        """Record a cluster that is about to be prepared. Return the number of the entry."""
        cursor = self._write('INSERT INTO clusters (pool, "group", offered) VALUES (?, ?, ?)', pool, group, offered)
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def prepared(self, number: int, cluster: bytes) -> None:
        """Record a cluster that was prepared, or has changed."""
        self._write("UPDATE clusters SET cluster = ? WHERE number = ?", cluster, number)

    def forget_cluster(self, number: int) -> None:
        """Delete a cluster with its machines."""
        self._write("DELETE FROM clusters WHERE number = ?", number)

    def ask(self, number: int, token: str, now: float) -> None:
        """Record a request for machines that is about to be made."""
        self._write("INSERT INTO requests VALUES (?, ?, ?)", token, number, now)

    def provisioned(self, number: int, token: str, cluster: bytes, instances: Sequence[Instance]) -> None:
        """Record the machines that a request returned."""
        self._write_all(
            [
                ("UPDATE clusters SET cluster = ? WHERE number = ?", (cluster, number)),
                ("DELETE FROM requests WHERE token = ?", (token,)),
                *(
                    (
                        "INSERT OR REPLACE INTO machines (cluster, id, instance) VALUES (?, ?, ?)",
                        (number, instance.id, pickle.dumps(instance)),
                    )
                    for instance in instances
                ),
            ]
        )

    def installed(self, number: int, instance: Instance, worker: WorkerEntry) -> None:
        """Record the worker of a machine."""
        self._write(
            "UPDATE machines SET instance = ?, worker = ? WHERE cluster = ? AND id = ?",
            pickle.dumps(instance), pickle.dumps(worker), number, instance.id,
        )  # fmt: skip  # in the order of the statement

    def gone(self, number: int, instance: str, now: float) -> None:
        """Delete a machine that was terminated, and end its bill."""
        with self._transaction() as execute:
            for (pool,) in execute("SELECT pool FROM clusters WHERE number = ?", number).fetchall():
                execute(f"{_END_BILLS} AND instance = ?", now, now, now, pool, instance)
            execute("DELETE FROM machines WHERE cluster = ? AND id = ?", number, instance)

    def add_phase_seconds(self, provider: str, image: str, seconds: Mapping[str, float], keep: int) -> None:
        """Record the durations of the phases of a node's start. The last `keep` of each phase are kept."""
        of_phase = "provider = ? AND image = ? AND phase = ?"
        latest = f"SELECT rowid FROM took WHERE {of_phase} ORDER BY rowid DESC LIMIT ?"
        statements: list[tuple[str, Sequence[object]]] = []
        for phase, took in seconds.items():
            key = provider, image, phase
            statements.append(("INSERT INTO took VALUES (?, ?, ?, ?)", (*key, took)))
            statements.append((f"DELETE FROM took WHERE {of_phase} AND rowid NOT IN ({latest})", (*key, *key, keep)))
        statements.append(("DELETE FROM took WHERE rowid <= (SELECT max(rowid) FROM took) - ?", (_MOST_TOOK,)))
        self._write_all(statements)

    # Reading.

    def took(self, provider: str, image: str) -> dict[str, list[float]]:
        """Return the durations of the phases of the latest starts in seconds, oldest first."""
        found: dict[str, list[float]] = {}
        chosen = "SELECT phase, seconds FROM took WHERE provider = ? AND image = ? ORDER BY rowid"
        for phase, seconds in self._read(chosen, provider, image):
            found.setdefault(phase, []).append(seconds)
        return found

    def latest_image(self, provider: str) -> str | None:
        """Return the image of the latest start at a provider whose phases are recorded; None if there is none."""
        chosen = "SELECT image FROM took WHERE provider = ? AND image != '' ORDER BY rowid DESC LIMIT 1"
        return next((image for (image,) in self._read(chosen, provider)), None)

    def pools(self, name: str | None = None) -> list[PoolEntry]:
        """Return the recorded pools in order of opening; only those called `name`, if it is given."""
        rows = [PoolEntry(*row) for row in self._read(f"SELECT {_POOL} FROM pools ORDER BY opened, rowid")]
        return [pool for pool in rows if name in (None, pool.name)]

    def costs(self, pool: str) -> CostEntry | None:
        """Return the recorded costs of a pool; None if it has had none."""
        for row in self._read("SELECT spent, per_hour, at, budget FROM costs WHERE pool = ?", pool):
            return CostEntry(*row)
        return None

    def bills(self, since: float, pool: str | None = None) -> list[BillEntry]:
        """Return the bills of machines that cost money after a time, in seconds since the epoch; the oldest first.

        Only those of one pool, if its id is given.
        """
        columns = "pool, machine, instance, name, kind, began, ended, at, spent, per_hour"
        chosen = "coalesce(ended, ?) > ? AND pool = coalesce(?, pool)"
        found = self._read(f"SELECT {columns} FROM bills WHERE {chosen} ORDER BY began", inf, since, pool)
        return [BillEntry(*row) for row in found]

    def size(self, pool: str) -> SizeEntry | None:
        """Return the recorded size of a pool; None if it has not changed since the pool was opened."""
        for row in self._read("SELECT bounds, desired, draining, leaving FROM sizes WHERE pool = ?", pool):
            bounds, desired, draining, leaving = map(json.loads, row)
            bounds = {name: (least, most) for name, (least, most) in bounds.items()}
            return SizeEntry(bounds, desired, frozenset(draining), frozenset(leaving))
        return None

    def specs(self, pool: str) -> list[SpecsEntry]:
        """Return the recorded specs of the groups of a pool that were updated, the present ones of each last."""
        found = self._read('SELECT "group", first, specs FROM specs WHERE pool = ? ORDER BY rowid', pool)
        return [SpecsEntry(*row) for row in found]

    def updates(self, pool: str) -> list[UpdateEntry]:
        """Return the recorded updates of the groups of a pool."""
        found = self._read('SELECT "group", before, fell_back FROM updates WHERE pool = ? ORDER BY "group"', pool)
        return [UpdateEntry(group, before, bool(fell_back)) for group, before, fell_back in found]

    def machines(self, pool: str) -> list[MachineEntry]:
        """Return the recorded machines of a pool."""
        found = self._read(
            "SELECT instance, worker FROM machines JOIN clusters ON machines.cluster = number WHERE clusters.pool = ?",
            pool,
        )
        return [_machine(*each) for each in found]

    def unanswered(self, pool: str) -> int:
        """Return the number of requests for machines of a pool whose outcome is unknown."""
        joined = "requests JOIN clusters ON requests.cluster = number"
        ((count,),) = self._read(f"SELECT count(*) FROM {joined} WHERE clusters.pool = ?", pool)
        return int(count)

    def has_requested(self, pool: str) -> bool:
        """Return whether a pool may have machines: it prepared a cluster, without which it requests none."""
        return bool(self._read("SELECT 1 FROM clusters WHERE pool = ? AND cluster IS NOT NULL", pool))

    def clusters(self, pool: str, seal: JournalSeal | None = None) -> list[ClusterEntry]:
        """Return the clusters of a pool; with its secrets, if the seal has the key."""
        unpack = (seal or JournalSeal()).unpack
        entries = []
        for number, group, offered, cluster, lender in self._read(
            'SELECT number, "group", offered, cluster, lender FROM clusters WHERE pool = ? ORDER BY number', pool
        ):
            requests = self._read("SELECT token, at FROM requests WHERE cluster = ?", number)
            machines = self._read("SELECT instance, worker FROM machines WHERE cluster = ? ORDER BY rowid", number)
            entries.append(
                ClusterEntry(
                    number,
                    group,
                    unpack(offered),
                    None if cluster is None else unpack(cluster),
                    dict(requests),
                    tuple(_machine(*each) for each in machines),
                    lender,
                )
            )
        return entries

    def _read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._unwritable(error) from error

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _create(path: Path) -> None:
    """Create an empty file that only its user can read, unless it exists.

    An existing file is not opened: closing it would release all of this process's locks on it, including SQLite's, and
    other processes could then corrupt it.
    """
    with _creating, contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))


def _machine(instance: bytes, worker: bytes | None) -> MachineEntry:
    return MachineEntry(pickle.loads(instance), None if worker is None else pickle.loads(worker))
