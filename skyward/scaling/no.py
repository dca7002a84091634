"""No scaling: the nodes that there are stay, whatever waits."""

from dataclasses import dataclass

from skyward.scaling.commands import Command, View
from skyward.scaling.snapshot import Decision, Snapshot
from skyward.scaling.translation import decide

__all__ = ["No", "NoRule"]


@dataclass(frozen=True, slots=True)
class NoRule:
    """Commands nothing."""

    def commands(self, view: View) -> list[Command]:
        """None."""
        del view
        return []


@dataclass(frozen=True, slots=True)
class No:
    """Scaler's `no`: the number of nodes is left to whoever set it, `Nodes` or `pool.resize`."""

    name: str = "no"
    interval: float | None = None

    def decide(self, snapshot: Snapshot) -> Decision:
        """Every group as it is, within its bounds."""
        return decide(snapshot, NoRule())
