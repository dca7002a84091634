"""No scaling: the nodes that there are stay, whatever waits."""

from dataclasses import dataclass

from skyward.scaling.fitting import never
from skyward.scaling.snapshot import Decision, Snapshot

__all__ = ["No"]


@dataclass(frozen=True, slots=True)
class No:
    """Leaves the number of nodes to whoever set it: `Nodes`, or `pool.resize`."""

    name: str = "no"
    interval: float | None = None

    def decide(self, snapshot: Snapshot) -> Decision:
        """Every group as it is."""
        return Decision({}, "policy 'no' leaves the nodes as they are", infeasible=never(snapshot))
