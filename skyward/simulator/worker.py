"""A simulated node: runs tasks for their durations, and reports their ends."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from skyward.control.decide.tasks.messages import Ended, MemberArrived, StartedOnNode
from skyward.scaling.snapshot import Group
from skyward.simulator.clock import Clock
from skyward.values.needs import NOTHING, Needs

__all__ = ["SimulatedRun", "SimulatedWorker"]

STOPPING = 0.1
"""Seconds that a task takes to stop."""


@dataclass(slots=True, eq=False)
class SimulatedRun:
    """State of one task.

    Attributes:
        waiting_since: when it arrived, or its node died; None while it runs.
        waited: total seconds.
        outcome: how it ended for its caller; empty until then.
        given_up: True if the run ended before it did.
        pinned: True if it can run on one node only.
        measured: True if it is part of the workload, rather than a user action.
    """

    task: int
    at: float
    seconds: float
    needs: Needs = NOTHING
    waiting_since: float | None = None
    waited: float = 0.0
    starts: int = 0
    outcome: str = ""
    given_up: bool = False
    pinned: bool = False
    measured: bool = True


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """The node of one machine.

    Attributes:
        reachable: True while its reports reach the control plane.
        busy_seconds: of slots, until the last task ended.
    """

    machine: int
    rank: int
    group: Group
    clock: Clock
    tell: Callable[[Ended | MemberArrived | StartedOnNode], None]
    alive: bool = True
    reachable: bool = True
    busy_seconds: float = 0.0
    running: dict[int, float] = field(default_factory=dict)
    _runs: dict[int, SimulatedRun] = field(default_factory=dict)
    _queue: deque[int] = field(default_factory=deque)

    def __len__(self) -> int:
        """Return the number of tasks that it holds."""
        return len(self._runs)

    @property
    def holds(self) -> dict[int, SimulatedRun]:
        """The tasks that it holds, by number."""
        return self._runs

    def send(self, run: SimulatedRun) -> None:
        """Accept a task; it starts when there is a slot."""
        if not self.alive:
            return
        self._runs[run.task] = run
        if len(self.running) < self.group.slots:
            self._start(run)
        else:
            self._queue.append(run.task)

    def arrive(self, task: int) -> None:
        """Report that a member of a collective is ready to meet the others, if it still runs."""
        if self.alive and task in self.running:
            self._report(MemberArrived(task, self.rank, f"node-{self.rank}"))

    def recall(self, task: int) -> None:
        """Return a task, unless it has started."""
        if self.alive and task in self._runs and task not in self.running:
            self._queue.remove(task)
            del self._runs[task]
            self._report(Ended(task, self.rank, "returned", 0.0))

    def stop(self, task: int) -> None:
        """Stop a task."""
        if not self.alive or task not in self._runs:
            return
        if task in self.running:
            self.clock.after(STOPPING, self._end, self._runs[task], self._runs[task].starts, "cancelled")
        else:
            self._queue.remove(task)
            del self._runs[task]
            self._report(Ended(task, self.rank, "cancelled", 0.0))

    def die(self) -> None:
        """End the node, and everything that runs on it."""
        now, self.alive = self.clock.now, False
        for since in self.running.values():
            self.busy_seconds += now - since
        for run in self._runs.values():
            if run.waiting_since is None:
                run.waiting_since = now
        self.running.clear()
        self._runs.clear()
        self._queue.clear()

    def _start(self, run: SimulatedRun) -> None:
        now = self.clock.now
        self.running[run.task] = now
        if run.waiting_since is not None:
            run.waited += now - run.waiting_since
            run.waiting_since = None
        run.starts += 1
        self.clock.at(now + run.seconds, self._end, run, run.starts, "value")

    def _end(self, run: SimulatedRun, start: int, outcome: str) -> None:
        if not self.alive or run.starts != start or run.task not in self.running:
            return
        since = self.running.pop(run.task)
        self.busy_seconds += self.clock.now - since
        del self._runs[run.task]
        ended = Ended(run.task, self.rank, outcome, self.clock.now - since)  # type: ignore[arg-type]  # one of its two
        if self._queue:
            following = self._runs[self._queue.popleft()]
            self._start(following)
            self._report(StartedOnNode(following.task))
        self._report(ended)

    def _report(self, message: Ended | MemberArrived | StartedOnNode) -> None:
        if self.reachable:
            self.clock.at(self.clock.now, self.tell, message)
