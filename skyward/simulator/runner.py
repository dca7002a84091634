"""Runs a scenario: the control plane of a real pool, under virtual time, against the simulated cloud."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol

from skyward.control.decide.machines import messages as machines
from skyward.control.decide.messages import (
    Decided,
    DrainNode,
    KeptAdded,
    Open,
    PlaneEffect,
    PlaneMessage,
    ReleaseKept,
    Resize,
    SetBudget,
    SetFloor,
    Tick,
)
from skyward.control.decide.plane import ControlPlane
from skyward.control.decide.recorded_autoscaler import RecordedAutoscaler
from skyward.control.decide.tasks import messages as tasks
from skyward.decision_log.file import DecisionFile
from skyward.decision_log.lines import header_of
from skyward.errors import SpecError
from skyward.kept.keep import KeptInfo
from skyward.kept.registry import KeptEntry
from skyward.scaling.registry import find_policy
from skyward.scaling.snapshot import Demand, GangDemand
from skyward.simulator.clock import Clock
from skyward.simulator.cloud import Cloud, CloudMachine
from skyward.simulator.measures import LoadSample, Measures, Result
from skyward.simulator.scenario import Action, Scenario
from skyward.simulator.worker import SimulatedRun, SimulatedWorker
from skyward.simulator.workload import Task
from skyward.values.needs import NOTHING, Needs

if TYPE_CHECKING:
    from skyward.values.gangs import GangPlacement

__all__ = ["RunChecker", "Simulation", "simulate"]

MEETING = 0.5
"""Seconds that a member of a collective takes until it is ready to meet the others."""

TAKING_OVER = 3.0
"""Seconds that a machine of a former process takes, once it has joined, to report what runs there."""

SAME_MOMENT = 1000
"""Ticks at one moment after which the control plane is considered to be in an endless loop."""

STOPPING = 600.0
"""Seconds that tasks cancelled at the end have to stop."""

CLOSING = 4 * 3600.0
"""Seconds that machines have to be gone after the end."""


class RunChecker(Protocol):
    """Checker of a run; its methods raise on a violation."""

    def stepped(self, runner: "Simulation", message: PlaneMessage, effects: list[PlaneEffect]) -> None:
        """Check a step, before its effects are executed."""

    def waited(self, runner: "Simulation") -> None:
        """Check the tasks after the maximum waiting time; unfinished ones are cancelled next."""

    def ended(self, runner: "Simulation") -> None:
        """Check the world after the pool was closed."""

    def wrap(self, message: PlaneMessage, error: Exception, now: float) -> Exception:
        """Return the exception to raise when the control plane raises `error`."""


def simulate(scenario: Scenario, progress: Callable[[int, int], None] | None = None) -> Result:
    """Run a scenario to its end.

    Args:
        progress: called now and then with the numbers of ended tasks and of all tasks.

    Raises:
        InvariantError: `scenario.checked`, and an invariant was violated.
    """
    watcher: RunChecker | None = None
    if scenario.checked:
        from skyward.simulator.invariants import Invariants

        watcher = Invariants(scenario)
    return Simulation(scenario, watcher, progress).run()


class Simulation:
    """One run. Everything is an event of `clock`, or a tick that the control plane requested.

    Attributes:
        runs: the tasks by number.
        workers: the nodes by machine.
        at_rank: the latest node of each rank.
        told_lost: machines that were reported lost to the control plane.
        gangs: the tasks of each gang.
        placements: the placement of each gang.
    """

    def __init__(
        self,
        scenario: Scenario,
        watcher: RunChecker | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.clock = Clock()
        self.plane = ControlPlane(scenario.settings(), find_policy(scenario.policy))
        self.random = Random(f"cloud {scenario.seed}")
        self.cloud = Cloud(
            self.clock, scenario.faults, scenario.boot, self.random, self._from_cloud, self._machine_ended
        )
        self.runs: dict[int, SimulatedRun] = {}
        self.workers: dict[int, SimulatedWorker] = {}
        self.at_rank: dict[int, SimulatedWorker] = {}
        self.told_lost: set[int] = set()
        self.gangs: dict[int, tuple[int, ...]] = {}
        self.placements: dict[int, GangPlacement] = {}
        self.closing = False
        self.steps = 0
        self._ending = False
        self._decision_file = None if scenario.decision_log is None else _decision_file(scenario.decision_log)
        self._watcher = watcher
        self._progress = progress
        self._tasks = scenario.tasks()
        self._coming = 0
        self._open_tasks = 0
        self._settled = 0
        self._last_settled = 0.0
        self._busy_seconds = 0.0
        self._drained: set[int] = set()
        self.horizon = self._tasks[-1].at if self._tasks else 0.0
        self._measures = Measures(scenario.groups, self.horizon + 1, scenario.boot.mean)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            tasks.Dispatch: self._send,
            tasks.Stop: lambda stop: self._at(stop.rank, SimulatedWorker.stop, stop.task),
            tasks.Recall: lambda recall: self._at(recall.rank, SimulatedWorker.recall, recall.task),
            tasks.Settle: self._settle,
            tasks.Member: self._member,
            machines.Launch: self._request,
            machines.Install: lambda install: self.cloud.install(install.machine),
            machines.Activate: self._activate,
            machines.Drain: self._drain,
            machines.Terminate: self._terminate,
            Decided: lambda decided: self._measures.decided(decided.event),
        }

    def run(self) -> Result:
        """Run the scenario to its end."""
        started = time.perf_counter()
        if self._decision_file is not None:
            self._decision_file.open(header_of("simulated", self.plane.settings, self.plane.policy, 0.0))
        self.start()
        self.advance(self.horizon + self.scenario.grace, self._has_work)
        self.advance(self.horizon, lambda: not self.failed)
        if self._watcher is not None:
            self._watcher.waited(self)
        self.close()
        if self._decision_file is not None:
            self._decision_file.close()
        return self._measures.sum_up(
            policy=self.scenario.policy_name,
            seed=self.scenario.seed,
            tasks=len(self._tasks),
            runs=self.runs.values(),
            machines=self.cloud.machines,
            busy_seconds=self._busy_seconds,
            ended_at=self._last_settled,
            now=self.clock.now,
            died=self.cloud.died,
            steps=self.steps,
            wall_seconds=time.perf_counter() - started,
        )

    def start(self) -> None:
        """Open the pool."""
        self.cloud.open()
        self.send(Open())
        for act in self.scenario.actions:
            self.clock.at(act.at, self.act, act)
        if self._tasks:
            self.clock.at(self._tasks[0].at, self._arrive)

    # Time.

    def advance(self, until: float, condition: Callable[[], bool] = lambda: True) -> None:
        """Process everything that is due by `until`, while `condition` holds."""
        clock, plane, ticks = self.clock, self.plane, 0
        tick, handled = plane.next_tick, plane.handled
        while condition():
            if plane.handled != handled:  # only a message changes when the next tick is due
                tick, handled = plane.next_tick, plane.handled
            event = clock.next
            if event is None or tick < event:
                if max(tick, clock.now) > until:
                    return
                ticks = ticks + 1 if tick <= clock.now else 0
                if ticks > SAME_MOMENT:
                    endless = RuntimeError("the control plane requests ticks without advancing time")
                    raise endless if self._watcher is None else self._watcher.wrap(Tick(), endless, clock.now)
                clock.wait(tick)
                self.send(Tick())
            elif event > until:
                return
            else:
                clock.step()

    def _has_work(self) -> bool:
        return not self.failed and (self._coming < len(self._tasks) or self._open_tasks > 0)

    @property
    def failed(self) -> bool:
        """True if the pool failed to open."""
        return self.plane.cannot_start and not self.plane.ready

    def close(self) -> None:
        """Cancel unfinished tasks, terminate every machine, and wait until they are gone."""
        self._ending = True
        if left := tuple(run.task for run in self.runs.values() if not run.outcome):
            for task in left:
                self.runs[task].given_up = True
            self.send(tasks.CancelTasks(left))
            self.advance(self.clock.now + STOPPING, lambda: self._open_tasks > 0)
        self.closing = True
        self._execute(tasks.CheckPrefetched(), self.plane.close(self.clock.now))
        self.advance(self.clock.now + CLOSING, lambda: bool(self.cloud.living) or not self.plane.reconciler.empty)
        if self._watcher is not None:
            self._watcher.ended(self)

    # Steps.

    def send(self, message: PlaneMessage) -> None:
        """Send a message to the control plane, and execute its effects."""
        try:
            effects = self.plane.handle(message, self.clock.now)
        except Exception as error:
            if self._watcher is None:
                raise
            raise self._watcher.wrap(message, error, self.clock.now) from error
        self._execute(message, effects)

    def _execute(self, message: Any, effects: list[PlaneEffect]) -> None:
        self.steps += 1
        if self._decision_file is not None and isinstance(self.plane.autoscaler, RecordedAutoscaler):
            self._decision_file.write(self.plane.autoscaler.take_records())
        if self._watcher is not None:
            self._watcher.stepped(self, message, effects)
        for effect in effects:
            if (act := self._handlers.get(type(effect))) is not None:
                act(effect)
        if self._measures.wants_sample(self.clock.now):
            self._sample()

    def _from_cloud(self, answer: Any) -> None:
        """Pass an answer of the cloud to the control plane."""
        if isinstance(answer, machines.Joined):
            known = self.plane.reconciler.table.machines.get(answer.machine)
            answer = replace(answer, reports=known is not None and known.adopted)
        if isinstance(answer, machines.Lost | machines.Failed):
            self.told_lost.add(answer.machine)
            if (worker := self.workers.get(answer.machine)) is not None:
                worker.reachable = False
        self.send(answer)

    def _from_worker(self, message: Any) -> None:
        self.send(message)

    # Tasks.

    def _arrive(self) -> None:
        """Submit the tasks of this moment, those of one shape together."""
        if self._ending:
            return
        all_tasks, first = self._tasks, self._coming
        needs, last = all_tasks[first].needs, first
        now = self.clock.now
        numbers: list[int] = []
        while last < len(all_tasks) and all_tasks[last].at <= now and all_tasks[last].needs is needs:
            numbers.append(self._add(all_tasks[last]))
            last += 1
        self._coming = last
        if last < len(all_tasks):
            self.clock.at(all_tasks[last].at, self._arrive)
        self.send(tasks.Submitted(tuple(numbers), needs=needs))

    def _add(self, task: Task, *, measured: bool = True) -> int:
        number = self.plane.tasks.number()
        now = self.clock.now
        self.runs[number] = SimulatedRun(number, now, task.seconds, task.needs, now, measured=measured)
        self._open_tasks += 1
        return number

    def _at(self, rank: int, do: Callable[[SimulatedWorker, int], None], task: int) -> None:
        if (worker := self.at_rank.get(rank)) is not None:
            do(worker, task)

    def _send(self, send: tasks.Dispatch) -> None:
        worker = self.at_rank.get(send.rank)
        if worker is not None:
            worker.send(self.runs[send.task])
            if send.collective is not None:
                self.clock.after(MEETING, worker.arrive, send.task)

    def _member(self, member: tasks.Member) -> None:
        now = self.clock.now
        self.runs[member.task] = SimulatedRun(member.task, now, 20.0, waiting_since=now, pinned=True, measured=False)
        self._open_tasks += 1

    def _settle(self, settled: tasks.Settle) -> None:
        run = self.runs[settled.task]
        run.outcome = settled.outcome
        self._open_tasks -= 1
        self._settled += 1
        self._last_settled = self.clock.now
        if run.waiting_since is not None:
            run.waited += self.clock.now - run.waiting_since
            run.waiting_since = None

    # Machines.

    def _request(self, request: machines.Launch) -> None:
        self._measures.launched(request.group, len(request.machines), self.clock.now)
        self.cloud.request(request)

    def _activate(self, activate: machines.Activate) -> None:
        if activate.machine in self.workers:
            self._drained.discard(activate.machine)
            self._measures.kept(activate.group)
            return
        group = self.plane.groups[activate.group]
        worker = SimulatedWorker(activate.machine, activate.rank, group, self.clock, self._from_worker)
        worker.alive = self.cloud.machines[activate.machine].alive
        self.workers[activate.machine] = self.at_rank[activate.rank] = worker
        self._measures.peak = max(self._measures.peak, len(self.cloud.living))
        if self.plane.reconciler.table.machines[activate.machine].adopted:
            self.clock.after(TAKING_OVER, self._take_over, worker)

    def _take_over(self, worker: SimulatedWorker) -> None:
        """Report the task that a former process left on a machine."""
        is_node = self.plane.reconciler.table.machine_of(worker.rank, "RUNNING", "STOP_REQUESTED") is not None
        if self.closing or not (is_node and worker.alive and self.at_rank.get(worker.rank) is worker):
            return
        number = self._add(Task(self.clock.now, 30.0), measured=False)
        self.runs[number].pinned = True
        self.runs[number].waiting_since = None
        self.send(tasks.TasksFound((number,), worker.rank, number))
        worker.send(self.runs[number])
        self.send(machines.TakenOver(worker.machine))

    def _drain(self, drain: machines.Drain) -> None:
        worker = self.at_rank[drain.rank]
        self._drained.add(worker.machine)
        if not self.plane.reconciler.table.machines[worker.machine].reclaimed:
            self._measures.shrunk(worker.group.name, self.clock.now)

    def _terminate(self, terminate: machines.Terminate) -> None:
        number = terminate.machine
        machine = self.cloud.machines.get(number)
        wanted = machine is not None and machine.alive and number not in self.told_lost and number not in self._drained
        if wanted and machine is not None and not self.closing:
            self._drained.add(number)
            self._measures.shrunk(machine.group, self.clock.now)
        if machine is not None and machine.alive and number not in self.told_lost and not self.closing:
            known = self.plane.reconciler.table.machines.get(number)
            if known is None or not known.reclaimed:
                self._measures.removed(number, self.clock.now - machine.since)
        if (worker := self.workers.get(number)) is not None:
            worker.reachable = False
        self.cloud.terminate(number)

    def _machine_ended(self, machine: CloudMachine, how: Literal["died", "terminated"]) -> None:
        worker = self.workers.pop(machine.id, None)
        if worker is not None and worker.alive:
            worker.die()
            self._busy_seconds += worker.busy_seconds

    # User actions.

    def submit(self, new: Sequence[Task], target: int | None = None, kept: tuple[str, ...] = ()) -> None:
        """Submit tasks of one shape in addition to those of the scenario; they are not measured.

        Args:
            new: the tasks.
            target: rank of the node where they must run.
            kept: keys of the kept values that they use.
        """
        now = self.clock.now
        numbers = tuple(self._add(Task(now, task.seconds, task.needs), measured=False) for task in new)
        for number in numbers:
            self.runs[number].pinned = target is not None
        self.send(tasks.Submitted(numbers, target, needs=new[0].needs, kept=kept))

    def act(self, act: Action) -> None:
        """Execute a user action."""
        if self._ending:
            return
        match act.kind:
            case "resize":
                self.send(Resize({self.scenario.groups[0].name: (act.least, act.most)}))
            case "floor":
                self.send(SetFloor((Demand(act.most),) if act.most else ()))
            case "fund":
                self.send(SetBudget(float(act.most)))
            case "budget":
                self.send(SetBudget(act.most / 100 if act.most else None))
            case "cancel":
                waiting = [run.task for run in self.runs.values() if not run.outcome]
                self.send(tasks.CancelTasks(tuple(waiting[: act.most])))
            case "broadcast":
                self.send(tasks.Broadcast(self.plane.tasks.number()))
            case "collective":
                terms = tasks.Together(procs=1, restarts=act.least, within=60.0)
                self.send(tasks.Broadcast(self.plane.tasks.number(), together=terms))
            case "gang":
                self._gang(act)
            case "pin":
                self.submit([Task(0.0, 30.0)] * act.most, act.least)
            case "sold out" | "sold out at the first source":
                group = self.scenario.groups[act.least].name
                only = self.plane.settings.sources[group][0] if act.kind != "sold out" else None
                self.cloud.sell_out(group, act.most, only)
            case "drain":
                self.send(DrainNode(act.least))
            case "keep":
                self._keep(act.least, act.most * 60.0)
            case "use" if keys := self._keys_on(act.least):
                self.submit([Task(0.0, 30.0)], act.least, keys)
            case "drop" if keys := self._keys_on(act.least):
                self.send(ReleaseKept(keys))
            case "use" | "drop":
                pass  # the node keeps nothing
            case _:
                raise ValueError(f"unknown action {act.kind!r}")

    def _gang(self, act: Action) -> None:
        """Submit a gang of `most` tasks; if `least` is not 0, every other one needs a GPU."""
        now = self.clock.now
        gang = self.plane.tasks.number()
        needs = tuple(Needs({"GPU": 1}) if act.least and place % 2 else NOTHING for place in range(act.most))
        numbers = tuple(self._add(Task(now, 20.0 + place, each)) for place, each in enumerate(needs))
        self.gangs[gang], self.placements[gang] = numbers, act.placement
        self.send(tasks.SubmitGang(gang, numbers, GangDemand(needs, act.placement)))

    def _keep(self, rank: int, keep_for: float) -> None:
        """Keep a value on a node, if it is up."""
        worker = self.at_rank.get(rank)
        is_node = self.plane.reconciler.table.machine_of(rank, "RUNNING", "STOP_REQUESTED") is not None
        if worker is None or not is_node or not (worker.alive and worker.reachable):
            return
        info = KeptInfo(f"value {self.steps}", "model", "Net", 100, keep_for)
        self.send(KeptAdded(KeptEntry(info, rank, "simulated", used_at=self.clock.now)))

    def _keys_on(self, rank: int) -> tuple[str, ...]:
        return tuple(entry.key for entry in self.plane.kept.on_node(rank))

    # Samples.

    def _sample(self) -> None:
        table, now = self.plane.reconciler.table, self.clock.now
        names = [group.name for group in self.scenario.groups]
        slots = max(group.slots for group in self.scenario.groups)
        demand = (self.plane.tasks.queued + self.plane.tasks.running) / slots
        desired = sum(self.plane.desired.values())
        active = sum(table.count(name, "active") for name in names)
        booting = sum(table.count(name, "booting") for name in names)
        self._measures.sample(LoadSample(now, demand, desired, active, booting))
        if self._progress is not None:
            self._progress(self._settled, len(self._tasks))


def _decision_file(path: Path) -> DecisionFile:
    def failed(reason: str) -> None:
        raise SpecError(f"The run was stopped: {reason}; give another file with `--decision-log`.")

    return DecisionFile(path, failed)
