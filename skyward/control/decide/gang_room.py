"""Room for waiting gangs in a pool at its maximum number of nodes: which idle nodes go for which new ones. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from skyward.scaling.gang_placement import gang_nodes
from skyward.scaling.snapshot import GangDemand, Snapshot

__all__ = ["GangRoom", "room_for_gang"]


@dataclass(frozen=True, slots=True)
class GangRoom:
    """Nodes to remove in favour of a gang.

    Attributes:
        gang: the gang.
        launch: the nodes that it then needs in addition, by group.
        victims: ranks of the idle nodes that go.
    """

    gang: GangDemand
    launch: Mapping[str, int]
    victims: tuple[int, ...]


def room_for_gang(snapshot: Snapshot, idle: Mapping[int, str]) -> GangRoom | None:
    """Return how to make room for the oldest gang that the nodes of the pool cannot hold; None if that is impossible.

    Either all of its nodes get room or none does: a part of them would idle.

    Args:
        snapshot: a pool with a maximum number of nodes, in which groups with an obstacle can launch none.
        idle: groups of the nodes that may go, by rank, those to go first first.
    """
    assert snapshot.max_nodes is not None
    kept = gang_nodes(snapshot).keep
    spare = {rank: group for rank, group in idle.items() if rank not in kept}
    for gang in dict.fromkeys(snapshot.gangs):
        alone = replace(snapshot, gangs=(gang,))
        if not gang_nodes(alone).uses and (room := _room(alone, spare)) is not None:
            return room
    return None


def _room(snapshot: Snapshot, spare: Mapping[int, str]) -> GangRoom | None:
    """Return how to make room for the only gang of a snapshot: with as few new nodes as the nodes that can go."""
    (gang,), most = snapshot.gangs, snapshot.max_nodes or 0
    there = sum(
        max(group.min, counts.desired if group.can_launch else 0, counts.active + counts.booting)
        for group in snapshot.groups
        for counts in (snapshot.counts[group.name],)
    )
    room = len(spare)
    while room > 0:
        plan = gang_nodes(replace(snapshot, max_nodes=most + room))
        able = [rank for rank, group in spare.items() if rank not in plan.keep and group not in plan.launch]
        lacking = there + sum(plan.launch.values()) - most
        if not plan.launch or lacking <= 0:
            return None
        if lacking <= len(able):
            return GangRoom(gang, plan.launch, tuple(able[:lacking]))
        room = min(room - 1, len(able))
    return None
