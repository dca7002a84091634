"""What a control plane is made with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyward.control.decide.machines.requests import Limits
from skyward.control.decide.machines.sources import MachineSource
from skyward.scaling.snapshot import Group

__all__ = ["PlaneSettings"]


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """What a control plane is made with. Times in seconds.

    Attributes:
        places: where the machines of each group come from, the preferred place first.
        thresholds: nodes of each group that must be up before work starts; a group left out needs its minimum.
        standing: nodes of each group that are there from the start.
        retries: how often a task is sent again after its node died.
        cooldown, idle_timeout: of the autoscaler.
        tick: between checks of the nodes against what is wanted, and of the deadlines.
        max_nodes: over all groups; None for no limit but theirs.
        budget: USD in all; None for no limit.
        look_gap: at least, between looks of the autoscaler that new tasks cause.
    """

    groups: tuple[Group, ...]
    places: Mapping[str, tuple[MachineSource, ...]]
    thresholds: Mapping[str, int] = field(default_factory=dict)
    standing: Mapping[str, int] = field(default_factory=dict)
    retries: int = 3
    cooldown: float = 30.0
    idle_timeout: float = 60.0
    tick: float = 15.0
    max_nodes: int | None = None
    budget: float | None = None
    look_gap: float = 0.05
    limits: Limits = field(default_factory=Limits)
