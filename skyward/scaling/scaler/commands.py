"""Inputs and outputs of the policies of OpenGRIS Scaler: tasks, groups of workers, start and shutdown commands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from skyward.errors import SpecError
from skyward.values.validation import number

__all__ = [
    "HEARTBEAT",
    "ClusterState",
    "Rule",
    "ScalerCommand",
    "ShutDownGroup",
    "StartGroup",
    "Tasks",
    "WorkerGroup",
    "check_ratios",
    "least_queued",
]

HEARTBEAT = 2.0
"""Seconds between decisions: Scaler makes one at each heartbeat of an adapter."""

type Capabilities = Mapping[str, float]
"""Capabilities that a task requires or a worker offers. Only the names are compared."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """Number of tasks, waiting or running, with equal requirements."""

    count: int
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """Workers that start and stop together.

    Attributes:
        queued: number of tasks of each connected worker; empty while none is connected.
    """

    id: str
    queued: tuple[int, ...]
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class ClusterState:
    """State of a cluster at one moment.

    Attributes:
        groups: groups that may be shut down.
        static: capabilities of each worker outside these groups.
        max_groups: maximum number of groups.
    """

    tasks: Sequence[Tasks] = ()
    groups: Sequence[WorkerGroup] = ()
    static: Sequence[Capabilities] = ()
    max_groups: int = 0

    @property
    def task_count(self) -> int:
        """Total number of tasks."""
        return sum(tasks.count for tasks in self.tasks)

    @property
    def worker_count(self) -> int:
        """Total number of connected workers."""
        return len(self.static) + sum(len(group.queued) for group in self.groups)

    @property
    def full(self) -> bool:
        """True if no further group may start."""
        return len(self.groups) >= self.max_groups


@dataclass(frozen=True, slots=True)
class StartGroup:
    """Start one group with these capabilities.

    Attributes:
        tasks, workers: the compared numbers.
        limit: tasks per worker above which a group is started.
    """

    capabilities: Capabilities
    tasks: int
    workers: int
    limit: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class ShutDownGroup:
    """Shut this group down.

    Attributes:
        tasks, workers: the compared numbers.
        limit: tasks per worker below which a group is shut down.
    """

    group: str
    tasks: int
    workers: int
    limit: float = field(default=0.0, compare=False)


type ScalerCommand = StartGroup | ShutDownGroup


class Rule(Protocol):
    """Rule that starts groups and shuts them down. May have state."""

    def commands(self, view: ClusterState) -> list[ScalerCommand]:
        """Return the commands for this moment."""


def least_queued(groups: Sequence[WorkerGroup]) -> WorkerGroup | None:
    """Return the group with the fewest tasks; ties go to the first."""
    return min(groups, key=lambda group: sum(group.queued), default=None)


def check_ratios(up: object, down: object) -> None:
    """Check the numbers of tasks per worker above which a group starts and below which one stops.

    Raises:
        SpecError: one is not a number of at least 0, or `down` is greater than `up`.
    """
    number(up, "up", zero=True)
    number(down, "down", zero=True)
    if isinstance(up, int | float) and isinstance(down, int | float) and down > up:
        raise SpecError(f"down must be at most up, but a group would stop below {down} and start above {up} tasks.")
