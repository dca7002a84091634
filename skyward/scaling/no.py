"""No scaling: the number of nodes does not follow the load."""

from dataclasses import dataclass

from skyward.scaling.scaler.commands import ClusterState, ScalerCommand
from skyward.scaling.snapshot import Decision, Snapshot
from skyward.scaling.translation import decide

__all__ = ["No", "NoRule"]


@dataclass(frozen=True, slots=True)
class NoRule:
    """Rule without commands."""

    def commands(self, view: ClusterState) -> list[ScalerCommand]:
        """Return no commands."""
        del view
        return []


@dataclass(frozen=True, slots=True)
class No:
    """Scaler's `no`: only `Nodes` and `pool.resize` set the number of nodes.

    Attributes:
        name: name of the policy.
        interval: seconds between decisions while nothing happens; None for the pool's cooldown.

    Example:
        >>> sky.Compute(nodes=(1, 8), policy="no")
    """

    name: str = "no"
    interval: float | None = None

    def decide(self, snapshot: Snapshot) -> Decision:
        """Return the current number of nodes of every group, within its bounds."""
        return decide(snapshot, NoRule(), for_gangs=False)
