"""Warm machines in the journal: machines that a closed pool keeps running for later pools, until a deadline.

The record of a pool stays for as long as one of its machines is warm, or is used by a pool that took it over: it has
the keys of the machine, and what its provider needs to find it. Such a pool is "resting". A machine that is taken over
moves to a cluster entry of the new pool, whose `lender` is the entry that prepared the resources of the machine.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from skyward.journal.entries import WarmEntry

__all__ = ["WARM_TABLE", "Execute", "WarmMachines"]

WARM_TABLE = """
CREATE TABLE IF NOT EXISTS warm (
    cluster INTEGER NOT NULL, id TEXT NOT NULL, machine INTEGER NOT NULL, per_hour REAL NOT NULL, until REAL NOT NULL,
    ready INTEGER NOT NULL, PRIMARY KEY (cluster, id),
    FOREIGN KEY (cluster, id) REFERENCES machines ON DELETE CASCADE
) STRICT;
"""

type Execute = Callable[..., Any]
type Rows = Callable[..., list[tuple[Any, ...]]]

_JOINED = "warm JOIN clusters ON warm.cluster = clusters.number"
_LENT = "SELECT 1 FROM clusters AS own JOIN clusters AS lent ON lent.lender = own.number WHERE own.pool = "
_RESTS = f"""
(pools.rests OR EXISTS (SELECT 1 FROM {_JOINED} WHERE clusters.pool = pools.id))
AND NOT EXISTS (
    SELECT 1 FROM machines JOIN clusters ON machines.cluster = clusters.number
    WHERE clusters.pool = pools.id AND NOT EXISTS (
        SELECT 1 FROM warm WHERE warm.cluster = machines.cluster AND warm.id = machines.id
    )
)
AND NOT EXISTS (
    SELECT 1 FROM requests JOIN clusters ON requests.cluster = clusters.number WHERE clusters.pool = pools.id
)
"""
"""Condition that a pool was closed and has nothing but warm machines; or died when all of its machines were to be."""


class WarmMachines:
    """The warm machines of the journal. Each method is one transaction.

    Args:
        read: executes a statement and returns its rows.
        transaction: begins a transaction, in which the returned function executes statements.
    """

    def __init__(self, read: Rows, transaction: Callable[[], AbstractContextManager[Execute]]) -> None:
        self._read = read
        self._transaction = transaction

    # Keeping machines.

    def keep(self, entry: WarmEntry, now: float) -> None:
        """Record that a machine is to be kept warm, before its pool lets go of it.

        Its bill continues on a line of its own.
        """
        with self._transaction() as execute:
            execute(
                "INSERT OR REPLACE INTO warm VALUES (?, ?, ?, ?, ?, 0)",
                entry.cluster, entry.id, entry.machine, entry.per_hour, entry.until,
            )  # fmt: skip  # in the order of the columns
            execute("UPDATE machines SET worker = NULL WHERE cluster = ? AND id = ?", entry.cluster, entry.id)
            for (kind,) in execute(
                "SELECT kind FROM bills WHERE pool = ? AND machine = ? AND ended IS NULL", entry.pool, entry.machine
            ).fetchall():
                _end_bill(execute, entry.pool, entry.machine, now)
                execute(
                    "INSERT OR REPLACE INTO bills SELECT id, ?, ?, name, ?, ?, NULL, ?, 0, ? FROM pools WHERE id = ?",
                    entry.machine, entry.id, f"{kind}, kept warm", now, now, entry.per_hour, entry.pool,
                )  # fmt: skip  # in the order of the columns

    def set_ready(self, cluster: int, id: str) -> None:
        """Record that nothing of its pool is left on a warm machine, so that another pool may take it over."""
        with self._transaction() as execute:
            execute("UPDATE warm SET ready = 1 WHERE cluster = ? AND id = ?", cluster, id)

    def set_resting(self, pool: str) -> None:
        """Record that a pool was closed, and has warm machines only. Its settings, for `sky.attach`, are deleted."""
        with self._transaction() as execute:
            execute("UPDATE pools SET rests = 1, settings = x'' WHERE id = ?", pool)

    def give_up_all(self, pool: str) -> None:
        """Record that no machine of a pool is kept warm: its new owner uses all of them."""
        with self._transaction() as execute:
            execute("DELETE FROM warm WHERE cluster IN (SELECT number FROM clusters WHERE pool = ?)", pool)

    def give_up(self, cluster: int, id: str) -> None:
        """Record that a machine is not kept warm: it is terminated as the others of its pool."""
        with self._transaction() as execute:
            execute("DELETE FROM warm WHERE cluster = ? AND id = ?", cluster, id)

    def ended(self, entry: WarmEntry, at: float) -> None:
        """Record that a warm machine was terminated at a time."""
        with self._transaction() as execute:
            _end_bill(execute, entry.pool, entry.machine, at)
            execute("DELETE FROM machines WHERE cluster = ? AND id = ?", entry.cluster, entry.id)

    # Taking machines over.

    def take(
        self,
        pool: str,
        group: str,
        lender: int,
        resources: tuple[bytes, bytes],
        ids: Sequence[str],
        now: float,
        lasting: float,
    ) -> tuple[int, tuple[str, ...]]:
        """Move warm machines of an entry to a pool, unless others have taken them; return its entry and their ids.

        Args:
            pool, group: the pool that takes them, and the group of their nodes.
            lender: number of the entry that has them.
            resources: encoded source and cluster, for a new entry.
            ids: ids of the wanted machines.
            now: time of day.
            lasting: the machines are kept until that time of day, at least.
        """
        with self._transaction() as execute:
            taken = []
            for id in ids:
                wanted = "cluster = ? AND id = ? AND ready = 1 AND until > ?"
                for (machine,) in execute(f"SELECT machine FROM warm WHERE {wanted}", lender, id, lasting).fetchall():
                    (owner,) = execute("SELECT pool FROM clusters WHERE number = ?", lender).fetchone()
                    _end_bill(execute, owner, machine, now)
                    execute("DELETE FROM warm WHERE cluster = ? AND id = ?", lender, id)
                    taken.append(id)
            if not taken:
                return 0, ()
            (origin,) = execute("SELECT coalesce(lender, number) FROM clusters WHERE number = ?", lender).fetchone()
            existing = 'SELECT number FROM clusters WHERE pool = ? AND "group" = ? AND lender = ?'
            found = execute(existing, pool, group, origin).fetchone()
            if found is None:
                added = 'INSERT INTO clusters (pool, "group", offered, cluster, lender) VALUES (?, ?, ?, ?, ?)'
                found = (execute(added, pool, group, *resources, origin).lastrowid,)
            for id in taken:
                moved = "UPDATE machines SET cluster = ?, worker = NULL WHERE cluster = ? AND id = ?"
                execute(moved, found[0], lender, id)
            return int(found[0]), tuple(taken)

    # Reading.

    def of(self, pool: str) -> list[WarmEntry]:
        """Return the warm machines of a pool, those with the earliest deadline first."""
        columns = "clusters.pool, warm.cluster, warm.id, warm.machine, warm.per_hour, warm.until, warm.ready"
        rows = self._read(f"SELECT {columns} FROM {_JOINED} WHERE clusters.pool = ? ORDER BY until", pool)
        return [
            WarmEntry(owner, cluster, id, machine, per_hour, until, bool(ready))
            for owner, cluster, id, machine, per_hour, until, ready in rows
        ]

    def available(self, now: float) -> list[str]:
        """Return the ids of the resting pools that have machines to take over at a time, oldest first."""
        ready = f"EXISTS (SELECT 1 FROM {_JOINED} WHERE clusters.pool = pools.id AND ready = 1 AND until > ?)"
        return [id for (id,) in self._read(f"SELECT id FROM pools WHERE {ready} AND {_RESTS} ORDER BY opened", now)]

    def is_resting(self, pool: str) -> bool:
        """Return whether a pool was closed and has only warm machines, or none since other pools have taken them."""
        return bool(self._read(f"SELECT 1 FROM pools WHERE id = ? AND {_RESTS}", pool))

    def was_closed(self, pool: str) -> bool:
        """Return whether a pool was closed, with warm machines."""
        return bool(self._read("SELECT 1 FROM pools WHERE id = ? AND rests", pool))

    def is_lending(self, pool: str) -> bool:
        """Return whether other pools use machines of this one, and so the resources that it prepared."""
        return bool(self._read(f"{_LENT} ?", pool))

    def finished(self) -> list[str]:
        """Return the ids of the resting pools that have no machine any more, and whose machines no other pool uses."""
        none = f"NOT EXISTS (SELECT 1 FROM {_JOINED} WHERE clusters.pool = pools.id) AND NOT EXISTS ({_LENT} pools.id)"
        return [id for (id,) in self._read(f"SELECT id FROM pools WHERE {_RESTS} AND {none}")]

    def is_borrowing(self, pool: str) -> bool:
        """Return whether a pool took machines over."""
        return bool(self._read("SELECT 1 FROM clusters WHERE pool = ? AND lender IS NOT NULL", pool))


def _end_bill(execute: Execute, pool: str, machine: int, at: float) -> None:
    """End the bill of a machine at a time."""
    execute(
        "UPDATE bills SET spent = spent + per_hour * max(0, ? - at) / 3600, at = max(at, ?), ended = max(at, ?) "
        "WHERE ended IS NULL AND pool = ? AND machine = ?",
        at, at, at, pool, machine,
    )  # fmt: skip  # in the order of the statement
