"""The leases of a pool's nodes once its process has left it: as long as the rest of its budget covers."""

from collections.abc import Callable, Collection
from math import inf

from skyward.control.act.nodes.fleet import Fleet
from skyward.control.act.nodes.launching import Launcher
from skyward.control.decide.machines.budget import LEAVE_RESERVE, WATCHDOG_RESERVE, Ledger
from skyward.formatting import money_text, nodes_text
from skyward.journal import PoolRecord

__all__ = ["Leases"]

_SHORTEST = 1.0
"""Seconds of a lease at least."""


class Leases:
    """The leases of a pool's nodes. Runs on the library's loop.

    Args:
        fleet: the nodes.
        launchers: the launchers of the groups, whose specs have the leases.
        record: the record of the pool.
        ledger: returns the costs of the pool.
        note: tells the user a line.
        now: returns the time of the ledger.

    Attributes:
        is_left: True once the process of the pool has left it.
        shortened: the lease in seconds if the budget covers no longer one; else None.
    """

    def __init__(
        self,
        fleet: Fleet,
        launchers: Collection[Launcher],
        record: PoolRecord,
        ledger: Callable[[], Ledger],
        note: Callable[[str], object],
        now: Callable[[], float],
    ) -> None:
        self.is_left = False
        self.shortened: float | None = None
        self._fleet = fleet
        self._launchers = launchers
        self._record = record
        self._ledger = ledger
        self._note = note
        self._now = now

    def why_not_left(self) -> str:
        """Return why the nodes cannot outlive this process; empty if they can."""
        if self._covered >= _SHORTEST:
            return ""
        ledger = self._ledger()
        return (
            f"{money_text(ledger.spent(self._now()))} of its budget of {money_text(ledger.budget or 0.0)} is spent, "
            f"and the rest covers no lease of its nodes, which cost {money_text(ledger.per_hour)} an hour. Give it a "
            "larger budget, or close it."
        )

    async def leave(self) -> None:
        """Make the leases no longer than the rest of the budget covers, and record that; for the end of this process.

        Once a node has answered, the ends of the tasks that it had reported before have arrived, too.
        """
        self.is_left = True
        most = max(0.0, self._covered)
        silent = await self._fleet.set_leases(most)
        if most == inf:
            self.shortened = None
            return
        lease = min(self._longest, most)
        self.shortened = self._longest if silent else lease
        self._record.set_lease(self.shortened)
        if silent and lease < self._longest:
            self._note(f"{nodes_text(silent)} did not answer, so that the lease could exceed the budget.")

    def record_longest(self) -> None:
        """Record the leases of the specs: the former process may have shortened them."""
        self._record.set_lease(self._longest)

    async def restore(self) -> None:
        """Give the nodes the leases of their specs."""
        await self._fleet.set_leases(inf)

    @property
    def _longest(self) -> float:
        return max(each.lease for each in self._launchers)

    @property
    def _covered(self) -> float:
        """Seconds from now on for which the budget covers that no client looks after the machines."""
        reserve = LEAVE_RESERVE + (WATCHDOG_RESERVE if self._fleet.has_watchdogs else 0.0)
        return self._ledger().lasts(self._now(), self._fleet.spare_costs(closing=False)) - reserve
