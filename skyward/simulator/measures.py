"""Measurements of a run."""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from skyward.events.decisions import DecisionEvent
from skyward.scaling.snapshot import Group
from skyward.simulator.cloud import CloudMachine
from skyward.simulator.worker import SimulatedRun

__all__ = ["LoadSample", "Measures", "Result", "percentile"]

HOUR = 3600.0
THRASH = 300.0
"""Seconds within which a launch counts as thrashing after a scale-down."""

SAMPLES = 2000


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The pool at one moment, in nodes.

    Attributes:
        at: seconds.
        demand: nodes that would run every task at once.
        desired, active, booting: numbers of nodes.
    """

    at: float
    demand: float
    desired: int
    active: int
    booting: int


@dataclass(frozen=True, slots=True)
class Result:
    """Results of a run. Times in seconds, money in USD.

    Attributes:
        finished, failed, unfinished: numbers of tasks that gave a result, ended without one, and did not end.
        makespan: from the first task to the end of the last; None if some did not end.
        node_hours: paid hours of nodes.
        wait_p50, wait_p99, wait_mean: waiting times over all tasks; tasks that did not end count with their time so
            far.
        over_provision: share of the paid slot hours without a task, including boots.
        thrash: launches that follow a removal: those within five minutes of a surplus node of the same group that was
            drained or terminated, each such node counted once. It also counts nodes that were idle for long.
        short_lived: launches that were wasted: machines that the pool itself terminated, while it was open, less than
            two mean boot times after they were allocated. Machines that the cloud ended or that failed do not count.
        turns: times that the desired number of nodes changed its direction.
        launches, died: numbers of machines.
        decisions: number of decisions that changed the desired number of nodes.
        steps, wall_seconds: of the simulator itself.
    """

    policy: str
    seed: int
    tasks: int
    finished: int
    failed: int
    unfinished: int
    makespan: float | None
    node_hours: float
    cost: float
    wait_p50: float
    wait_p99: float
    wait_mean: float
    over_provision: float
    thrash: int
    short_lived: int
    turns: int
    launches: int
    died: int
    peak: int
    decisions: int
    steps: int
    wall_seconds: float
    samples: tuple[LoadSample, ...] = field(default=(), repr=False)

    def row(self) -> dict[str, object]:
        """Return the figures by name, without the samples."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "samples"}


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that `share` of `values` do not exceed; 0 for no values."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


class Measures:
    """Collects the measurements of a run."""

    def __init__(self, groups: tuple[Group, ...], horizon: float, boot: float) -> None:
        self.peak = self.thrash = self.turns = self.decisions = 0
        self.samples: list[LoadSample] = []
        self._slots = {group.name: group.slots for group in groups}
        self._gap = max(1.0, horizon / SAMPLES)
        self._next_sample = 0.0
        self._direction = 0
        self._short = 2 * boot
        self._short_lived: set[int] = set()
        self._went: dict[str, deque[float]] = {group.name: deque() for group in groups}

    def decided(self, event: DecisionEvent) -> None:
        """Record a decision."""
        change = event.change
        if change and not event.held_back:
            self.decisions += 1
            direction = 1 if change > 0 else -1
            self.turns += bool(self._direction) and direction != self._direction
            self._direction = direction

    def shrunk(self, group: str, now: float) -> None:
        """Record the removal of a surplus node."""
        self._went[group].append(now)

    def kept(self, group: str) -> None:
        """Record that a removal was undone."""
        if self._went[group]:
            self._went[group].pop()

    def removed(self, machine: int, lived: float) -> None:
        """Record that the pool terminates a machine which has existed for `lived` seconds."""
        if lived < self._short:
            self._short_lived.add(machine)

    def launched(self, group: str, count: int, now: float) -> None:
        """Record the launch of machines."""
        went = self._went[group]
        while went and now - went[0] > THRASH:
            went.popleft()
        again = min(count, len(went))
        self.thrash += again
        for _ in range(again):
            went.popleft()

    def wants_sample(self, now: float) -> bool:
        """Return whether the next sample is due."""
        return now >= self._next_sample

    def sample(self, sample: LoadSample) -> None:
        """Add a sample."""
        self._next_sample = sample.at + self._gap
        self.samples.append(sample)

    def sum_up(
        self,
        *,
        policy: str,
        seed: int,
        tasks: int,
        runs: Iterable[SimulatedRun],
        machines: Mapping[int, CloudMachine],
        busy_seconds: float,
        ended_at: float,
        now: float,
        died: int,
        steps: int,
        wall_seconds: float,
    ) -> Result:
        """Return the results of the run."""
        measured = [run for run in runs if run.measured]
        waits = [run.waited for run in measured]
        unfinished = tasks - len(measured) + sum(run.given_up for run in measured)
        seconds = {m.id: (now if m.until is None else m.until) - m.since for m in machines.values()}
        slot_seconds = sum(seconds[m.id] * self._slots[m.group] for m in machines.values())
        first = min((run.at for run in measured), default=0.0)
        return Result(
            policy=policy,
            seed=seed,
            tasks=tasks,
            finished=sum(run.outcome == "value" and not run.given_up for run in measured),
            failed=sum(run.outcome != "value" and not run.given_up for run in measured),
            unfinished=unfinished,
            makespan=None if unfinished else ended_at - first,
            node_hours=sum(seconds.values()) / HOUR,
            cost=sum(machine.cost(now) for machine in machines.values()),
            wait_p50=percentile(waits, 0.5),
            wait_p99=percentile(waits, 0.99),
            wait_mean=sum(waits) / len(waits) if waits else 0.0,
            over_provision=1 - busy_seconds / slot_seconds if slot_seconds else 0.0,
            thrash=self.thrash,
            short_lived=len(self._short_lived),
            turns=self.turns,
            launches=len(machines),
            died=died,
            peak=self.peak,
            decisions=self.decisions,
            steps=steps,
            wall_seconds=wall_seconds,
            samples=tuple(self.samples),
        )
