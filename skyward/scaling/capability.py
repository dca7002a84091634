"""Scaling by tasks per capable worker, for each set of capabilities separately."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from skyward.scaling.scaler.commands import (
    HEARTBEAT,
    ClusterState,
    ScalerCommand,
    ShutDownGroup,
    StartGroup,
    WorkerGroup,
    check_ratios,
    least_queued,
)
from skyward.scaling.snapshot import Decision, Snapshot
from skyward.scaling.translation import decide

__all__ = ["Capability", "CapabilityRule"]

type CapabilityNames = frozenset[str]


@dataclass(frozen=True, slots=True)
class CapabilityRule:
    """`vanilla` for each set of capabilities, with all workers that have them; starts precede shutdowns."""

    up: float = 5
    down: float = 0.5

    def commands(self, view: ClusterState) -> list[ScalerCommand]:
        """Return a start for each set that needs one; if none does, a shutdown for each set that can spare one."""
        workers: dict[CapabilityNames, int] = {}
        for offered in view.static:
            workers[frozenset(offered)] = workers.get(frozenset(offered), 0) + 1
        groups: dict[CapabilityNames, list[WorkerGroup]] = {}
        for group in view.groups:
            names = frozenset(group.capabilities)
            groups.setdefault(names, []).append(group)
            workers[names] = workers.get(names, 0) + len(group.queued)
        return list(self._starts(view, workers, groups)) or list(self._shutdowns(view, workers, groups))

    def _starts(
        self,
        view: ClusterState,
        workers: Mapping[CapabilityNames, int],
        groups: Mapping[CapabilityNames, Sequence[WorkerGroup]],
    ) -> Sequence[ScalerCommand]:
        asked: dict[CapabilityNames, StartGroup] = {}
        for tasks in view.tasks:
            names = frozenset(tasks.capabilities)
            known = asked.get(names)
            if tasks.count:
                asked[names] = StartGroup(
                    known.capabilities if known else tasks.capabilities,
                    tasks.count + (known.tasks if known else 0),
                    sum(count for offered, count in workers.items() if names <= offered),
                    self.up,
                )
        if view.full:
            return ()
        return [
            start
            for names, start in asked.items()
            if (start.tasks / start.workers > self.up if start.workers else not any(names <= each for each in groups))
        ]

    def _shutdowns(
        self,
        view: ClusterState,
        workers: Mapping[CapabilityNames, int],
        groups: Mapping[CapabilityNames, Sequence[WorkerGroup]],
    ) -> Sequence[ScalerCommand]:
        commands = []
        for names, members in groups.items():
            able = sum(count for offered, count in workers.items() if names <= offered)
            waiting = sum(tasks.count for tasks in view.tasks if names >= frozenset(tasks.capabilities))
            least = least_queued(members)
            if not able or least is None or waiting / able >= self.down:
                continue
            left = able - len(least.queued)
            if waiting / left > self.up if left else waiting:
                continue  # it would be started again at once, or no worker could run the waiting tasks
            commands.append(ShutDownGroup(least.id, waiting, able, self.down))
        return commands


@dataclass(frozen=True, slots=True)
class Capability:
    """Scaler's `capability`: `vanilla` for the tasks of each set of capabilities, on the nodes that have them.

    A resource that a task requests counts as a capability of that name.

    Attributes:
        up, down: tasks per slot above which a node is added, and below which one is removed.
        name: name of the policy.
        interval: seconds between decisions while nothing happens; None for the pool's cooldown.

    Raises:
        SpecError: a ratio is not a number of at least 0, or `down` is greater than `up`.

    Example:
        >>> sky.Compute(nodes=(0, 8), policy=sky.scaling.Capability(up=10, down=1))
    """

    up: float = 5
    down: float = 0.5
    name: str = field(default="capability", kw_only=True)
    interval: float | None = field(default=HEARTBEAT, kw_only=True)

    def __post_init__(self) -> None:
        check_ratios(self.up, self.down)

    def decide(self, snapshot: Snapshot) -> Decision:
        """Return the decision for `snapshot`, within the bounds of every group and of `max_nodes`."""
        return decide(snapshot, CapabilityRule(self.up, self.down))
