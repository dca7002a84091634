"""Scenarios: all inputs of a simulated run. The same scenario gives the same run."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.settings import PlaneSettings
from skyward.errors import SpecError
from skyward.scaling.snapshot import Group
from skyward.simulator.faults import NO_FAULTS, Faults
from skyward.simulator.workload import Distribution, Task, Workload
from skyward.values.gangs import GangPlacement

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Action", "Scenario", "one_group"]

HOUR = 3600.0
LOOK_GAP = 1.0
"""Seconds between evaluations that new tasks trigger: simulated events are further apart than real ones."""


def one_group(least: int, most: int, slots: int = 1, price: float = 0.0) -> tuple[Group, ...]:
    """Return a pool of one group of nodes."""
    return (Group("nodes", least, most, slots, hourly_price=price),)


@dataclass(frozen=True, slots=True)
class Action:
    """A user action in the middle of a run: a resize, a cancel, a floor.

    Attributes:
        at: when, in seconds.
        kind: "resize" to `least:most` nodes of the first group, "cancel" of `most` tasks, the oldest first, a "floor"
            of `most` plain tasks, "fund" with `most` dollars, "broadcast" of one task,
            "collective" of one task, run again up to `least` times, "pin" of `most` tasks to the
            node of rank `least`, "drain" of that node, "keep" of a value on it for `most` minutes, "use" of its values
            by a task, or "drop" of them, or "gang" of `most` tasks with `placement`.
        placement: how a gang is spread over the nodes.
    """

    at: float
    kind: str
    least: int = 0
    most: int = 0
    placement: GangPlacement = "pack"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run. Times in seconds, money in USD.

    Attributes:
        work: the tasks, or the workload that generates them.
        policy: name of the scaling policy.
        boot: time from the launch of a machine to its first task.
        sources: sources of machines of each group, each of another provider, at the same price.
        grace: maximum time that the run continues after the last task arrives.
        checked: True to check every invariant after every step.
        limits: limits of the reconciler; None for its defaults.
        actions: user actions.
    """

    work: Workload | tuple[Task, ...]
    groups: tuple[Group, ...]
    policy: str = "pressure"
    boot: Distribution = field(default_factory=lambda: Distribution(60, 20))
    seed: int = 0
    budget: float | None = None
    sources: int = 1
    faults: Faults = NO_FAULTS
    cooldown: float = 30.0
    idle_timeout: float = 60.0
    grace: float = 24 * HOUR
    retries: int = 1000
    checked: bool = False
    limits: Limits | None = None
    actions: tuple[Action, ...] = ()

    def __post_init__(self) -> None:
        if self.boot.least < 0:
            raise SpecError(f"The boot time {self.boot} can be negative; the part after ± must not exceed the mean.")

    def tasks(self) -> list[Task]:
        """Return the tasks, in the order they arrive."""
        return self.work.tasks(self.seed) if isinstance(self.work, Workload) else list(self.work)

    def settings(self) -> PlaneSettings:
        """Return the settings of the control plane."""
        sources: Mapping[str, tuple[MachineSource, ...]] = {
            group.name: tuple(
                MachineSource(f"simulated {number}", group.name, position=number, hourly_price=group.hourly_price)
                for number in range(self.sources)
            )
            for group in self.groups
        }
        return PlaneSettings(
            groups=self.groups,
            sources=sources,
            retries=self.retries,
            cooldown=self.cooldown,
            idle_timeout=self.idle_timeout,
            budget=self.budget,
            evaluation_gap=LOOK_GAP,
            limits=self.limits or Limits(concurrent_launches=1000),
        )

    def under(self, policy: str) -> "Scenario":
        """Return the same scenario under another policy."""
        return replace(self, policy=policy)
