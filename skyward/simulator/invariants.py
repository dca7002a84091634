"""What must be true of a pool after every step (design section 3), checked against the simulated world."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.messages import Decided, Effect, Message, Tick
from skyward.control.decide.tasks import messages as tasks
from skyward.errors import SkywardError
from skyward.simulator.scenario import Scenario

if TYPE_CHECKING:
    from skyward.control.decide.machines.instance import InstanceState
    from skyward.simulator.runner import Runner  # circular: the runner checks itself after each step

__all__ = ["InvariantError", "Invariants"]

HISTORY = 40
SHOWN = 12
SLACK = 60.0
"""Seconds past a deadline: a few ticks."""

_FINE = 1e-6


class InvariantError(SkywardError):
    """Something happened in a simulated pool that must not. The message ends with the last steps.

    Attributes:
        rule: which invariant it was.
        history: the steps that led there, oldest first.
    """

    def __init__(self, rule: str, what: str, scenario: Scenario, now: float, history: tuple[str, ...]) -> None:
        lines = (f"seed {scenario.seed}, policy {scenario.policy}, at {now:.3f} s: {what}", *history)
        super().__init__("\n".join(lines))
        self.rule = rule
        self.history = history

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.rule, str(self), self.history)


def _rebuild(rule: str, text: str, history: tuple[str, ...]) -> InvariantError:
    error = InvariantError.__new__(InvariantError)
    Exception.__init__(error, text)
    error.rule, error.history = rule, history
    return error


class Invariants:
    """Watches one run.

    Raises:
        InvariantError: from `stepped` or `ended`, at the first step after which something is wrong.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._history: deque[tuple[float, Message, list[Effect]]] = deque(maxlen=HISTORY)
        self._settled: set[int] = set()
        self._lied = False
        self._told_to_go: dict[int, float] = {}
        self._drained_heads: set[int] = set()

    def stepped(self, runner: "Runner", message: Message, effects: list[Effect]) -> None:
        """A step was made, and nothing of it is carried out yet."""
        self._remember(runner.clock.now, message, effects)
        for check in (self._sizes, self._budget, self._tasks_end_once, self._leaving, self._deadlines, self._leaks):
            for rule, what in check(runner, message, effects):
                raise self._error(rule, what, runner.clock.now)

    def waited(self, runner: "Runner") -> None:
        """The faults are long over: every task that a node could hold must have ended by now."""
        policy = self._scenario.policy
        counts_only = policy in ("vanilla", "fixed_elastic") and len(self._scenario.groups) > 1  # whatever tasks need
        if policy == "no" or counts_only or runner.failed:
            return
        left = [run.task for run in runner.runs.values() if not run.outcome and run.measured]
        if left and any(group.max for group in runner.plane.groups.values()):
            raise self._error("no task waits for ever", f"tasks {left} have not ended", runner.clock.now)

    def ended(self, runner: "Runner") -> None:
        """The pool was closed, and the world had time."""
        now = runner.clock.now
        if alive := list(runner.cloud.living):
            raise self._error("nothing is left", f"machines {alive} are still there after the end", now)
        if left := [machine.id for machine in runner.plane.reconciler.book]:
            raise self._error("nothing is left", f"the reconciler still waits for machines {left} after the end", now)
        if still := [run.task for run in runner.runs.values() if not run.outcome]:
            raise self._error("each task ends once", f"tasks {still} never ended", now)

    def wrap(self, message: Message, error: Exception, now: float) -> InvariantError:
        """An error that the control plane itself raised, with the history."""
        self._history.append((now, message, []))
        return self._error("no step fails", f"{type(error).__name__}: {error}", now)

    def _remember(self, now: float, message: Message, effects: list[Effect]) -> None:
        """Keep the step; of ticks that do nothing the last."""
        if self._history and isinstance(message, Tick) and not effects:
            _, before, done = self._history[-1]
            if isinstance(before, Tick) and not done:
                self._history.pop()
        self._history.append((now, message, effects))

    def _error(self, rule: str, what: str, now: float) -> InvariantError:
        return InvariantError(rule, what, self._scenario, now, tuple(_lines(self._history)))

    # The invariants. Each gives what it finds wrong.

    def _sizes(self, runner: "Runner", message: Message, effects: list[Effect]) -> Iterator[tuple[str, str]]:
        plane = runner.plane
        for name, group in plane.groups.items():
            effective, desired = plane.reconciler.effective(name), plane.desired.get(name, 0)
            if effective > group.max:
                yield "effective <= max", f"{effective} nodes of {name!r} are there or coming, over max {group.max}"
            if desired > group.max:
                yield "effective <= max", f"{desired} nodes of {name!r} are wanted, over max {group.max}"
        staged = Counter((machine.group, machine.stage) for machine in plane.reconciler.book)
        for (name, stage), there in staged.items():
            if there != (counted := plane.reconciler.book.count(name, stage)):
                yield "the counts are right", f"{counted} nodes of {name!r} count as {stage}, and {there} are"

    def _budget(self, runner: "Runner", message: Message, effects: list[Effect]) -> Iterator[tuple[str, str]]:
        ledger, now = runner.plane.ledger, runner.clock.now
        if ledger.budget is None:
            return
        asked = [effect for effect in effects if isinstance(effect, machines.Request)]
        committed = ledger.committed(now)
        if asked and committed > ledger.budget + _FINE:
            yield "spend <= budget", f"machines were asked for with ${committed:.4f} committed of ${ledger.budget:.4f}"
        actual = runner.cloud.cost()
        if self._scenario.faults.slow_terminate <= 2 and self._honest(runner) and actual > ledger.budget + _FINE:
            yield "spend <= budget", f"${actual:.4f} spent of ${ledger.budget:.4f}"

    def _honest(self, runner: "Runner") -> bool:
        """Whether the cloud has always done what it said, so that what is spent is what the ledger knows."""
        for faults in (self._scenario.faults, runner.cloud.faults):
            lies = (faults.lost_replies, faults.lost_terminates, faults.phantoms, faults.reordered)
            self._lied = self._lied or any(lies)
        return not self._lied and not any(act.kind == "fund" for act in self._scenario.acts)

    def _tasks_end_once(self, runner: "Runner", message: Message, effects: list[Effect]) -> Iterator[tuple[str, str]]:
        draining = {m.rank for m in runner.plane.reconciler.book if m.state == "STOP_REQUESTED"}
        for effect in effects:
            match effect:
                case tasks.Settle(task):
                    if task in self._settled:
                        yield "each task ends once", f"task {task} ended twice"
                    self._settled.add(task)
                case tasks.Dispatch(task, rank):
                    if task in self._settled:
                        yield "each task ends once", f"task {task} was sent to node {rank} after it ended"
                    run = runner.runs.get(task)  # None of a broadcast that begins in this step
                    if rank in draining and run is not None and not run.pinned:
                        yield "leaving nodes are no supply", f"task {task} was sent to node {rank}, which drains"
                case _:
                    pass
        for rank in runner.plane.tasks.ranks:
            node = runner.plane.tasks.node(rank)
            if node is not None and any(free < -_FINE for free in node.free.values()):
                yield "no node holds too much", f"node {rank} has {dict(node.free)} left"

    def _leaving(self, runner: "Runner", message: Message, effects: list[Effect]) -> Iterator[tuple[str, str]]:
        plane = runner.plane
        all_go = runner.closing or plane.budget_exhausted or not any(plane.desired.values())
        first = runner.at_rank.get(0)
        head = None if first is None else first.machine
        for effect in effects:
            match effect:
                case machines.Activate(number, 0):
                    head = number
                    self._drained_heads.discard(number)
                case machines.Drain(0) if head is not None and head not in self._drained_heads:
                    if not all_go:
                        yield "node 0 stays", f"node 0 is drained while {dict(plane.desired)} nodes are wanted"
                    self._drained_heads.add(head)
                case machines.Terminate(number) if (worker := runner.workers.get(number)) is not None:
                    lost = number in runner.told_lost or not worker.alive
                    if worker.holds and not lost and not runner.closing and not plane.budget_exhausted:
                        held = sorted(worker.holds)
                        yield "a node with a task stays", f"machine {number} is terminated while it holds tasks {held}"
                    if worker.rank == 0 and not lost and not all_go and number not in self._drained_heads:
                        yield "node 0 stays", f"node 0 is terminated while {dict(plane.desired)} nodes are wanted"
                case _:
                    pass

    def _deadlines(self, runner: "Runner", message: Message, effects: list[Effect]) -> Iterator[tuple[str, str]]:
        limits, now = runner.plane.settings.limits, runner.clock.now
        longest: Mapping[InstanceState, float] = {
            "REQUESTED": limits.request,
            "ALLOCATED": 0.0,
            "INSTALLING": limits.boot,
            "STOP_REQUESTED": limits.drain,
            "STOPPING": 0.0,
            "STOPPED": 0.0,
            "TERMINATING": limits.terminate,
            "ALLOCATION_FAILED": 0.0,
            "INSTALL_FAILED": 0.0,
            "TERMINATION_FAILED": 0.0,
        }
        for machine in runner.plane.reconciler.book:
            most = longest.get(machine.state)
            if most is not None and now - machine.since > most + SLACK:
                stayed = now - machine.since
                yield "every wait has an end", f"machine {machine.id} has been {machine.state} for {stayed:.0f} s"

    def _leaks(self, runner: "Runner", message: Message, effects: list[Effect]) -> Iterator[tuple[str, str]]:
        """A machine that the control plane forgot costs until somebody looks at the bill."""
        now, patience = runner.clock.now, runner.plane.settings.limits.terminate + SLACK
        for effect in effects:
            if isinstance(effect, machines.Terminate):
                self._told_to_go[effect.machine] = now
        known = runner.plane.reconciler.book.machines
        for number in runner.cloud.living:
            if number not in known and now - self._told_to_go.get(number, float("-inf")) > patience:
                yield "no machine is forgotten", f"machine {number} is there, and nobody knows"


def _lines(history: deque[tuple[float, Message, list[Effect]]]) -> Iterator[str]:
    for now, message, effects in history:
        yield f"  {now:10.3f}  {message}"
        for effect in effects[:SHOWN]:
            yield f"              -> {effect.event if isinstance(effect, Decided) else effect}"
        if len(effects) > SHOWN:
            yield f"              ... and {len(effects) - SHOWN} more"
