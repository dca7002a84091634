"""Requests for queued machines: which to make now, and of which source."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from skyward.control.decide.machines.budget import Ledger
from skyward.control.decide.machines.instance import launch_now
from skyward.control.decide.machines.messages import Launch, ReconcilerEffect
from skyward.control.decide.machines.sources import FIRST_PAUSE, NO_CAPACITY_PAUSE, PATIENCE, Backoff, MachineSource
from skyward.control.decide.machines.table import Machine, MachineTable

__all__ = ["Limits", "Requester"]

UNLIMITED = 1e9


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the reconciler's retries and waits. Times in seconds.

    Attributes:
        launches: consecutive machines that may fail to become the node of one rank.
        refusals: consecutive requests that one source may refuse for an unknown reason, or leave unanswered, before the
            next source is asked; before the pool is ready, a rank is given up when `failing_sources` did so. Later only
            the backoff limits them.
        request, boot, drain, terminate: timeouts of a machine in each of these states.
        upscaling_speed: machines launched at once for each that runs; None for no limit.
        concurrent_launches: machines that may be requested at a time.
        first_backoff: first backoff of a source that failed; doubled with each failure.
        no_capacity: time without a request to a source that has no machine now.
        rounds: how often all sources may refuse a rank, for lack of capacity or quota, before the pool is ready.
        failing_pause: time for which other groups are preferred to one of which a node was given up; doubled each time,
            up to an hour.
        patience: time that tasks wait for a node while every group that could hold them is sold out or fails.
    """

    launches: int = 3
    refusals: int = PATIENCE
    failing_sources: int = 2
    request: float = 300.0
    boot: float = 600.0
    drain: float = 300.0
    terminate: float = 60.0
    upscaling_speed: float | None = None
    concurrent_launches: int = 100
    first_backoff: float = FIRST_PAUSE
    no_capacity: float = NO_CAPACITY_PAUSE
    rounds: int = 1
    failing_pause: float = 300.0
    patience: float = 3600.0


class Requester:
    """Requests machines as fast as the limits, the sources and the budget allow.

    Machines that exist already are requested first, and all at once: the limits are those of launches.

    Args:
        existing: machines of a former process that were not requested yet, by group and source.

    Attributes:
        backoff: backoff of the sources that failed.
        retry_at: latest time for the next call of `request`; None if nothing waits.
        over_budget: True if a machine was not requested because of the budget.
        known: machines for the first existing ones of a source, by group and source; None for any queued one.
    """

    def __init__(
        self,
        table: MachineTable,
        sources: Mapping[str, tuple[MachineSource, ...]],
        ledger: Ledger,
        limits: Limits,
        existing: Mapping[str, Mapping[MachineSource, int]],
    ) -> None:
        self.backoff = Backoff(limits.first_backoff, no_capacity=limits.no_capacity, patience=limits.refusals)
        self.retry_at: float | None = None
        self.over_budget = False
        self._table = table
        self._places = sources
        self._ledger = ledger
        self._limits = limits
        self._existing = dict(existing)
        self.known: dict[tuple[str, MachineSource], list[Machine | None]] = {}

    def request(self, groups: Iterable[str], now: float, effects: list[ReconcilerEffect]) -> None:
        """Request the queued machines of `groups` that are due."""
        self.retry_at, self.over_budget = None, False
        waiting: dict[str, int] = {}
        for group in groups:
            if self._table.due(group, now) and group in self._existing:
                self._adopt(group, now, effects)
            if count := self._table.due(group, now):
                waiting[group] = count
            if (at := self._table.next_due(group)) is not None:
                self._retry(at)
        if waiting:
            for group, count in self._allowed(waiting).items():
                self._request_some(group, self._table.first_due(group, count), now, effects)

    def _adopt(self, group: str, now: float, effects: list[ReconcilerEffect]) -> None:
        """Request the existing machines of a group, which cost money already."""
        existing = self._existing.pop(group)
        known = {source: self.known.pop((group, source), [])[:count] for source, count in existing.items()}
        taken = {machine.id for machines in known.values() for machine in machines if machine is not None}
        due = self._table.first_due(group, sum(existing.values()) + len(taken))
        others = iter([machine for machine in due if machine.id not in taken])
        for source, count in existing.items():
            places = [*known[source], *itertools.repeat(None, count - len(known[source]))]
            found = [machine or next(others, None) for machine in places]
            adopted = [machine for machine in found if machine is not None]
            for machine in adopted:
                machine.adopted = True
            self._launch(group, source, adopted, now, effects)

    def _allowed(self, waiting: Mapping[str, int]) -> Mapping[str, int]:
        """Return the number of machines to request now, of those that wait, by group."""
        requested = self._table.counts_in("REQUESTED")
        running = {group: self._table.count(group, "active") for group in waiting}
        speed = UNLIMITED if self._limits.upscaling_speed is None else self._limits.upscaling_speed
        return launch_now(waiting, requested, running, speed, self._limits.concurrent_launches)

    def _request_some(self, group: str, machines: list[Machine], now: float, effects: list[ReconcilerEffect]) -> None:
        source = self.backoff.choose(self._places[group], now)
        if source is None:
            if (at := self.backoff.retry_at(self._places[group], now)) < inf:
                self._retry(at)
            return
        by_number = {machine.id: machine for machine in machines}
        affordable = self._ledger.affordable(by_number, source.hourly_price, now)
        self.over_budget = self.over_budget or len(affordable) < len(machines)
        self._launch(group, source, [by_number[number] for number in affordable], now, effects)

    def _launch(
        self,
        group: str,
        source: MachineSource,
        machines: list[Machine],
        now: float,
        effects: list[ReconcilerEffect],
    ) -> None:
        for machine in machines:
            machine.source = source
            machine.requested_at.append(now)
            self._ledger.reserve(machine.id, source.hourly_price)
            self._table.move(machine, "REQUESTED", now)
        if machines:
            numbers = tuple(machine.id for machine in machines)
            effects.append(Launch(group, source, numbers, cause=self._table.cause))

    def _retry(self, at: float) -> None:
        self.retry_at = at if self.retry_at is None else min(self.retry_at, at)
