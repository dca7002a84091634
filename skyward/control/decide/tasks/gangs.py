"""State of a gang: tasks that start together or not at all. Decided without I/O.

A gang waits until all of its members can start at once. While it runs, the values that its members return are held
back: if a node, or a member's process, is lost before all have ended, the others are stopped, and the whole gang waits
and runs again. So it does if a member raises an exception that its retry policy covers. If a member ends in any other
way, the gang is no longer whole: what was held back is delivered, and each of the others ends by itself.

The oldest waiting gang reserves what it needs on the nodes where it will start: younger tasks do not take it. The
others reserve nothing, so that no two gangs wait for each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from skyward.control.decide.tasks.slots import NodeSlots, SetAside, SlotTable
from skyward.scaling.snapshot import GangDemand
from skyward.scaling.snapshot.gang_placement import Seats, place_gang

__all__ = ["GangState", "WaitingGangs", "has_slots", "seats_left", "set_aside_for"]


@dataclass(slots=True)
class GangState:
    """One gang.

    Attributes:
        number: its number, lower than those of its tasks and of all later ones.
        members: its tasks, in the order of their ranks in the gang.
        demand: needs of each, and their placement.
        left: number of tasks that have not ended for their callers.
        is_waiting: True until all its tasks are sent.
        is_whole: False once a member has ended otherwise than with a value, or was cancelled.
        active: members that run, or are being stopped.
        again: why its members are stopped to run again; empty if they are not.
        starts: number of times that it has started.
        losses: times that it was run again after a loss.
        reserved: what it reserves while it is the oldest, by node; empty if the present nodes can never hold it.
        planned_at: `SlotTable.changes` when `reserved` was planned; -1 if it was not.
    """

    number: int
    members: tuple[int, ...]
    demand: GangDemand
    left: int = 0
    is_waiting: bool = True
    is_whole: bool = True
    active: set[int] = field(default_factory=set)
    again: str = ""
    starts: int = 0
    losses: int = 0
    reserved: Mapping[int, SetAside] = field(default_factory=dict)
    planned_at: int = -1

    def start(self) -> None:
        """Begin to run: all members are sent to their nodes."""
        self.starts += 1
        self.is_waiting = False
        self.reserved, self.planned_at = {}, -1
        self.active = set(self.members)


class WaitingGangs:
    """The gangs that wait, the oldest first.

    Attributes:
        demands: their demands by number, in the same order.
        fresh: those that began to wait since they were last looked at, which empties it.
        tasks: number of their tasks.
    """

    def __init__(self) -> None:
        self._gangs: dict[int, GangState] = {}
        self._shared: dict[GangDemand, GangDemand] = {}
        self.demands: dict[int, GangDemand] = {}
        self.fresh: dict[int, GangDemand] = {}
        self.tasks = 0

    def __bool__(self) -> bool:
        return bool(self._gangs)

    def __iter__(self) -> Iterator[GangState]:
        """Iterate over the gangs; they may be removed meanwhile."""
        return iter(tuple(self._gangs.values()))

    def add(self, gang: GangState) -> None:
        """Add a gang, at the place of its age. Gangs with equal demands share one object, to compare them fast."""
        gang.demand = self._shared.setdefault(gang.demand, gang.demand)
        is_last = not self._gangs or next(reversed(self._gangs)) < gang.number
        self._gangs[gang.number] = gang
        self.demands[gang.number] = self.fresh[gang.number] = gang.demand
        self.tasks += len(gang.members)
        if not is_last:
            self._gangs = dict(sorted(self._gangs.items()))
            self.demands = dict(sorted(self.demands.items()))

    def remove(self, gang: GangState) -> None:
        """Remove a gang."""
        del self._gangs[gang.number], self.demands[gang.number]
        self.fresh.pop(gang.number, None)
        self.tasks -= len(gang.members)
        if not self._gangs:
            self._shared.clear()


def seats_left(node: NodeSlots, slots: int, aside: SetAside | None) -> Seats:
    """Return the room of a node that is free now.

    Args:
        slots: free slots that are kept for collectives.
        aside: what is reserved for a gang.
    """
    if aside is None:
        return Seats(node.spare - slots, node.free, node.capabilities)
    free = {name: amount - aside.resources.get(name, 0.0) for name, amount in node.free.items()}
    return Seats(node.spare - slots - aside.slots, free, node.capabilities)


def has_slots(gang: GangState, nodes: Sequence[NodeSlots]) -> bool:
    """Return whether these nodes have enough free slots for a gang, whatever its members need beside them."""
    size = len(gang.members)
    match gang.demand.placement:
        case "strict_pack":
            return any(node.spare >= size for node in nodes)
        case "strict_spread":
            return len(nodes) >= size
        case "pack" | "spread":
            return sum(node.spare for node in nodes) >= size


def set_aside_for(gang: GangState, table: SlotTable) -> Mapping[int, SetAside]:
    """Return what to reserve for a gang that cannot start now, by node; empty if the nodes can never hold it.

    Of equal nodes, it reserves those that have the most free slots, so that it never waits for a node that is busy for
    long while others become free. It plans again only if that may reserve more free slots.
    """
    if gang.planned_at != table.changes or _may_improve(gang, table):
        gang.planned_at, gang.reserved = table.changes, _planned(gang, table)
    return gang.reserved


def _may_improve(gang: GangState, table: SlotTable) -> bool:
    """Return whether a node where a member could run has more free slots than one of those that are reserved."""
    if not gang.reserved:
        return False
    least = min(table.nodes[rank].spare for rank in gang.reserved)
    others = [table.nodes[rank] for rank in table.open if rank not in gang.reserved]
    freer = [node for node in others if node.spare > least]
    shapes = set(gang.demand.needs) if freer else ()
    return any(needs.fit(node.total, node.capabilities) for node in freer for needs in shapes)


def _planned(gang: GangState, table: SlotTable) -> Mapping[int, SetAside]:
    nodes = [table.nodes[rank] for rank in table.ranks]
    order = sorted(nodes, key=lambda node: (-node.spare, node.rank not in gang.reserved, node.rank))
    seats = [Seats(node.slots, node.total, node.capabilities) for node in order]
    places = place_gang(seats, gang.demand.needs, gang.demand.placement)
    reserved: dict[int, SetAside] = {}
    for needs, position in zip(gang.demand.needs, places or (), strict=False):
        rank = order[position].rank
        before = reserved.get(rank, SetAside(0))
        resources = dict(before.resources)
        for name, amount in needs.resources.items():
            resources[name] = resources.get(name, 0.0) + amount
        reserved[rank] = SetAside(before.slots + 1, resources)
    return reserved
