"""Run times of tasks by function: a mean of the latest runs, and the ages of those in progress. Decides only; no I/O.

A run counts from when it starts on a slot, so the time that a prefetched task waits on its node is no part of it.
"""

from collections import OrderedDict
from dataclasses import dataclass
from math import sqrt

from skyward.scaling.snapshot import RunningTasks

__all__ = ["RunTimes"]

WEIGHT = 0.1
"""Weight of the latest run in the mean of many."""

KEPT = 1000
"""Functions without a run in progress whose run times are kept: a notebook defines new ones all the time."""


@dataclass(slots=True)
class _Runs:
    """Runs of one function.

    Attributes:
        mean: seconds; None while no run has ended.
        ended: number of runs that have ended.
        running: number of runs in progress.
        first: start of the first run since none was in progress.
        total, squares: sums of their starts, relative to `first`, and of the squares of these.
    """

    mean: float | None = None
    ended: int = 0
    running: int = 0
    first: float = 0.0
    total: float = 0.0
    squares: float = 0.0


class RunTimes:
    """Run times by function, the one whose runs started or ended least recently first."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, _Runs] = OrderedDict()
        self._running: set[str] = set()

    def mean(self, function: str) -> float | None:
        """Return the mean run time of a function, in seconds; None while none of its runs has ended."""
        runs = self._runs.get(function)
        return None if runs is None else runs.mean

    def age(self, function: str, now: float) -> float:
        """Return the seconds for which a function has been running; 0 if it is not."""
        runs = self._runs.get(function)
        return now - runs.first if runs is not None and runs.running else 0.0

    def started(self, function: str, now: float) -> None:
        """Record the start of a run."""
        runs = self._of(function)
        if not runs.running:
            runs.first, runs.total, runs.squares = now, 0.0, 0.0
            self._running.add(function)
        since = now - runs.first
        runs.running += 1
        runs.total += since
        runs.squares += since * since

    def stopped(self, function: str, started_at: float) -> None:
        """Record that a run is no longer in progress, however it ended."""
        runs = self._of(function)
        since = started_at - runs.first
        runs.running -= 1
        runs.total -= since
        runs.squares -= since * since
        if not runs.running:
            self._running.discard(function)

    def ended(self, function: str, seconds: float) -> None:
        """Add a run to the mean. A second run that is shorter replaces the first, which may have imported modules."""
        runs = self._of(function)
        runs.ended += 1
        if runs.mean is None or (runs.ended == 2 and seconds < runs.mean):
            runs.mean = seconds
        else:
            runs.mean += max(WEIGHT, 1 / runs.ended) * (seconds - runs.mean)

    def running(self, now: float) -> tuple[RunningTasks, ...]:
        """Return the runs in progress, by function."""
        return tuple(self._in_progress(self._runs[function], now) for function in sorted(self._running))

    def _in_progress(self, runs: _Runs, now: float) -> RunningTasks:
        mean = runs.total / runs.running
        variance = max(0.0, runs.squares / runs.running - mean * mean)
        return RunningTasks(runs.running, runs.mean, max(0.0, now - runs.first - mean), sqrt(variance))

    def _of(self, function: str) -> _Runs:
        runs = self._runs.get(function)
        if runs is not None:
            self._runs.move_to_end(function)
            return runs
        runs = self._runs[function] = _Runs()
        if len(self._runs) > KEPT + len(self._running):
            oldest = next(name for name, each in self._runs.items() if not each.running and each is not runs)
            del self._runs[oldest]
        return runs
