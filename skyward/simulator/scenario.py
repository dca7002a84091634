"""Scenarios: all inputs of a simulated run. The same scenario gives the same run."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import MachineSource
from skyward.control.decide.settings import PlaneSettings
from skyward.errors import SpecError
from skyward.scaling.snapshot import Group, Policy, TargetWait
from skyward.simulator.faults import NO_FAULTS, Faults
from skyward.simulator.workload import Distribution, Task, Workload
from skyward.specs.options import Options
from skyward.values.gangs import GangPlacement

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Action", "Scenario", "one_group"]

HOUR = 3600.0

PRODUCT = Options()
"""Options of a pool that sets none, which a scenario has unless it says otherwise."""


def one_group(least: int, most: int, slots: int = 1, price: float = 0.0) -> tuple[Group, ...]:
    """Return a pool of one group of nodes."""
    return (Group("nodes", least, most, slots, hourly_price=price),)


@dataclass(frozen=True, slots=True)
class Action:
    """A user action in the middle of a run: a resize, a cancel, a floor.

    Attributes:
        at: when, in seconds.
        kind: "resize" to `least:most` nodes of the first group, "cancel" of `most` tasks, the oldest first, a "floor"
            of `most` plain tasks, "fund" with `most` dollars, "budget" of `most` cents, 0 for none, "broadcast" of one
            task,
            "collective" of one task, run again up to `least` times, "pin" of `most` tasks to the
            node of rank `least`, "drain" of that node, "keep" of a value on it for `most` minutes, "use" of its values
            by a task, or "drop" of them, "gang" of `most` tasks with `placement`, "sold out" for `most` seconds of the
            group of number `least`, or "sold out at the first source" of its sources.
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
        policy: the scaling policy, or its name.
        boot: time from the launch of a machine to its first task.
        sources: sources of machines of each group, each of another provider.
        markup: price of each source in terms of the one before.
        existing: machines of a former process in the first group, which the pool attaches to.
        idle_timeout: seconds without a task before a node may be removed; None for the policy's own time.
        target_wait, waiting_cost, consolidate_within: for the policy; see `Snapshot`.
        grace: maximum time that the run continues after the last task arrives.
        retries: times that a task is requeued after its node was lost.
        tick: interval between checks of the nodes against the desired state.
        evaluation_gap: minimum interval between evaluations of the policy that new tasks trigger; None for that of
            every pool.
        max_nodes: maximum over all groups; None for no limit but theirs.
        checked: True to check every invariant after every step.
        limits: limits of the reconciler; None for those of a pool.
        actions: user actions.
        decision_log: file for the decision log; None for none.
    """

    work: Workload | tuple[Task, ...]
    groups: tuple[Group, ...]
    policy: str | Policy = str(PRODUCT.policy)
    boot: Distribution = field(default_factory=lambda: Distribution(60, 20))
    seed: int = 0
    budget: float | None = None
    sources: int = 1
    markup: float = 1.0
    existing: int = 0
    faults: Faults = NO_FAULTS
    cooldown: float = PRODUCT.autoscale_cooldown
    idle_timeout: float | None = PRODUCT.autoscale_idle_timeout
    target_wait: TargetWait = PRODUCT.target_wait
    waiting_cost: float | None = PRODUCT.waiting_cost
    consolidate_within: float = PRODUCT.consolidate_within
    grace: float = 24 * HOUR
    retries: int = PRODUCT.retry_on_interruption
    tick: float = PRODUCT.reconcile_tick_interval
    evaluation_gap: float | None = None
    max_nodes: int | None = PRODUCT.max_nodes
    checked: bool = False
    limits: Limits | None = None
    actions: tuple[Action, ...] = ()
    decision_log: Path | None = None

    def __post_init__(self) -> None:
        if self.boot.least < 0:
            raise SpecError(f"The boot time {self.boot} can be negative; the part after ± must not exceed the mean.")

    @property
    def policy_name(self) -> str:
        """Name of the scaling policy."""
        return self.policy if isinstance(self.policy, str) else self.policy.name

    def tasks(self) -> list[Task]:
        """Return the tasks, in the order they arrive."""
        return self.work.tasks(self.seed) if isinstance(self.work, Workload) else list(self.work)

    def settings(self) -> PlaneSettings:
        """Return the settings of the control plane."""
        sources: Mapping[str, tuple[MachineSource, ...]] = {
            group.name: tuple(
                MachineSource(
                    f"simulated {number}",
                    group.name,
                    position=number,
                    hourly_price=group.hourly_price * self.markup**number,
                )
                for number in range(self.sources)
            )
            for group in self.groups
        }
        first = self.groups[0].name
        settings = PlaneSettings(
            groups=self.groups,
            sources=sources,
            existing={first: {sources[first][0]: self.existing}} if self.existing else {},
            retries=self.retries,
            cooldown=self.cooldown,
            idle_timeout=self.idle_timeout,
            tick=self.tick,
            max_nodes=self.max_nodes,
            target_wait=self.target_wait,
            waiting_cost=self.waiting_cost,
            consolidate_within=self.consolidate_within,
            budget=self.budget,
            limits=self.limits or Limits(),
            recorded=self.decision_log is not None,
        )
        return settings if self.evaluation_gap is None else replace(settings, evaluation_gap=self.evaluation_gap)

    @property
    def boot_limit(self) -> float:
        """Seconds after which a machine that has not become a node is terminated, and another one launched."""
        return (self.limits or Limits()).boot

    def under(self, policy: str) -> "Scenario":
        """Return the same scenario under another policy, without a decision log."""
        return replace(self, policy=policy, decision_log=None)
