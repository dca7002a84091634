"""Settings of a control plane."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import MachineSource
from skyward.scaling.snapshot import CONSOLIDATE_WITHIN, Group, TargetWait

__all__ = ["PlaneSettings", "resumed"]


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """Settings of a control plane. Times in seconds.

    Attributes:
        sources: sources of machines of each group, the preferred one first.
        thresholds: active nodes of each group before work starts; the default is the group's minimum.
        existing: machines of each group, by source, that exist before the pool opens: those of a former process.
        ranks: ranks that the nodes of existing machines have, by group and source: of the first machines of each.
        desired: nodes of each group that are desired at first, in a pool that is attached to.
        retries: times that a task is requeued after its node was lost.
        cooldown: of the autoscaler.
        idle_timeout: seconds without a task before a node may be removed; None for the policy's own time.
        target_wait, waiting_cost, consolidate_within: for the policy; see `Snapshot`.
        tick: interval between checks of the nodes against the desired state, and of the deadlines.
        max_nodes: maximum over all groups; None for no limit but theirs.
        budget: USD in total; None for no limit.
        evaluation_gap: minimum interval between evaluations of the policy that new tasks trigger.
        recorded: True to record what the autoscaler is told and decides, for a decision log.
        positions: positions of the sources of each group's spec.
        earlier: groups as they were, by their names and the positions of the sources of earlier specs, for the outdated
            nodes of a pool that is attached to.
        before: sources from which the nodes of a group were launched before an update that a former process had begun.
        fell_back: those of these groups whose update has ended: their nodes are launched from these sources again.
    """

    groups: tuple[Group, ...]
    sources: Mapping[str, tuple[MachineSource, ...]]
    thresholds: Mapping[str, int] = field(default_factory=dict)
    existing: Mapping[str, Mapping[MachineSource, int]] = field(default_factory=dict)
    ranks: Mapping[str, Mapping[MachineSource, tuple[int, ...]]] = field(default_factory=dict)
    desired: Mapping[str, int] = field(default_factory=dict)
    retries: int = 3
    cooldown: float = 30.0
    idle_timeout: float | None = None
    target_wait: TargetWait = "balanced"
    waiting_cost: float | None = None
    consolidate_within: float = CONSOLIDATE_WITHIN
    tick: float = 15.0
    max_nodes: int | None = None
    budget: float | None = None
    evaluation_gap: float = 0.05
    limits: Limits = field(default_factory=Limits)
    recorded: bool = False
    positions: Mapping[str, range] = field(default_factory=dict)
    earlier: Mapping[tuple[str, int], Group] = field(default_factory=dict)
    before: Mapping[str, tuple[MachineSource, ...]] = field(default_factory=dict)
    fell_back: frozenset[str] = frozenset()


def resumed(
    settings: PlaneSettings, bounds: Mapping[str, tuple[int, int]], desired: Mapping[str, int]
) -> PlaneSettings:
    """Return the settings of a pool that is attached to, with its recorded bounds and desired nodes, by group.

    All existing machines are attached to first, whatever number is desired: their tasks have to be recovered.
    """
    groups = []
    for group in settings.groups:
        least, most = bounds.get(group.name, (group.min, group.max))
        groups.append(replace(group, min=least, max=most))
    thresholds = {
        group.name: min(settings.thresholds.get(group.name, group.min), desired.get(group.name, group.min))
        for group in groups
    }
    return replace(settings, groups=tuple(groups), thresholds=thresholds, desired=desired)
