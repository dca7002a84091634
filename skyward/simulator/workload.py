"""Workloads: arrival, duration and needs of each task of a simulated day."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from skyward.errors import SpecError
from skyward.values.needs import NOTHING, Needs
from skyward.values.validation import closest

__all__ = ["WORKLOADS", "Distribution", "Task", "Workload"]

HOUR = 3600.0


class Task(NamedTuple):
    """One task: its arrival, in seconds from the start, its duration and its needs."""

    at: float
    seconds: float
    needs: Needs = NOTHING


@dataclass(frozen=True, slots=True)
class Distribution:
    """A random time, uniform over `mean - width .. mean + width`, in seconds."""

    mean: float
    width: float = 0.0

    def draw(self, random: Random) -> float:
        """Return a random value."""
        return self.mean if not self.width else random.uniform(self.mean - self.width, self.mean + self.width)

    @property
    def least(self) -> float:
        """The smallest possible value."""
        return self.mean - self.width

    @property
    def most(self) -> float:
        """The largest possible value."""
        return self.mean + self.width

    def __str__(self) -> str:
        return f"{self.mean:g}±{self.width:g}" if self.width else f"{self.mean:g}"


@dataclass(frozen=True, slots=True)
class Workload:
    """A shape of demand, and its size.

    Attributes:
        name: one of `WORKLOADS`.
        peak: tasks that run at once at the highest demand, if there are slots for them.
        hours: period during which tasks arrive.
        task_seconds: mean duration of a task; durations are log-normal.
        varies: the sigma of their distribution; 0 for equal durations.

    Raises:
        SpecError: there is no workload of that name.
    """

    name: str
    peak: int
    hours: float = 24.0
    task_seconds: float = 300.0
    varies: float = 0.6

    def __post_init__(self) -> None:
        if self.name not in WORKLOADS:
            raise SpecError(f"There is no workload {self.name!r}; {closest(self.name, WORKLOADS)}")

    def tasks(self, seed: int) -> list[Task]:
        """Return the tasks, in the order they arrive; the same for the same seed."""
        random = Random(f"{self.name} {seed}")
        tasks = [Task(at, self._seconds(random)) for at in WORKLOADS[self.name](self, random)]
        tasks.sort(key=lambda task: task.at)
        return tasks

    def _seconds(self, random: Random) -> float:
        return self.task_seconds * math.exp(random.gauss(-(self.varies**2) / 2, self.varies))

    def arrivals(self, random: Random, start: float, end: float, level: Callable[[float], float]) -> Iterator[float]:
        """Yield times between `start` and `end` such that `level(time)` tasks, up to `peak`, run at once on average."""
        fastest = self.peak / self.task_seconds
        at = start
        while (at := at + random.expovariate(fastest)) < end:
            if random.random() * self.peak < level(at):
                yield at


def _burst(work: Workload, random: Random) -> Iterator[float]:
    """Yield a trickle of a fiftieth of the peak and, every hour or two, a peak's worth of tasks within 30 s."""
    end = work.hours * HOUR
    trickle = max(1.0, work.peak / 50)
    yield from work.arrivals(random, 0, end, lambda at: trickle)
    at = random.uniform(0.02, 0.3) * min(HOUR, end)
    while at < end:
        yield from (at + random.uniform(0, 30) for _ in range(math.ceil(work.peak * random.uniform(0.3, 1.0))))
        at += random.uniform(1.0, 2.0) * HOUR


def _diurnal(work: Workload, random: Random) -> Iterator[float]:
    """Yield a day of tasks: a tenth of the peak at night, and the peak in the early afternoon."""
    top, least = 0.9 * work.peak, 0.1 * work.peak

    def level(at: float) -> float:
        of_day = at / (24 * HOUR)
        return least + (top - least) * math.pow(0.5 - 0.5 * math.cos(2 * math.pi * of_day), 1.5)

    yield from work.arrivals(random, 0, work.hours * HOUR, level)


def _sweep(work: Workload, random: Random) -> Iterator[float]:
    """Yield parameter sweeps: each submits all of its tasks at once, one to six for every slot of the peak."""
    at, end = 0.0, work.hours * HOUR
    while at < end:
        yield from [at] * math.ceil(work.peak * random.uniform(1.0, 6.0))
        at += random.uniform(1.5, 4.0) * HOUR


def _phases(work: Workload, random: Random) -> Iterator[float]:
    """Yield a pipeline: phases of half an hour to two hours, each of another width, some with nothing to do."""
    at, end, before = 0.0, work.hours * HOUR, -1.0
    while at < end:
        level = random.choice([share for share in (0.0, 0.1, 0.3, 0.6, 0.9) if share != before]) * work.peak
        until = min(end, at + random.uniform(0.5, 2.0) * HOUR)
        yield from work.arrivals(random, at, until, lambda _, level=level: level)  # type: ignore[misc]  # the loop's
        at, before = until, level / work.peak


WORKLOADS: Mapping[str, Callable[[Workload, Random], Iterator[float]]] = {
    "burst": _burst,
    "diurnal": _diurnal,
    "sweep": _sweep,
    "phases": _phases,
}
"""The workload shapes by name."""
