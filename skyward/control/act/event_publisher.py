"""Publisher of a pool's events, derived from the control plane's messages and effects.

It makes no decisions. The pool passes it each message, and each effect before that is executed.
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
from skyward.control.observe.startup import NodeStartup, StartupTracker
from skyward.events.bus import EventBus

__all__ = ["FAILURES", "EventPublisher"]

LINES = 20
"""Maximum number of log lines in the event of a node that failed to start."""

READY = "ready"
"""Last startup phase of a node; `NodeReady` reports it."""

FAILURES = (events.TaskFailed, events.TaskTimedOut)
"""Events of tasks that ended without a value."""

FAILED_WITH: Mapping[tasks.SettleOutcome, str] = {
    "lost": "NodeLostError",
    "infeasible": "NoGroupFitsError",
    "abandoned": "NodeStartError",
    "unfunded": "BudgetExhaustedError",
    "unmet": "PluginError",
    "unkept": "KeptLostError",
    "stuck": "SlotsHeldError",
}
"""Error type of a task that could not be run, as raised by `skyward.control.act.tasks.settle`."""


class EventPublisher:
    """Publisher of the events of one control plane. Runs on the same loop.

    Args:
        control: the control plane, read after each of its steps.
        works: unfinished tasks, by number.
        broadcasts: unfinished broadcasts, by number.
        startups: startup tracker of the nodes.
        offset: returns the difference between Unix time and the control plane's clock.
    """

    def __init__(
        self,
        bus: EventBus,
        control: ControlPlane,
        works: Mapping[int, Work],
        broadcasts: Mapping[int, BroadcastWork],
        startups: StartupTracker,
        offset: Callable[[], float] = unix_offset,
    ) -> None:
        self._emit = bus.emit
        self._control = control
        self._table = control.reconciler.table
        self._works = works
        self._broadcasts = broadcasts
        self._startups = startups
        self._offset = offset
        self._announced: set[int] = set()
        self._ranks: dict[int, int] = {}
        self._draining: set[int] = set()
        self._reclaimed: set[int] = set()
        self._per_hour = 0.0
        self._budget_was_exhausted = False
        self._now = 0.0
        startups.on_phase = self._phase

    def publish_step(self, message: plane.PlaneMessage, effects: Sequence[plane.PlaneEffect], now: float) -> None:
        """Publish the events of a message that the control plane handled at time `now` with these effects."""
        self._now = now
        match message:
            case tasks.Submitted(numbers) | tasks.SubmitGang(_, numbers):
                for number in numbers:
                    self._queued(number, self._works[number].code.name)
            case tasks.TasksFound(numbers, rank):
                for number in numbers:
                    self._emit(events.TaskRecovered, number, self._works[number].code.name, rank)
            case machines.Allocated(machine) if machine in self._ranks and machine in self._table.machines:
                # A machine missing from the table is a late answer to a failed request: it is terminated.
                self._emit(events.NodeAllocated, self._ranks[machine], machine)
            case machines.Reclaimed(machine, seconds) if machine in self._ranks and machine in self._table.machines:
                if machine not in self._reclaimed:  # a node repeats its notice
                    self._reclaimed.add(machine)
                    self._emit(events.NodeReclaimed, self._ranks[machine], machine, seconds)
            case _:
                pass
        if not isinstance(message, tasks.Submitted | tasks.SubmitGang | tasks.StartedOnNode):
            for effect in effects:  # a node is lost before its tasks are queued again
                if isinstance(effect, machines.NodeGone) and effect.departure != "removed":
                    self._left(effect)
        if isinstance(message, machines.Terminated):
            self._terminated(message.machine)

    def publish_effect(self, effect: plane.PlaneEffect) -> None:
        """Publish the events of an effect that is about to be executed."""
        match effect:
            case tasks.Dispatch(task, rank):
                self._emit(events.TaskAssigned, task, self._works[task].code.name, rank)
            case tasks.Settle(task, outcome, reason):
                if (work := self._works.get(task)) is not None:
                    self.publish_end(work, outcome, reason)
            case tasks.Requeue(task, rank, retries, reason):
                self._emit(events.TaskRetried, task, self._works[task].code.name, rank, retries, reason)
            case tasks.Member(broadcast, task):
                self._emit(events.TaskQueued, task, self._broadcasts[broadcast].name)
            case plane.Decided(decision) if decision.times == 1:
                self._emit(events.ScalingDecided, replace(decision, at=decision.at + self._offset()))
            case machines.Launch(group, source, numbers):
                for machine in numbers:
                    self._requested(machine, group, str(source), source.hourly_price)
            case machines.Activate(machine, rank):
                self._activated(machine, rank)
            case machines.Drain(rank, machine) if machine not in self._draining:
                self._draining.add(machine)
                self._emit(events.NodeDraining, rank, machine)
            case plane.KeptValuesLost(rank, machine, entries, reason):
                names = tuple(dict.fromkeys(entry.name for entry in entries))
                self._emit(events.NodeValuesLost, rank, machine, names, _first(reason))
            case machines.NodeGone(departure="removed"):
                self._left(effect)
            case machines.GiveUp(_, rank, reason, machine):
                self._emit(events.NodeGivenUp, rank, machine, _first(reason))
            case _:
                pass

    def publish_costs(self) -> None:
        """Publish changes of cost and budget after a step."""
        ledger, now = self._control.ledger, self._now
        if ledger.per_hour != self._per_hour:
            self._per_hour = ledger.per_hour
            self._emit(events.CostChanged, ledger.spent(now), ledger.per_hour)
        if self._control.budget_exhausted != self._budget_was_exhausted:
            self._budget_was_exhausted = self._control.budget_exhausted
            if self._budget_was_exhausted and ledger.budget is not None:
                self._emit(events.BudgetReached, ledger.spent(now), ledger.budget)

    def publish_waiting(self, work: Work) -> None:
        """Publish a task that was accepted and waits for its prerequisites."""
        self._emit(events.TaskQueued, work.task, work.code.name)
        self._announced.add(work.task)

    def _queued(self, number: int, name: str) -> None:
        if number in self._announced:
            self._announced.discard(number)
        else:
            self._emit(events.TaskQueued, number, name)

    def publish_end(self, work: Work, outcome: tasks.SettleOutcome, reason: str) -> None:
        """Publish the end of a task."""
        self._announced.discard(work.task)
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

    def publish_stopping(self, reason: str) -> None:
        """Publish the end of all tasks and nodes as the pool closes, which bypasses the control plane."""
        for work in self._works.values():
            node = work.nodes[-1] if work.nodes else None
            self._emit(events.TaskFailed, work.task, work.code.name, node, work.seconds, "PoolClosedError", reason)
        for rank, assignment in sorted(self._table.assignments.items()):
            if assignment.machine.id in self._ranks:
                self._emit(events.NodeRemoved, rank, assignment.machine.id, "the pool is closed")

    def publish_closed(self, now: float) -> None:
        """Publish that all machines were terminated, and the final cost."""
        self._now = now
        for machine in tuple(self._ranks):
            self._terminated(machine)
        self.publish_costs()

    # Nodes.

    def _requested(self, machine: int, group: str, kind: str, price: float) -> None:
        if machine not in self._ranks:  # a repeated request is for the same machine
            self._ranks[machine] = rank = self._table.machines[machine].rank
            self._emit(events.NodeRequested, rank, machine, group, kind, price)

    def _phase(self, startup: NodeStartup, phase: str, elapsed: float | None) -> None:
        if elapsed is not None:
            self._emit(events.NodePhaseCompleted, startup.rank, startup.machine, phase, elapsed)
        elif phase != READY:
            self._emit(events.NodePhaseStarted, startup.rank, startup.machine, phase)

    def _activated(self, machine: int, rank: int) -> None:
        if machine in self._draining:
            self._draining.discard(machine)
            self._emit(events.NodeDrainCancelled, rank, machine)
            return
        entry = self._table.machines.get(machine)
        elapsed = self._now - entry.requested_at[0] if entry is not None and entry.requested_at else 0.0
        counts = (self._table.count(group, "active") for group in self._control.groups)
        self._emit(events.NodeReady, rank, machine, elapsed, sum(counts), sum(self._control.desired.values()))

    def _left(self, left: machines.NodeGone) -> None:
        rank, machine = left.rank, left.machine
        self._draining.discard(machine)
        if machine not in self._ranks:
            return  # it was never requested
        match left.departure:
            case "lost":
                self._emit(events.NodeLost, rank, machine, _first(left.reason), left.again)
            case "removed":
                self._emit(events.NodeRemoved, rank, machine, _first(left.reason))
            case "failed" | "refused":
                lines = tuple(left.reason.strip().splitlines()[1:][-LINES:])
                phase = self._startups.phase(rank, machine)
                self._emit(events.NodeFailed, rank, machine, phase, _first(left.reason), lines, left.again)

    def _terminated(self, machine: int) -> None:
        rank = self._ranks.pop(machine, None)
        if rank is not None:
            self._emit(events.NodeTerminated, rank, machine)


def _first(reason: str) -> str:
    return reason.strip().partition("\n")[0].removesuffix(":")
