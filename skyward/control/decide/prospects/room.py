"""Room for what waits in a pool at its maximum number of nodes: idle nodes of other groups go. Decides only; no I/O."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.prospects.groups import GroupObstacle, Prospects
from skyward.control.decide.tasks.manager import TaskManager
from skyward.formatting import count_text, joined
from skyward.kept.registry import KeptRegistry
from skyward.scaling.snapshot import GangDemand, Group, Snapshot
from skyward.scaling.snapshot.fitting import cheapest
from skyward.scaling.snapshot.gang_placement import gang_nodes
from skyward.scaling.snapshot.gang_text import gang_text
from skyward.values.needs import Needs

__all__ = ["MadeRoom", "RoomMaker"]


@dataclass(frozen=True, slots=True)
class MadeRoom:
    """Change that makes room.

    Attributes:
        after: the desired nodes by group. They are none if node 0 makes room, which goes with the last node: then the
            first nodes for what waits are to be launched at once.
        victims: ranks to remove.
        reason: why.
        needs: those of the tasks that get the room; None if a gang does.
    """

    after: Mapping[str, int]
    victims: tuple[int, ...]
    reason: str
    needs: Needs | None = None


@dataclass(frozen=True, slots=True)
class _GangRoom:
    """Nodes to remove in favour of a gang.

    Attributes:
        gang: the gang.
        launch: the nodes that it then needs in addition, by group.
        victims: ranks of the idle nodes that go.
    """

    gang: GangDemand
    launch: Mapping[str, int]
    victims: tuple[int, ...]


@dataclass(slots=True)
class RoomMaker:
    """Chooses the nodes of one pool that go in favour of what waits.

    Attributes:
        groups: the groups, by name, with their present bounds.
        max_nodes: maximum over all groups; None for no limit but theirs.
    """

    groups: Mapping[str, Group]
    tasks: TaskManager
    reconciler: Reconciler
    prospects: Prospects
    kept: KeptRegistry
    max_nodes: int | None
    _without_room: tuple[object, ...] = ()

    def for_tasks(self, now: float) -> MadeRoom | None:
        """Return how an idle node of a full pool makes room for tasks that no node there is can hold."""
        there = sum(map(self.reconciler.effective, self.groups))
        if self.max_nodes is None or there < self.max_nodes:
            return None
        unheld = sorted((needs for needs in self.tasks.shapes() if not self._is_held(needs)), key=str)
        if not unheld:
            return None
        kept, desired = self.kept.busy_nodes(now), self.reconciler.desired
        idle = {
            rank: self.reconciler.table.assignments[rank].machine.group
            for rank in self.tasks.ranks
            if rank not in kept and self.tasks.is_empty(rank)
        }
        obstacles = self.prospects.obstacles(now)
        for needs in unheld:
            fitting = [group for group in self.groups.values() if group.can_hold(needs)]
            able = [group for group in fitting if group.max and group.name not in obstacles]
            group = cheapest(able, needs)
            rank = _idle_node(idle, self.groups, desired, [group.name for group in able])
            if group is None or rank is None:
                continue
            gives = idle[rank]
            after = {**desired, gives: desired[gives] - 1}
            if rank:
                after[group.name] = desired[group.name] + 1
            goes_now = rank in self.reconciler.would_drain(after, (rank,))
            maker = f"idle node {rank}" if goes_now else f"a node of group {gives!r} that is still booting"
            reason = f"tasks wait that need a node of group {group.name!r}, and {maker} makes room for it"
            return MadeRoom(after, (rank,), reason, needs)
        return None

    def for_gang(self, snapshot: Callable[[Mapping[str, GroupObstacle]], Snapshot], now: float) -> MadeRoom | None:
        """Return how idle nodes make room for a gang that the nodes of the pool cannot hold.

        Args:
            snapshot: returns the pool, in which groups with these obstacles can launch no nodes.
        """
        if self.max_nodes is None or not (idle := self._idle_to_spare(now)):
            return None
        obstacles, desired = self.prospects.obstacles(now), self.reconciler.desired
        there = {name: self.reconciler.effective(name) for name in self.groups}
        state = tuple(self.tasks.waiting_gangs), idle, there, dict(desired), dict(self.groups), set(obstacles)
        if state == self._without_room:
            return None
        room = _room_for_gang(snapshot(obstacles), idle)
        if room is None:
            self._without_room = state
            return None
        after, victims = dict(desired), room.victims
        if 0 in victims:  # it goes only with every other node
            after, victims = dict.fromkeys(desired, 0), tuple(idle)
        else:
            for rank in victims:
                after[idle[rank]] -= 1
            for group, more in room.launch.items():
                after[group] = max(after[group], there[group]) + more
        names = joined(f"{count_text(more)} of group {group!r}" for group, more in room.launch.items())
        drained = set(self.reconciler.would_drain(after, victims)).intersection(victims)
        makers = [f"idle node {rank}" for rank in victims if rank in drained]
        if booting := len(victims) - len(drained):
            makers.append(f"{count_text(booting)} that {'is' if booting == 1 else 'are'} still booting")
        make = "makes" if len(victims) == 1 else "make"
        return MadeRoom(after, victims, f"{gang_text(room.gang)}, lack {names}, and {joined(makers)} {make} room")

    def _is_held(self, needs: Needs) -> bool:
        """Return whether a node that could hold this shape is active or boots."""
        return any(self.reconciler.effective(name) for name, group in self.groups.items() if group.can_hold(needs))

    def _idle_to_spare(self, now: float) -> dict[int, str]:
        """Return the groups of the idle nodes that their minimums spare, by rank, those to go first first.

        Node 0 is one of them only if every node is: it goes with the last of them.
        """
        kept = self.kept.busy_nodes(now)
        spare = {name: self.reconciler.desired.get(name, 0) - group.min for name, group in self.groups.items()}
        found: dict[int, str] = {}
        for rank in reversed(self.tasks.idle_ranks()):
            group = self.reconciler.table.assignments[rank].machine.group
            if spare[group] > 0 and rank not in kept and self.tasks.is_empty(rank):
                spare[group] -= 1
                found[rank] = group
        if len(found) < sum(self.reconciler.desired.values()):
            found.pop(0, None)
        return found


def _idle_node(
    idle: Mapping[int, str], groups: Mapping[str, Group], desired: Mapping[str, int], able: Iterable[str]
) -> int | None:
    """Return the rank of the idle node that makes room for a node of one of the groups `able`; None if there is none.

    The head goes last, and only as the last node.

    Args:
        idle: groups of the nodes that have nothing to do and keep nothing, by rank.
    """
    useful = set(able)
    spare = [rank for rank, name in idle.items() if name not in useful and desired.get(name, 0) > groups[name].min]
    others = [rank for rank in spare if rank]
    if others:
        return max(others)
    return 0 if spare and sum(desired.values()) == 1 else None


def _room_for_gang(snapshot: Snapshot, idle: Mapping[int, str]) -> _GangRoom | None:
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
        if not gang_nodes(alone).uses and (room := _room(alone, spare) or _room_without(alone, spare)) is not None:
            return room
    return None


def _room(snapshot: Snapshot, spare: Mapping[int, str]) -> _GangRoom | None:
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
            return _GangRoom(gang, plan.launch, tuple(able[:lacking]))
        room = min(room - 1, len(able))
    return None


def _room_without(snapshot: Snapshot, spare: Mapping[int, str]) -> _GangRoom | None:
    """Return how to make room for the only gang of a snapshot where it fits only once idle nodes have gone.

    Each of these could hold a part of it, and is counted on for that, but it does not fit beside them.
    """
    (gang,) = snapshot.gangs
    rest = snapshot
    going: list[int] = []
    for rank, group in spare.items():
        going.append(rank)
        counts = rest.counts[group]
        fewer = replace(counts, active=counts.active - 1, desired=counts.desired - 1)
        nodes = tuple(node for node in rest.nodes if node.rank != rank)
        rest = replace(rest, counts={**rest.counts, group: fewer}, nodes=nodes)
        launch = gang_nodes(rest).launch
        if launch and (not rank or launch.keys().isdisjoint(spare[each] for each in going)):
            return _GangRoom(gang, launch, tuple(going))
    return None
