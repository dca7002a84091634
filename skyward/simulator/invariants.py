"""Invariants of a pool checked against the simulated world after every step."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.machines.sources import QUOTA_PAUSE, MachineSource
from skyward.control.decide.messages import Decided, KeptAdded, PlaneEffect, PlaneMessage, ReleaseKept, Tick
from skyward.control.decide.tasks import messages as tasks
from skyward.errors import SkywardError
from skyward.simulator.scenario import Scenario

if TYPE_CHECKING:
    from skyward.control.decide.machines.instance import InstanceState
    from skyward.kept.registry import KeptEntry
    from skyward.simulator.runner import Simulation  # circular: the runner checks itself after each step

__all__ = ["InvariantError", "Invariants"]

HISTORY = 40
SHOWN = 12
SLACK = 60.0
"""Seconds of tolerance past a deadline: a few ticks."""

_FINE = 1e-6


class InvariantError(SkywardError):
    """A simulated pool violated an invariant. The message ends with the last steps.

    Attributes:
        rule: the invariant.
        history: the steps that led there, oldest first.
    """

    def __init__(self, rule: str, what: str, scenario: Scenario, now: float, history: tuple[str, ...]) -> None:
        lines = (f"seed {scenario.seed}, policy {scenario.policy_name}, at {now:.3f} s: {what}", *history)
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
    """Checks one run.

    Raises:
        InvariantError: from `stepped`, `waited` or `ended`, at the first violation.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._history: deque[tuple[float, PlaneMessage, list[PlaneEffect]]] = deque(maxlen=HISTORY)
        self._settled: set[int] = set()
        self._was_dishonest = False
        self._terminated_at: dict[int, float] = {}
        self._drained_heads: set[int] = set()
        self._kept: dict[str, tuple[int, KeptEntry]] = {}
        existing = scenario.existing  # machines of a former process are attached to whatever the maximum
        self._sizes_before = {scenario.groups[0].name: (existing, existing)}
        self._there_before = 0
        self._total_before = existing + sum(group.min for group in scenario.groups[1:])
        self._reclaimed: set[int] = set()
        self._requested: dict[int, MachineSource] = {}
        self._resting: dict[MachineSource, tuple[float, str]] = {}
        self._denied: set[tuple[str, int, str]] = set()

    def stepped(self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]) -> None:
        """Check a step before its effects are executed."""
        self._remember(runner.clock.now, message, effects)
        of_pool = (self._sizes, self._budget, self._tasks_end_once, self._gangs_together)
        of_machines = (self._reclaims, self._refusals, self._leaving, self._kept_values, self._deadlines, self._leaks)
        for check in (*of_pool, *of_machines, self._causes):
            for rule, what in check(runner, message, effects):
                raise self._violation(rule, what, runner.clock.now)

    def waited(self, runner: "Simulation") -> None:
        """Check that every task that a node could hold has ended, long after the last fault."""
        policy = self._scenario.policy_name
        ignores_needs = policy in ("vanilla", "fixed_elastic") and len(self._scenario.groups) > 1
        if policy == "no" or ignores_needs or runner.failed:
            return
        left = [run.task for run in runner.runs.values() if not run.outcome and (run.measured or run.pinned)]
        if left and any(group.max for group in runner.plane.groups.values()):
            raise self._violation("every task ends", f"tasks {left} have not ended", runner.clock.now)

    def ended(self, runner: "Simulation") -> None:
        """Check that nothing is left after the pool was closed."""
        now = runner.clock.now
        if alive := list(runner.cloud.living):
            raise self._violation("no leftovers", f"machines {alive} still exist after the end", now)
        if left := [machine.id for machine in runner.plane.reconciler.table]:
            raise self._violation("no leftovers", f"the reconciler still waits for machines {left} after the end", now)
        if still := [run.task for run in runner.runs.values() if not run.outcome]:
            raise self._violation("each task ends once", f"tasks {still} never ended", now)

    def wrap(self, message: PlaneMessage, error: Exception, now: float) -> InvariantError:
        """Return an error raised by the control plane, with the history."""
        self._history.append((now, message, []))
        return self._violation("no step fails", f"{type(error).__name__}: {error}", now)

    def _remember(self, now: float, message: PlaneMessage, effects: list[PlaneEffect]) -> None:
        """Add a step to the history; of consecutive ticks without effects, only the last."""
        if self._history and isinstance(message, Tick) and not effects:
            _, before, done = self._history[-1]
            if isinstance(before, Tick) and not done:
                self._history.pop()
        self._history.append((now, message, effects))

    def _violation(self, rule: str, what: str, now: float) -> InvariantError:
        return InvariantError(rule, what, self._scenario, now, tuple(_lines(self._history)))

    # The invariants. Each yields its violations: rule and description.

    def _causes(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
        """Find effects that do not carry the number of the message of their step."""
        for effect in effects:
            if effect.cause != runner.plane.handled:
                yield "every effect has its cause", f"{effect} is an effect of message #{runner.plane.handled}"

    def _sizes(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
        plane = runner.plane
        retained = plane.retained(runner.clock.now)
        # a machine of a former process stays until it is known what runs there
        unknown = any(machine.adopted for machine in plane.reconciler.table)
        for name, group in plane.groups.items():
            effective, desired = plane.reconciler.effective(name), plane.desired.get(name, 0)
            stay = retained[name].nodes if name in retained else 0
            before = self._sizes_before.get(name, (0, 0))  # above the maximum for kept values, until they are gone
            self._sizes_before[name] = effective, desired
            if effective > max(group.max, stay, before[0]) and not unknown:
                yield "effective <= max", f"{effective} nodes of {name!r} are active or booting, over max {group.max}"
            if desired > max(group.max, stay, before[1]):
                yield "effective <= max", f"{desired} nodes of {name!r} are desired, over max {group.max}"
            head = 0 if 0 in plane.reconciler.table.assignments else 1  # a missing one is asked for at the next look
            if desired < stay - head and not plane.budget_exhausted and not runner.closing:
                yield "nodes with kept values stay", f"{desired} nodes of {name!r} are desired, but {stay} must stay"
        if (most := self._scenario.max_nodes) is not None:
            kept = {name: each.nodes for name, each in retained.items()}  # they stay beside the others' minimums
            stay = sum(
                max(group.min, kept[name]) if name in kept else group.min for name, group in plane.groups.items()
            )
            total, before_total = sum(plane.desired.values()), self._total_before
            self._total_before = total
            if total > max(most, stay, before_total):
                yield "desired <= max_nodes", f"{dict(plane.desired)} nodes are desired, over {most} in total"
            there, before_there = sum(map(plane.reconciler.effective, plane.groups)), self._there_before
            self._there_before = there
            if there > max(most, stay, before_there, total) and not unknown:
                yield "desired <= max_nodes", f"{there} nodes are active or booting, over {most} in total"
        staged = Counter((machine.group, machine.stage) for machine in plane.reconciler.table)
        for (name, stage), actual in staged.items():
            if actual != (counted := plane.reconciler.table.count(name, stage)):
                yield "consistent counts", f"{counted} nodes of {name!r} are counted as {stage}, but {actual} are"

    def _budget(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
        ledger, now = runner.plane.ledger, runner.clock.now
        if ledger.budget is None:
            return
        known = runner.plane.reconciler.table.machines  # those of a former process cost money already
        launches = [effect for effect in effects if isinstance(effect, machines.Launch)]
        asked = [n for each in launches for n in each.machines if n not in known or not known[n].adopted]
        committed = ledger.committed(now)
        if asked and committed > ledger.budget + _FINE:
            yield "spend <= budget", f"machines were requested with ${committed:.4f} committed of ${ledger.budget:.4f}"
        actual = runner.cloud.cost()
        if self._scenario.faults.slow_terminate <= 2 and self._is_honest(runner) and actual > ledger.budget + _FINE:
            yield "spend <= budget", f"${actual:.4f} spent of ${ledger.budget:.4f}"

    def _is_honest(self, runner: "Simulation") -> bool:
        """Return whether the cloud has always told the truth, so that the ledger knows the real costs."""
        for faults in (self._scenario.faults, runner.cloud.faults):
            lies = (faults.lost_replies, faults.lost_terminates, faults.phantoms, faults.reordered)
            self._was_dishonest = self._was_dishonest or any(lies)
        return not self._was_dishonest and not any(act.kind in ("fund", "budget") for act in self._scenario.actions)

    def _tasks_end_once(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
        draining = {m.rank for m in runner.plane.reconciler.table if m.state == "STOP_REQUESTED"}
        for place, effect in enumerate(effects):
            match effect:
                case tasks.Settle(task):
                    if task in self._settled:
                        yield "each task ends once", f"task {task} ended twice"
                    self._settled.add(task)
                case tasks.Dispatch(task, rank):
                    if task in self._settled:
                        yield "each task ends once", f"task {task} was sent to node {rank} after it ended"
                    run = runner.runs.get(task)  # None for a broadcast that starts in this step
                    drained_later = any(isinstance(e, machines.Drain) and e.rank == rank for e in effects[place:])
                    if rank in draining and run is not None and not run.pinned and not drained_later:
                        yield "no dispatch to draining nodes", f"task {task} was sent to node {rank}, which drains"
                case _:
                    pass
        for rank in runner.plane.tasks.ranks:
            node = runner.plane.tasks.node(rank)
            if node is not None and any(free < -_FINE for free in node.free.values()):
                yield "no overcommitted node", f"node {rank} has {dict(node.free)} left"

    def _gangs_together(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
        """Find gangs of which only some members are sent, or sent to nodes that their placement excludes."""
        if not runner.gangs:
            return
        ranks = {effect.task: effect.rank for effect in effects if isinstance(effect, tasks.Dispatch)}
        for gang, members in runner.gangs.items():
            nodes = [ranks[task] for task in members if task in ranks]
            if not nodes:
                continue
            if len(nodes) < len(members):
                yield "members of a gang start together", f"only {len(nodes)} of {members} are sent"
            placement = runner.placements[gang]
            if (placement == "strict_pack" and len(set(nodes)) > 1) or (
                placement == "strict_spread" and len(set(nodes)) < len(nodes)
            ):
                yield "gangs keep to their placement", f"{members} with {placement!r} are sent to nodes {nodes}"

    def _reclaims(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
        """Find machines that still work after the notice of their end, and a head without a successor."""
        plane = runner.plane
        table = plane.reconciler.table
        if isinstance(message, machines.Reclaimed) and message.machine in table.machines:
            self._reclaimed.add(message.machine)
        if self._reclaimed:
            for machine in table:
                if machine.id in self._reclaimed and machine.state == "RUNNING":
                    yield "reclaimed nodes drain", f"machine {machine.id} takes tasks after its notice"
        for effect in effects:
            if not isinstance(effect, machines.NodeGone) or effect.rank or runner.closing or plane.budget_exhausted:
                continue
            group = runner.cloud.machines[effect.machine].group if effect.machine in runner.cloud.machines else ""
            if plane.desired.get(group) and 0 not in table.assignments and 0 not in plane.reconciler.given_up:
                yield "node 0 is replaced", f"there is no node 0, and {dict(plane.desired)} nodes are desired"

    def _refusals(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
        """Find requests that were refused before, for a reason that still holds.

        A refusal of a machine that is not waited for any more changes nothing: its request was given up before.
        """
        now = runner.clock.now
        match message:
            case machines.Refused(numbers, _, kind, retry_after):
                for source in {self._requested[number] for number in numbers if number in self._requested}:
                    if kind == "denied":
                        self._denied.add((source.provider, source.position, source.group))
                    pauses = {"capacity": runner.plane.settings.limits.no_capacity, "quota": QUOTA_PAUSE}
                    pauses |= {"rate": retry_after or 0.0, "impossible": inf}
                    until = now + pauses.get(kind, 0.0)
                    self._resting[source] = max(self._resting.get(source, (0.0, "")), (until, kind))
            case machines.Allocated(number):
                self._requested.pop(number, None)
            case _:
                pass
        for effect in effects:
            match effect:
                case machines.Terminate(number):
                    self._requested.pop(number, None)
                case machines.Launch(_, source, numbers):
                    self._requested.update(dict.fromkeys(numbers, source))
                    until, why = self._resting.get(source, (0.0, ""))
                    if (source.provider, source.position, source.group) in self._denied:
                        yield "refused requests rest", f"{source} is asked, which denied a request"
                    if now < until - _FINE:
                        yield "refused requests rest", f"{source} is asked {until - now:.1f} s early, after {why!r}"
                case _:
                    pass

    def _leaving(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
        plane = runner.plane
        is_ending = runner.closing or plane.budget_exhausted
        all_go = is_ending or not any(plane.desired.values())
        first = runner.at_rank.get(0)
        head = None if first is None else first.machine
        for effect in effects:
            match effect:
                case Decided(event=event) if not event.held_back:
                    # the first nodes for what waits may be launched in the same step
                    all_go = is_ending or not any(event.after.values())
                case machines.Activate(number, 0):
                    head = number
                    self._drained_heads.discard(number)
                case machines.Drain(0) if head is not None and head not in self._drained_heads:
                    if not all_go and head not in self._reclaimed:
                        yield "node 0 stays", f"node 0 is drained while {dict(plane.desired)} nodes are desired"
                    self._drained_heads.add(head)
                case machines.Terminate(number) if (worker := runner.workers.get(number)) is not None:
                    lost = number in runner.told_lost or not worker.alive
                    if worker.holds and not lost and not runner.closing and not plane.budget_exhausted:
                        held = sorted(worker.holds)
                        yield "busy nodes stay", f"machine {number} is terminated while it holds tasks {held}"
                    if worker.rank == 0 and not lost and not all_go and number not in self._drained_heads:
                        yield "node 0 stays", f"node 0 is terminated while {dict(plane.desired)} nodes are desired"
                case _:
                    pass

    def _kept_values(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
        """Find nodes that are removed while their kept values count; the budget and the end of the pool may do so."""
        now = runner.clock.now
        match message:
            case KeptAdded(entry):
                self._kept[entry.key] = runner.at_rank[entry.node].machine, entry
            case ReleaseKept(keys):
                for key in keys:
                    self._kept.pop(key, None)
            case _:
                pass
        for effect in effects if self._kept and not runner.closing and not runner.plane.budget_exhausted else ():
            match effect:
                case machines.Drain(_, number) if number in self._reclaimed:
                    pass
                case machines.Drain(_, number) | machines.Terminate(number):
                    worker = runner.workers.get(number)
                    is_lost = number in runner.told_lost or worker is None or not worker.alive
                    held = [e.key for machine, e in self._kept.values() if machine == number and e.holds_node(now)]
                    if held and not is_lost:
                        yield "nodes with kept values stay", f"machine {number}, which keeps {held}: {effect}"
                case _:
                    pass

    def _deadlines(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
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
        for machine in runner.plane.reconciler.table:
            most = longest.get(machine.state)
            if most is not None and now - machine.since > most + SLACK:
                stayed = now - machine.since
                yield "every state has a deadline", f"machine {machine.id} has been {machine.state} for {stayed:.0f} s"

    def _leaks(
        self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]
    ) -> Iterator[tuple[str, str]]:
        """Find orphans: machines that exist and are unknown to the control plane."""
        now, patience = runner.clock.now, runner.plane.settings.limits.terminate + SLACK
        for effect in effects:
            if isinstance(effect, machines.Terminate):
                self._terminated_at[effect.machine] = now
        known = runner.plane.reconciler.table.machines
        for number in runner.cloud.living:
            if number not in known and now - self._terminated_at.get(number, float("-inf")) > patience:
                yield "no orphans", f"machine {number} exists and is unknown to the control plane"


def _lines(history: deque[tuple[float, PlaneMessage, list[PlaneEffect]]]) -> Iterator[str]:
    for now, message, effects in history:
        yield f"  {now:10.3f}  {message}"
        for effect in effects[:SHOWN]:
            yield f"              -> {effect.event if isinstance(effect, Decided) else effect}"
        if len(effects) > SHOWN:
            yield f"              ... and {len(effects) - SHOWN} more"
