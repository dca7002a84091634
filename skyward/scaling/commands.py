"""What the policies of OpenGRIS Scaler see and answer: tasks, groups of workers, and starts and shutdowns of groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from skyward.errors import SpecError
from skyward.values.validation import number

__all__ = ["Command", "Rule", "Shutdown", "Start", "Tasks", "View", "WorkerGroup", "check_ratios", "least_queued"]

type Capabilities = Mapping[str, float]
"""What a task asks of its worker, or a worker offers. Only the names are compared."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """So many tasks, waiting or running, that ask the same."""

    count: int
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """Workers that start and stop together.

    Attributes:
        queued: tasks that each connected worker holds; empty while none is connected.
    """

    id: str
    queued: tuple[int, ...]
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class View:
    """One moment.

    Attributes:
        groups: those that may be shut down.
        static: capabilities of each worker that belongs to none of them.
        max_groups: most groups that there may be.
    """

    tasks: Sequence[Tasks] = ()
    groups: Sequence[WorkerGroup] = ()
    static: Sequence[Capabilities] = ()
    max_groups: int = 0

    @property
    def task_count(self) -> int:
        """Tasks in all."""
        return sum(tasks.count for tasks in self.tasks)

    @property
    def worker_count(self) -> int:
        """Connected workers in all."""
        return len(self.static) + sum(len(group.queued) for group in self.groups)

    @property
    def full(self) -> bool:
        """Whether no further group may start."""
        return len(self.groups) >= self.max_groups


@dataclass(frozen=True, slots=True)
class Start:
    """Start one group whose workers can do this. `tasks` and `workers` are what was compared."""

    capabilities: Capabilities
    tasks: int
    workers: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Shut this group down. `tasks` and `workers` are what was compared."""

    group: str
    tasks: int
    workers: int


type Command = Start | Shutdown


class Rule(Protocol):
    """When to start and to shut down. May keep what it did."""

    def commands(self, view: View) -> list[Command]:
        """What to do now."""


def least_queued(groups: Sequence[WorkerGroup]) -> WorkerGroup | None:
    """The group that holds the fewest tasks, the first among equals."""
    return min(groups, key=lambda group: sum(group.queued), default=None)


def check_ratios(up: object, down: object) -> None:
    """Check the numbers of tasks per worker above which a group starts and below which one stops.

    Raises:
        SpecError: one is no number of at least 0, or `down` is over `up`.
    """
    number(up, "up", zero=True)
    number(down, "down", zero=True)
    if isinstance(up, int | float) and isinstance(down, int | float) and down > up:
        raise SpecError(f"down must be at most up, but a group would stop below {down} and start above {up} tasks.")
