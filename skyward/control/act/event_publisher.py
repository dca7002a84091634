"""Events of a pool, made where its state changes: from what the control plane is told and what it decides.

Decides nothing and does nothing but emit. The shell shows it each message and each effect, before it carries that out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from skyward import events
from skyward.control.act.tasks.history import unix_offset
from skyward.control.act.tasks.task import BroadcastWork, Work
from skyward.control.decide import messages as plane
from skyward.control.decide.machines import messages as machines
from skyward.control.decide.plane import ControlPlane
from skyward.control.decide.tasks import messages as tasks
from skyward.control.observe.startup import Boot, StartupTracker
from skyward.events.bus import EventBus

__all__ = ["FAILURES", "Observer"]

LINES = 20
"""Lines of the log of a node that did not come up that its event has."""

READY = "ready"
"""The phase of a node that is up, which has an event of its own."""

FAILURES = (events.TaskFailed, events.TaskTimedOut, events.TaskCancelled)
"""The ways for a task to end without a value."""

FAILED_WITH: Mapping[tasks.Outcome, str] = {
    "lost": "NodeLostError",
    "infeasible": "NoGroupFitsError",
    "abandoned": "NodeStartError",
    "unfunded": "BudgetExhaustedError",
    "unkept": "KeptLostError",
    "stuck": "SlotsHeldError",
}
"""The type of the error of a task that could not be run, as `skyward.control.act.tasks.settle` raises it."""


class Observer:
    """Emits the events of one control plane. Lives where that lives.

    Args:
        control: the control plane; looked at after each of its steps.
        works: the tasks that are not over, by number.
        broadcasts: those that are not over, by number.
        boots: how nodes start.
        offset: what to add to a time of the control plane to have Unix time.
    """

    def __init__(
        self,
        bus: EventBus,
        control: ControlPlane,
        works: Mapping[int, Work],
        broadcasts: Mapping[int, BroadcastWork],
        boots: StartupTracker,
        offset: Callable[[], float] = unix_offset,
    ) -> None:
        self._emit = bus.emit
        self._control = control
        self._book = control.reconciler.book
        self._works = works
        self._broadcasts = broadcasts
        self._boots = boots
        self._offset = offset
        self._told_of: set[int] = set()
        self._ranks: dict[int, int] = {}
        self._draining: set[int] = set()
        self._per_hour = 0.0
        self._broke = False
        self._now = 0.0
        boots.on_phase = self._phase

    def told(self, message: plane.Message, effects: Sequence[plane.Effect], now: float) -> None:
        """The control plane was told something at time `now`, and decided these effects."""
        self._now = now
        match message:
            case tasks.Submitted(numbers):
                for number in numbers:
                    self._queued(number, self._works[number].code.name)
            case tasks.Found(numbers, rank):
                for number in numbers:
                    self._emit(events.TaskRecovered, number, self._works[number].code.name, rank)
            case machines.Allocated(machine) if machine in self._ranks and machine in self._book.machines:
                # One that is not in the book is a late answer to a request that failed: it is given back.
                self._emit(events.NodeAllocated, self._ranks[machine], machine)
            case _:
                pass
        if not isinstance(message, tasks.Submitted | tasks.Started):
            for effect in effects:  # a node is lost before its tasks are queued again
                if isinstance(effect, machines.Left) and effect.cause != "removed":
                    self._left(effect)
        if isinstance(message, machines.Gone):
            self._terminated(message.machine)

    def does(self, effect: plane.Effect) -> None:
        """An effect is about to be carried out."""
        match effect:
            case tasks.Dispatch(task, rank):
                self._emit(events.TaskAssigned, task, self._works[task].code.name, rank)
            case tasks.Settle(task, outcome, reason):
                if (work := self._works.get(task)) is not None:
                    self.ended(work, outcome, reason)
            case tasks.Requeue(task, rank, retries, reason):
                self._emit(events.TaskRetried, task, self._works[task].code.name, rank, retries, reason)
            case tasks.Member(broadcast, task):
                self._emit(events.TaskQueued, task, self._broadcasts[broadcast].name)
            case plane.Decided(decision) if decision.times == 1:
                self._emit(events.ScalingDecided, replace(decision, at=decision.at + self._offset()))
            case machines.Request(group, place, numbers):
                for machine in numbers:
                    self._requested(machine, group, str(place), place.hourly_price)
            case machines.Activate(machine, rank):
                self._activated(machine, rank)
            case machines.Drain(rank, machine) if machine not in self._draining:
                self._draining.add(machine)
                self._emit(events.NodeDraining, rank, machine)
            case plane.Unkept(rank, machine, entries, reason):
                names = tuple(dict.fromkeys(entry.name for entry in entries))
                self._emit(events.NodeValuesLost, rank, machine, names, _first(reason))
            case machines.Left(cause="removed"):
                self._left(effect)
            case machines.GiveUp(_, rank, reason, machine):
                self._emit(events.NodeGivenUp, rank, machine, _first(reason))
            case _:
                pass

    def done(self) -> None:
        """The step is over: look at the money."""
        ledger, now = self._control.ledger, self._now
        if ledger.per_hour != self._per_hour:
            self._per_hour = ledger.per_hour
            self._emit(events.CostChanged, ledger.spent(now), ledger.per_hour)
        if self._control.budget_exhausted != self._broke:
            self._broke = self._control.budget_exhausted
            if self._broke and ledger.budget is not None:
                self._emit(events.BudgetReached, ledger.spent(now), ledger.budget)

    def waits(self, work: Work) -> None:
        """A task was taken, and waits for others before it is queued."""
        self._emit(events.TaskQueued, work.task, work.code.name)
        self._told_of.add(work.task)

    def _queued(self, number: int, name: str) -> None:
        if number in self._told_of:
            self._told_of.discard(number)
        else:
            self._emit(events.TaskQueued, number, name)

    def ended(self, work: Work, outcome: tasks.Outcome, reason: str) -> None:
        """A task is over."""
        self._told_of.discard(work.task)
        task, name = work.task, work.code.name
        node, elapsed = (work.nodes[-1] if work.nodes else None), work.seconds
        match outcome:
            case "value":
                self._emit(events.TaskCompleted, task, name, node, elapsed)
            case "cancelled":
                self._emit(events.TaskCancelled, task, name, node, elapsed)
            case "timeout":
                self._emit(events.TaskTimedOut, task, name, node, elapsed)
            case "error" | "raised":
                self._emit(events.TaskFailed, task, name, node, elapsed, work.error, reason)
            case _:
                self._emit(events.TaskFailed, task, name, node, elapsed, FAILED_WITH[outcome], reason)

    def stopping(self, reason: str) -> None:
        """The pool closes: every task ends, and every node goes, without the control plane having a say."""
        for work in self._works.values():
            node = work.nodes[-1] if work.nodes else None
            self._emit(events.TaskFailed, work.task, work.code.name, node, work.seconds, "PoolClosedError", reason)
        for rank, seat in sorted(self._book.seats.items()):
            if seat.machine.id in self._ranks:
                self._emit(events.NodeRemoved, rank, seat.machine.id, "the pool is closed")

    def closed(self, now: float) -> None:
        """Every machine was given back."""
        self._now = now
        for machine in tuple(self._ranks):
            self._terminated(machine)
        self.done()

    # Nodes.

    def _requested(self, machine: int, group: str, kind: str, price: float) -> None:
        if machine not in self._ranks:  # asked for again, it is still the same machine
            self._ranks[machine] = rank = self._book.machines[machine].rank
            self._emit(events.NodeRequested, rank, machine, group, kind, price)

    def _phase(self, boot: Boot, phase: str, elapsed: float | None) -> None:
        if elapsed is not None:
            self._emit(events.NodePhaseCompleted, boot.rank, boot.machine, phase, elapsed)
        elif phase != READY:
            self._emit(events.NodePhaseStarted, boot.rank, boot.machine, phase)

    def _activated(self, machine: int, rank: int) -> None:
        if machine in self._draining:
            self._draining.discard(machine)
            self._emit(events.NodeDrainCancelled, rank, machine)
            return
        there = self._book.machines.get(machine)
        elapsed = self._now - there.asked[0] if there is not None and there.asked else 0.0
        counts = (self._book.count(group, "active") for group in self._control.groups)
        self._emit(events.NodeReady, rank, machine, elapsed, sum(counts), sum(self._control.desired.values()))

    def _left(self, left: machines.Left) -> None:
        rank, machine = left.rank, left.machine
        self._draining.discard(machine)
        if machine not in self._ranks:
            return  # it was never asked for
        match left.cause:
            case "lost":
                self._emit(events.NodeLost, rank, machine, _first(left.reason), left.again)
            case "removed":
                self._emit(events.NodeRemoved, rank, machine, _first(left.reason))
            case "failed" | "refused":
                lines = tuple(left.reason.strip().splitlines()[1:][-LINES:])
                phase = self._boots.phase(rank, machine)
                self._emit(events.NodeFailed, rank, machine, phase, _first(left.reason), lines, left.again)

    def _terminated(self, machine: int) -> None:
        rank = self._ranks.pop(machine, None)
        if rank is not None:
            self._emit(events.NodeTerminated, rank, machine)


def _first(reason: str) -> str:
    return reason.strip().partition("\n")[0].removesuffix(":")
