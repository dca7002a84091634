"""A simulated cloud: machines that take time to boot, cost money while they exist, and fail in every way.

Launches are idempotent by machine number, and terminations are final: a machine that is terminated before it is
launched is never launched.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from skyward.control.decide.machines.messages import (
    Allocated,
    Failed,
    Joined,
    Launch,
    Lost,
    Reclaimed,
    Refused,
    Terminated,
)
from skyward.control.decide.machines.sources import MachineSource, RefusalKind
from skyward.simulator.clock import Clock
from skyward.simulator.faults import Faults
from skyward.simulator.workload import Distribution

__all__ = ["Cloud", "CloudMachine"]

type CloudAnswer = Allocated | Refused | Joined | Failed | Lost | Reclaimed | Terminated

HOUR = 3600.0
API_SECONDS = Distribution(1.0, 0.7)
"""Latency of a call to the cloud, in each direction."""

THROTTLED = Distribution(20.0, 20.0)
"""Seconds for which a provider asks a client to wait that makes too many requests."""

NOTICED = 1.0
"""Seconds until a death that is not silent is reported, by a reset connection or a notice of the cloud."""


@dataclass(slots=True, eq=False)
class CloudMachine:
    """One machine, alive or terminated.

    Attributes:
        up_at: earliest time at which it can become a node.
        until: when it ended; None while it exists.
        price: USD an hour, from `since` to `until`.
    """

    id: int
    group: str
    since: float
    up_at: float
    price: float
    until: float | None = None
    installing: bool = False

    @property
    def alive(self) -> bool:
        """True while it exists and costs money."""
        return self.until is None

    def cost(self, now: float) -> float:
        """Return the USD until `now`."""
        return ((now if self.until is None else self.until) - self.since) * self.price / HOUR


@dataclass
class Cloud:
    """The machines by number.

    Attributes:
        tell: callback for answers to the control plane.
        ended: callback for the end of a machine, reported or not.
        living: machines that exist and cost money.
    """

    clock: Clock
    faults: Faults
    boot: Distribution
    random: Random
    tell: Callable[[CloudAnswer], None]
    ended: Callable[[CloudMachine, Literal["died", "terminated"]], None]
    machines: dict[int, CloudMachine] = field(default_factory=dict)
    living: dict[int, CloudMachine] = field(default_factory=dict)
    died: int = 0
    _spent: float = 0.0
    _tombs: set[int] = field(default_factory=set)
    _short_until: float = 0.0
    _sold_out_until: dict[str, float] = field(default_factory=dict)
    _empty_until: dict[MachineSource, float] = field(default_factory=dict)
    _never: dict[MachineSource, bool] = field(default_factory=dict)
    _denied: set[str] = field(default_factory=set)

    def open(self) -> None:
        """Schedule the faults that affect all machines."""
        if self.faults.until is not None:
            self.clock.at(self.faults.until, self.end_faults)
        self._again(self.faults.storms, self._storm)
        self._again(self.faults.shortages, self._shortage)
        self._again(self.faults.sold_out, self._sell_out)
        self._again(self.faults.denials, self._deny)

    def cost(self) -> float:
        """Return the USD of all machines until now."""
        return self._spent + sum(machine.cost(self.clock.now) for machine in self.living.values())

    # Calls.

    def request(self, request: Launch) -> None:
        """Launch machines, after the latency of a call."""
        self.clock.after(API_SECONDS.draw(self.random), self._launch, request)

    def install(self, machine: int) -> None:
        """Make a machine a node: answer `Joined` when it is up, `Failed` if it does not start."""
        found = self.machines.get(machine)
        if found is not None and not found.installing:
            found.installing = True
            fails = self._happens(self.faults.boot_failures)
            self.clock.at(found.up_at, self._boot_ended, found, fails)

    def terminate(self, machine: int) -> None:
        """End a machine, or prevent its launch; answer `Terminated` when done."""
        if not self._happens(self.faults.lost_terminates):
            self.clock.after(API_SECONDS.draw(self.random), self._terminate, machine)

    def kill(self, machine: int) -> None:
        """End a machine now."""
        self._die(self.living[machine], "the cloud reclaimed it")

    def reclaim(self, number: int) -> None:
        """End a machine, some time after a notice if there is one."""
        machine = self.living[number]
        if self._is_up(machine) and self._happens(self.faults.noticed):
            self._answer(Reclaimed(number, self.faults.notice))
            self.clock.after(self.faults.notice, self._take, number)
        else:
            self.kill(number)

    def sell_out(self, group: str, seconds: float, only: MachineSource | None = None) -> None:
        """Have no more machines of a group for some time, or only of one of its sources."""
        if only is None:
            self._sold_out_until[group] = self.clock.now + seconds
        else:
            self._empty_until[only] = self.clock.now + seconds

    def end_faults(self) -> None:
        """End all faults."""
        self.faults = Faults()
        self._short_until = 0.0
        self._sold_out_until.clear()
        self._empty_until.clear()

    # Effects.

    def _launch(self, request: Launch) -> None:
        faults, carried_out = self.faults, True
        if refusal := self._refuse_all(request):
            self._answer(refusal)
            return
        failed = self._happens(faults.api_errors)
        if failed:
            carried_out = self._happens(faults.phantoms)
        refused: dict[RefusalKind, list[int]] = {}
        came: list[int] = []
        for number in request.machines if carried_out else ():
            known = self.machines.get(number)
            if known is not None and known.alive:
                came.append(number)
            elif known is not None or number in self._tombs:
                refused.setdefault("unknown", []).append(number)
            elif kind := self._refuse_one(request):
                refused.setdefault(kind, []).append(number)
            else:
                self._start(number, request)
                came.append(number)
        if failed:
            self._answer(Refused(request.machines, "the cloud answered 500 Internal Server Error"))
        elif not self._happens(faults.lost_replies):
            for number in came:
                self._answer(Allocated(number))
            for kind, numbers in refused.items():
                self._answer(Refused(tuple(numbers), "the cloud is out of such machines", kind))

    def _refuse_all(self, request: Launch) -> Refused | None:
        """Return the refusal of a request that the provider does not even try; None if it does."""
        source = request.source
        if source.provider in self._denied:
            return Refused(request.machines, "the key is not valid any more", "denied")
        if self._happens(self.faults.throttled):
            return Refused(request.machines, "too many requests", "rate", max(0.0, THROTTLED.draw(self.random)))
        if source not in self._never:
            self._never[source] = self._happens(self.faults.impossible)
        if self._never[source]:
            return Refused(request.machines, "there is no such machine", "impossible")
        return None

    def _refuse_one(self, request: Launch) -> RefusalKind | None:
        """Return the kind of refusal of one more machine, as the cloud tells it; None if there is a machine."""
        quota = self.faults.quota
        if quota is not None and len(self.living) >= quota:
            return "quota" if self._happens(self.faults.explained) else "unknown"
        sold_out = self._sold_out_until.get(request.group, 0.0), self._empty_until.get(request.source, 0.0)
        is_short = self.clock.now < max(self._short_until, *sold_out)
        if is_short or self._happens(self.faults.partial):
            return "capacity" if self._happens(self.faults.explained) else "unknown"
        return None

    def _start(self, number: int, request: Launch) -> None:
        now = self.clock.now
        boot = max(0.0, self.boot.draw(self.random))
        machine = CloudMachine(number, request.group, now, now + boot, request.source.hourly_price)
        self.machines[number] = self.living[number] = machine
        if self.faults.spot_loss:
            self.clock.after(self.random.expovariate(self.faults.spot_loss / HOUR), self._reclaim, number)
        if self.faults.false_alarms:
            self.clock.after(self.random.expovariate(self.faults.false_alarms / HOUR), self._cut_off, number)

    def _boot_ended(self, machine: CloudMachine, fails: bool) -> None:
        if machine.alive:
            self._answer(Failed(machine.id, "its bootstrap script failed") if fails else Joined(machine.id))

    def _reclaim(self, number: int) -> None:
        """Reclaim a spot machine."""
        if self.machines[number].alive and self.faults.spot_loss:
            self.reclaim(number)

    def _take(self, number: int) -> None:
        """End a machine after its notice."""
        if self.machines[number].alive:
            self.kill(number)

    def _cut_off(self, number: int) -> None:
        """Make a machine unreachable, though it exists."""
        if self.machines[number].alive and self.faults.false_alarms:
            self._answer(Lost(number, "it did not answer"))

    def _die(self, machine: CloudMachine, reason: str) -> None:
        silent = self._happens(self.faults.silent)
        was_up = self._is_up(machine)
        self.died += 1
        self._end(machine, "died")
        if was_up or not silent:
            self._answer(Lost(machine.id, reason), self.faults.detection if silent else NOTICED)

    def _is_up(self, machine: CloudMachine) -> bool:
        return machine.installing and self.clock.now >= machine.up_at

    def _terminate(self, number: int) -> None:
        self._tombs.add(number)
        machine = self.machines.get(number)
        if machine is not None and machine.alive:
            self._end(machine, "terminated")
        if not self._happens(self.faults.lost_replies):
            self.clock.after(self.random.uniform(0, self.faults.slow_terminate), self._answer, Terminated(number))

    def _end(self, machine: CloudMachine, how: Literal["died", "terminated"]) -> None:
        machine.until = self.clock.now
        self._spent += machine.cost(self.clock.now)
        del self.living[machine.id]
        self.ended(machine, how)

    def _storm(self) -> None:
        for machine in tuple(self.living.values()):
            if self._happens(self.faults.storm_share):
                self.reclaim(machine.id)

    def _shortage(self) -> None:
        self._short_until = self.clock.now + self.faults.shortage_seconds

    def _sell_out(self) -> None:
        """Have no more machines of one of the groups that were asked for."""
        asked = sorted({source.type for source in self._never})
        if asked:
            self._sold_out_until[self.random.choice(asked)] = self.clock.now + 10 * self.faults.shortage_seconds

    def _deny(self) -> None:
        """Deny all further requests to one provider of those that were asked."""
        asked = sorted({source.provider for source in self._never} - self._denied)
        if asked:
            self._denied.add(self.random.choice(asked))

    # Answers.

    def _answer(self, answer: CloudAnswer, after: float | None = None) -> None:
        delay = API_SECONDS.draw(self.random) if after is None else after
        if self._happens(self.faults.reordered):
            delay += self.random.uniform(0, self.faults.late)
        self.clock.after(delay, self.tell, answer)
        if self._happens(self.faults.duplicates):
            self.clock.after(delay + self.random.uniform(0, self.faults.late), self.tell, answer)

    def _happens(self, share: float) -> bool:
        return share > 0 and self.random.random() < share

    def _again(self, rate: float, call: Callable[[], None]) -> None:
        """Schedule a call at a random time, at a rate an hour."""
        if rate > 0:
            self.clock.after(self.random.expovariate(rate / HOUR), self._and_again, rate, call)

    def _and_again(self, rate: float, call: Callable[[], None]) -> None:
        if self.faults != Faults():
            call()
            self._again(rate, call)
