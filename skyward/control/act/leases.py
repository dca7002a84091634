"""The leases of a pool's nodes: as long as the rest of its budget covers, once its process has left it, or before."""

from collections.abc import Callable, Collection
from math import inf

from skyward.control.act.nodes.fleet import Fleet
from skyward.control.act.nodes.launching import Launcher
from skyward.control.decide.machines.budget import LEAVE_RESERVE, WATCHDOG_RESERVE, Ledger
from skyward.formatting import money_text, nodes_text
from skyward.journal import PoolRecord
from skyward.link.ssh.worker import FINISHES_WITHIN

__all__ = ["RENEW_EVERY", "Leases"]

RENEW_EVERY = 20.0
"""Seconds between two looks at what the rest of the budget covers, each of which may shorten the leases."""

_SHORTEST = 1.0
_SHORTEST_HELD = 10.0
"""Seconds of a lease at least, and of one that a living process renews: a pause of it must not end the work."""


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
        is_limited: True if the budget limits the leases before that, too, so that it holds however the process ends.
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
        self.is_limited = False
        self._most = inf
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
        await self._set(max(0.0, self._covered))

    async def limit(self) -> None:
        """Make the leases no longer than the rest of the budget covers until the next call, if they are limited."""
        if not self.is_limited:
            return
        most = self._covered - RENEW_EVERY
        # A process that lives watches the budget itself, and ends the nodes before the shortest of these leases does.
        most = inf if most >= self._longest + FINISHES_WITHIN else max(_SHORTEST_HELD, most)
        if most < inf or self._most < inf:
            await self._set(most)

    def take_over(self) -> None:
        """Have the next `limit` set the leases, which the former process may have shortened."""
        self._record.set_lease(self._longest)
        self._most = 0.0
        self.is_limited = True

    async def _set(self, most: float) -> None:
        self._most = most
        silent = await self._fleet.set_leases(most)
        before = self.shortened
        if most == inf:
            self.shortened = None
            if before is not None:
                self._record.set_lease(self._longest)
            return
        lease = min(self._longest, most)
        self.shortened = self._longest if silent else lease
        self._record.set_lease(self.shortened)
        if self.is_left and silent and lease < self._longest:
            self._note(f"{nodes_text(silent)} did not answer, so that the lease could exceed the budget.")

    @property
    def _longest(self) -> float:
        return max(each.lease for each in self._launchers)

    @property
    def _covered(self) -> float:
        """Seconds from now on for which the budget covers that no client looks after the machines."""
        reserve = LEAVE_RESERVE + (WATCHDOG_RESERVE if self._fleet.has_watchdogs else 0.0)
        return self._ledger().lasts(self._now(), self._fleet.spare_costs(closing=False)) - reserve
