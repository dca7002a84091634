"""Nodes that tasks use only because they are there: the load would fit on one node less.

Tasks go to the fullest nodes, but while these are full for a moment, they go to the others, which never idle then. So
when the free slots of a group have been as many as those of a node for as long as a boot takes, the node with the
fewest tasks gets no more, provided that the others could run these tasks, with the resources that they need. Its tasks
run to their end, and if others wait before that, it takes them again at once.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from skyward.scaling.snapshot import Group, NodeLoad, Snapshot
from skyward.scaling.snapshot.gang_placement import Seats, place_gang

__all__ = ["Surplus"]


@dataclass(slots=True)
class Surplus:
    """Since when each group has had room for its load on one node less.

    Attributes:
        due_in: seconds until a node may be found, if nothing changes; None for no such time.
    """

    due_in: float | None = None
    _since: dict[str, float] = field(default_factory=dict)

    def find(self, snapshot: Snapshot, groups: Collection[str], periods: Mapping[str, float]) -> NodeLoad | None:
        """Return a node whose tasks could run on the others of its group; None if there is none yet.

        Args:
            groups: those that may lose a node.
            periods: seconds for which there must have been room, by group.
        """
        self.due_in = None
        for group in snapshot.groups:
            name = group.name
            if name not in groups or not _has_room(group, snapshot):
                self._since.pop(name, None)
                continue
            left = self._since.setdefault(name, snapshot.now) + periods[name] - snapshot.now
            if left > 0:
                self.due_in = left if self.due_in is None else min(self.due_in, left)
                continue
            nodes = [node for node in snapshot.nodes if node.group == name and node.stage == "active"]
            nodes = [node for node in nodes if node.busy and node.rank]
            if nodes:
                emptiest = min(nodes, key=lambda node: (node.busy, -node.rank))
                if _fits_on_others(emptiest, group, snapshot):
                    del self._since[name]
                    return emptiest
                self._since[name] = snapshot.now
        return None


def _has_room(group: Group, snapshot: Snapshot) -> bool:
    """Return whether the free slots of a group's busy nodes, and what their tasks leave, are as much as a node's."""
    counts = snapshot.counts[group.name]
    if group.slots <= 1 or counts.active * group.slots - counts.busy < group.slots:
        return False  # most often, so that the idle nodes are seldom looked for
    idle = sum(node.group == group.name for node in snapshot.idle)
    nodes = counts.active - idle
    if nodes * group.slots - counts.busy < group.slots:
        return False
    taken: dict[str, float] = {}
    for needs, number in counts.shapes.items():
        for name, amount in needs.resources.items():
            taken[name] = taken.get(name, 0.0) + number * amount
    return all(amount <= (nodes - 1) * group.resources.get(name, 0.0) + 1e-9 for name, amount in taken.items())


def _fits_on_others(node: NodeLoad, group: Group, snapshot: Snapshot) -> bool:
    """Return whether the busy nodes of a group could run the tasks of one of them, too."""
    work = next((each for each in snapshot.work if each.rank == node.rank), None)
    if work is None:
        return False
    others = (
        each
        for each in snapshot.nodes
        if each.group == group.name and each.stage == "active" and each.busy and each.rank != node.rank
    )
    seats = [Seats(group.slots - each.busy, each.free, group.capabilities) for each in others]
    tasks = [needs for needs, number in work.shapes.items() for _ in range(number)]
    return place_gang(seats, tasks, "pack") is not None
