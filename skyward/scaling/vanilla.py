"""Scaling by tasks per worker, regardless of their needs."""

from dataclasses import dataclass, field

from skyward.scaling.scaler.commands import (
    HEARTBEAT,
    ClusterState,
    ScalerCommand,
    ShutDownGroup,
    StartGroup,
    check_ratios,
    least_queued,
)
from skyward.scaling.snapshot import Decision, Snapshot
from skyward.scaling.translation import decide

__all__ = ["Vanilla", "VanillaRule"]


@dataclass(frozen=True, slots=True)
class VanillaRule:
    """Adds a group above `up` tasks per worker, or with tasks and no worker; removes one below `down`."""

    up: float = 10
    down: float = 1

    def commands(self, view: ClusterState) -> list[ScalerCommand]:
        """Return at most one command."""
        tasks, workers = view.task_count, view.worker_count
        if tasks / workers > self.up if workers else tasks:
            return [] if view.full else [StartGroup({}, tasks, workers, self.up)]
        if workers and tasks / workers < self.down and (least := least_queued(view.groups)):
            return [ShutDownGroup(least.id, tasks, workers, self.down)]
        return []


@dataclass(frozen=True, slots=True)
class Vanilla:
    """Scaler's `vanilla`: one node more above `up` tasks per slot, one less below `down`.

    Attributes:
        up, down: tasks per slot above which a node is added, and below which one is removed.
        name: name of the policy.
        interval: seconds between decisions while nothing happens; None for the pool's cooldown.

    Raises:
        SpecError: a ratio is not a number of at least 0, or `down` is greater than `up`.

    Example:
        >>> sky.Compute(nodes=(1, 8), policy=sky.scaling.Vanilla(up=5, down=0.5))
    """

    up: float = 10
    down: float = 1
    name: str = field(default="vanilla", kw_only=True)
    interval: float | None = field(default=HEARTBEAT, kw_only=True)

    def __post_init__(self) -> None:
        check_ratios(self.up, self.down)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Return the decision for `snapshot`, within the bounds of every group and of `max_nodes`."""
        return decide(snapshot, VanillaRule(self.up, self.down))
