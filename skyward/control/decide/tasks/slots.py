"""Slots of the nodes: free slots, free resources, and the order in which they are used.

Round robin spreads tasks. In a pool that shrinks, `SlotTable.packs` puts them on the fullest nodes, lowest rank first,
so that other nodes empty and can go.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from skyward.values.needs import NOTHING, Needs, Resources

__all__ = ["NodeSlots", "SetAside", "SlotTable", "fit_all"]


@dataclass(frozen=True, slots=True)
class SetAside:
    """Slots and resources that are reserved on a node for the members of a gang."""

    slots: int
    resources: Resources = field(default_factory=dict)


@dataclass(slots=True)
class NodeSlots:
    """One node: the tasks that it holds, in the order they were sent, its free resources, and all of them."""

    rank: int
    group: str
    slots: int
    capabilities: frozenset[str]
    free: dict[str, float]
    tasks: dict[int, Needs] = field(default_factory=dict)
    quiet_since: float = 0.0
    total: Resources = field(default_factory=dict)

    @property
    def spare(self) -> int:
        """Free slots; negative for prefetched tasks without a slot."""
        return self.slots - len(self.tasks)

    @property
    def busy(self) -> int:
        """Number of slots in use."""
        return min(self.slots, len(self.tasks))

    def fits(self, needs: Needs) -> bool:
        """Return whether a task of this shape can start here now."""
        return len(self.tasks) < self.slots and (not needs or needs.fit(self.free, self.capabilities))

    def fit_beside(self, needs: Sequence[Needs], aside: SetAside, slots: int = 0) -> bool:
        """Return whether tasks of these shapes can start here now, all at once, beside what is reserved.

        Args:
            slots: free slots that are kept in addition.
        """
        if self.spare < aside.slots + slots + len(needs):
            return False
        left = {name: amount - aside.resources.get(name, 0.0) for name, amount in self.free.items()}
        return fit_all(needs, left, self.capabilities)

    def fits_all(self, needs: Sequence[Needs]) -> bool:
        """Return whether tasks of these shapes can start here now, all at once."""
        return len(self.tasks) + len(needs) <= self.slots and fit_all(needs, self.free, self.capabilities)

    def could_hold(self, needs: Needs, count: int = 1) -> bool:
        """Return whether the node could hold this shape `count` times when it is idle."""
        if not needs:
            return True
        in_use = [held.resources for held in self.tasks.values()]
        whole = {name: free + sum(used.get(name, 0.0) for used in in_use) for name, free in self.free.items()}
        return fit_all([needs] * count, whole, self.capabilities)


def fit_all(needs: Sequence[Needs], free: Resources, capabilities: frozenset[str]) -> bool:
    """Return whether all of these shapes fit into the free resources at once."""
    left = dict(free)
    for each in needs:
        if each and not each.fit(left, capabilities):
            return False
        for name, amount in each.resources.items():
            left[name] = left.get(name, 0.0) - amount
    return True


type Cost = Callable[[NodeSlots], int]


NONE_RESERVED: Mapping[int, int] = MappingProxyType({})
NONE_ASIDE: Mapping[int, SetAside] = MappingProxyType({})


class SlotTable:
    """The nodes by rank.

    Attributes:
        packs: True to use the fullest nodes first; False for round robin, which each dispatch advances.
        nodes: the nodes by rank, with those that take no more tasks.
        busy: number of slots in use.
        busy_in: the same, by group.
        shapes_in: number of tasks that take resources of their nodes, by group and shape.
        started_in: number of tasks that were ever assigned to nodes of a group.
        occupied: ranks of the nodes that hold tasks.
        changes: number of times that a node began or ceased to take tasks.
    """

    def __init__(self) -> None:
        self.packs = False
        self.nodes: dict[int, NodeSlots] = {}
        self.busy = 0
        self.busy_in: dict[str, int] = {}
        self.shapes_in: dict[str, dict[Needs, int]] = {}
        self.started_in: dict[str, int] = {}
        self.occupied: set[int] = set()
        self.changes = 0
        self._order: list[int] = []
        self._open: list[int] = []
        self._by_spare: dict[int, list[int]] = {}
        self._spare_of: dict[int, int] = {}
        self._last = -1

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks of the nodes that take tasks."""
        return tuple(self._order)

    def idle(self) -> list[int]:
        """Return the nodes that take tasks and have none, ascending."""
        return sorted(
            rank for spare, ranks in self._by_spare.items() for rank in ranks if self.nodes[rank].slots == spare
        )

    @property
    def open(self) -> tuple[int, ...]:
        """Ranks of the nodes that take tasks and have a free slot."""
        return tuple(self._open)

    def takes(self, rank: int) -> bool:
        """Return whether a node takes tasks."""
        return _place(self._order, rank) is not None

    def join(
        self, rank: int, group: str, slots: int, resources: Resources, capabilities: frozenset[str], now: float
    ) -> None:
        """Admit a node to dispatch. Idempotent."""
        if rank not in self.nodes:
            free = dict(resources)
            self.nodes[rank] = NodeSlots(rank, group, slots, capabilities, free, quiet_since=now, total=dict(free))
        if not self.takes(rank):
            insort(self._order, rank)
            self.changes += 1
            self._reopen(self.nodes[rank])

    def retire(self, rank: int) -> None:
        """Stop dispatching to a node; it keeps the tasks that it has."""
        if _discard(self._order, rank):
            self.changes += 1
            self._close(rank)

    def remove(self, rank: int) -> NodeSlots | None:
        """Remove a node; return its slots and tasks."""
        node = self.nodes.pop(rank, None)
        if node is not None:
            self._count(node, -node.busy)
            for needs in node.tasks.values():
                self._count_shape(node, needs, -1)
            self.occupied.discard(rank)
            if _discard(self._order, rank):
                self.changes += 1
                self._close(rank)
        return node

    def assign(self, rank: int, task: int, needs: Needs, now: float) -> NodeSlots:
        """Assign a task to a node."""
        node = self.nodes[rank]
        if not node.tasks:
            node.quiet_since = now
        before = node.busy
        node.tasks[task] = needs
        self.occupied.add(rank)
        self.started_in[node.group] = self.started_in.get(node.group, 0) + 1
        self._count(node, node.busy - before)
        self._count_shape(node, needs, 1)
        for name, amount in needs.resources.items():
            node.free[name] = node.free.get(name, 0.0) - amount
        if node.spare <= 0:
            self._close(rank)
        elif rank in self._spare_of:  # not a draining node, which gets only the tasks that are pinned to it
            self._sort(node)
        self._last = rank
        return node

    def release(self, rank: int, task: int, now: float) -> NodeSlots | None:
        """Remove a task from its node."""
        node = self.nodes.get(rank)
        if node is None or task not in node.tasks:
            return node
        before = node.busy
        needs = node.tasks.pop(task)
        self._count_shape(node, needs, -1)
        for name, amount in needs.resources.items():
            node.free[name] += amount
        if not node.tasks:
            self.occupied.discard(rank)
        self._count(node, node.busy - before)
        node.quiet_since = now
        self._reopen(node)
        return node

    def next_free(
        self,
        needs: Needs = NOTHING,
        cost: Cost | None = None,
        reserved: Mapping[int, int] = NONE_RESERVED,
        aside: Mapping[int, SetAside] = NONE_ASIDE,
    ) -> int | None:
        """Return the next node in order where a task of this shape can start now; with `cost`, the cheapest one.

        Args:
            reserved: by node, the slots that are kept for collectives.
            aside: by node, what is reserved for a gang.
        """
        ranks = self._fullest_first() if self.packs else self._from_turn(self._open)
        nodes: Iterator[NodeSlots] = map(self.nodes.__getitem__, ranks)
        if reserved:
            nodes = (node for node in nodes if node.spare > reserved.get(node.rank, 0))
        if aside:
            nodes = (
                node
                for node in nodes
                if (kept := aside.get(node.rank)) is None or node.fit_beside((needs,), kept, reserved.get(node.rank, 0))
            )
        return _least((node for node in nodes if not needs or node.fits(needs)), cost)

    def next_ahead(
        self,
        ahead: int,
        cost: Cost | None = None,
        reserved: Mapping[int, int] = NONE_RESERVED,
        aside: Mapping[int, SetAside] = NONE_ASIDE,
    ) -> int | None:
        """Return the next node in turn with fewer than `ahead` tasks beyond its slots; with `cost`, the cheapest.

        Nodes on which anything is reserved are left out.
        """
        nodes = map(self.nodes.__getitem__, self._from_turn(self._order))
        kept = reserved.keys() | aside.keys() if aside else reserved.keys()
        return _least((node for node in nodes if node.spare + ahead > 0 and node.rank not in kept), cost)

    def _fullest_first(self) -> Iterator[int]:
        """Yield the nodes with a free slot, those with the fewest first, and of these the lowest rank."""
        for spare in sorted(self._by_spare):
            yield from self._by_spare[spare]

    def _from_turn(self, ranks: list[int]) -> Iterator[int]:
        start = bisect_right(ranks, self._last)
        for position in range(start, len(ranks)):
            yield ranks[position]
        for position in range(start):
            yield ranks[position]

    def _count(self, node: NodeSlots, change: int) -> None:
        if change:
            self.busy += change
            self.busy_in[node.group] = self.busy_in.get(node.group, 0) + change

    def _count_shape(self, node: NodeSlots, needs: Needs, change: int) -> None:
        if needs.resources:
            shapes = self.shapes_in.setdefault(node.group, {})
            shapes[needs] = shapes.get(needs, 0) + change
            if not shapes[needs]:
                del shapes[needs]

    def _reopen(self, node: NodeSlots) -> None:
        if node.spare > 0 and self.takes(node.rank):
            if _place(self._open, node.rank) is None:
                insort(self._open, node.rank)
            self._sort(node)

    def _sort(self, node: NodeSlots) -> None:
        """Keep an open node among those with as many free slots."""
        if self._spare_of.get(node.rank) != node.spare:
            self._unsort(node.rank)
            self._spare_of[node.rank] = node.spare
            insort(self._by_spare.setdefault(node.spare, []), node.rank)

    def _unsort(self, rank: int) -> None:
        spare = self._spare_of.pop(rank, None)
        if spare is not None:
            ranks = self._by_spare[spare]
            del ranks[bisect_left(ranks, rank)]
            if not ranks:
                del self._by_spare[spare]

    def _close(self, rank: int) -> None:
        self._unsort(rank)
        _discard(self._open, rank)


def _place(ranks: list[int], rank: int) -> int | None:
    """Return the position of a rank in a sorted list; None if it is not there."""
    position = bisect_right(ranks, rank) - 1
    return position if position >= 0 and ranks[position] == rank else None


def _discard(ranks: list[int], rank: int) -> bool:
    """Remove a rank from a sorted list; return whether it was there."""
    if (place := _place(ranks, rank)) is None:
        return False
    del ranks[place]
    return True


def _least(nodes: Iterator[NodeSlots], cost: Cost | None) -> int | None:
    """Return the first node with the lowest cost."""
    node = next(nodes, None) if cost is None else min(nodes, key=cost, default=None)
    return None if node is None else node.rank
