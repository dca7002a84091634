"""Which of the machines that are wished for are asked for now, and where."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from skyward.control.decide.machines.budget import Ledger
from skyward.control.decide.machines.instance import launch_now
from skyward.control.decide.machines.messages import Effect, Request
from skyward.control.decide.machines.sources import FIRST_PAUSE, Backoff, MachineSource
from skyward.control.decide.machines.table import Machine, MachineTable

__all__ = ["Limits", "Requester"]

UNLIMITED = 1e9


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how often the reconciler tries. Times in seconds.

    Attributes:
        launches: machines in a row that may fail to become the node of one rank.
        refusals: requests in a row that may be refused for one rank before the pool is ready. Later there is no limit
            but the pauses between them.
        request, boot, drain, terminate: that a machine may stay in each of these states.
        upscaling_speed: machines launched at once for each that runs; None for any number.
        concurrent_launches: machines that may be asked for at a time.
        first_pause: before a place that failed is asked again; doubled with each failure.
    """

    launches: int = 3
    refusals: int = 3
    request: float = 300.0
    boot: float = 600.0
    drain: float = 300.0
    terminate: float = 60.0
    upscaling_speed: float | None = None
    concurrent_launches: int = 100
    first_pause: float = FIRST_PAUSE


class Requester:
    """Asks for machines as fast as the limits, the places and the budget allow.

    Attributes:
        backoff: which places are left alone.
        retry_at: when it wants to be asked again at the latest.
        short_of_money: whether a machine was not asked for since the budget would not hold.
    """

    def __init__(
        self, book: MachineTable, places: Mapping[str, tuple[MachineSource, ...]], ledger: Ledger, limits: Limits
    ) -> None:
        self.backoff = Backoff(limits.first_pause)
        self.retry_at: float | None = None
        self.short_of_money = False
        self._book = book
        self._places = places
        self._ledger = ledger
        self._limits = limits

    def request(self, groups: Iterable[str], now: float, effects: list[Effect]) -> None:
        """Ask for what is queued in `groups` and whose time has come."""
        self.retry_at, self.short_of_money = None, False
        ready: dict[str, list[Machine]] = {}
        for group in groups:
            if not self._book.count(group, "booting"):
                continue
            for machine in self._book.of(group, "booting"):
                if machine.state == "QUEUED" and machine.not_before <= now:
                    ready.setdefault(group, []).append(machine)
                elif machine.state == "QUEUED":
                    self._retry(machine.not_before)
        if ready:
            for group, count in self._allowed(ready).items():
                self._request_some(group, ready[group][:count], now, effects)

    def _allowed(self, ready: Mapping[str, list[Machine]]) -> Mapping[str, int]:
        requested: dict[str, int] = {}
        for machine in self._book:
            if machine.state == "REQUESTED":
                requested[machine.group] = requested.get(machine.group, 0) + 1
        running = {group: self._book.count(group, "active") for group in ready}
        waiting = {group: len(machines) for group, machines in ready.items()}
        speed = UNLIMITED if self._limits.upscaling_speed is None else self._limits.upscaling_speed
        return launch_now(waiting, requested, running, speed, self._limits.concurrent_launches)

    def _request_some(self, group: str, machines: list[Machine], now: float, effects: list[Effect]) -> None:
        place = self.backoff.choose(self._places[group], now)
        if place is None:
            self._retry(min(map(self.backoff.ready_at, self._places[group])))
            return
        room = self._ledger.room(place.hourly_price, now)
        if room is not None and room < len(machines):
            self.short_of_money = True
            machines = machines[:room]
        for machine in machines:
            machine.place = place
            machine.asked.append(now)
            self._ledger.reserve(machine.id, place.hourly_price)
            self._book.move(machine, "REQUESTED", now)
        if machines:
            effects.append(Request(group, place, tuple(machine.id for machine in machines)))

    def _retry(self, at: float) -> None:
        self.retry_at = at if self.retry_at is None else min(self.retry_at, at)
