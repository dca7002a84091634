"""The slots of the nodes: which are free, what their nodes have left, and whose turn it is."""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from skyward.values.needs import NOTHING, Needs, Resources

__all__ = ["NodeSlots", "SlotTable"]


@dataclass(slots=True)
class NodeSlots:
    """One node: the tasks that it holds, in the order they were sent, and what is left of it."""

    rank: int
    group: str
    slots: int
    capabilities: frozenset[str]
    free: dict[str, float]
    tasks: dict[int, Needs] = field(default_factory=dict)
    quiet_since: float = 0.0

    @property
    def spare(self) -> int:
        """Free slots; less than 0 by as many tasks as it was given ahead of time."""
        return self.slots - len(self.tasks)

    @property
    def busy(self) -> int:
        """Slots in use."""
        return min(self.slots, len(self.tasks))

    def fits(self, needs: Needs) -> bool:
        """Whether a task of this shape can start here now."""
        return len(self.tasks) < self.slots and (not needs or needs.fit(self.free, self.capabilities))


type Cost = Callable[[NodeSlots], int]


class SlotTable:
    """The nodes by rank. Free slots are given out round robin; the turn moves on with each task that is sent."""

    def __init__(self) -> None:
        self.nodes: dict[int, NodeSlots] = {}
        self.busy = 0
        self.busy_in: dict[str, int] = {}
        self._order: list[int] = []
        self._open: list[int] = []
        self._last = -1

    @property
    def ranks(self) -> tuple[int, ...]:
        """The nodes that take tasks."""
        return tuple(self._order)

    def takes(self, rank: int) -> bool:
        """Whether a node takes tasks."""
        position = bisect_right(self._order, rank) - 1
        return position >= 0 and self._order[position] == rank

    def join(
        self, rank: int, group: str, slots: int, resources: Resources, capabilities: frozenset[str], now: float
    ) -> None:
        """A node takes tasks, for the first time or again."""
        if rank not in self.nodes:
            self.nodes[rank] = NodeSlots(rank, group, slots, capabilities, dict(resources), quiet_since=now)
        if not self.takes(rank):
            insort(self._order, rank)
            self._reopen(self.nodes[rank])

    def retire(self, rank: int) -> None:
        """A node takes no more tasks; it keeps those it has."""
        if self.takes(rank):
            self._order.remove(rank)
            self._shut(rank)

    def remove(self, rank: int) -> NodeSlots | None:
        """A node is gone; what it held."""
        node = self.nodes.pop(rank, None)
        if node is not None:
            self._count(node, -node.busy)
            if self.takes(rank):
                self._order.remove(rank)
                self._shut(rank)
        return node

    def hold(self, rank: int, task: int, needs: Needs, now: float) -> NodeSlots:
        """A task is sent to a node."""
        node = self.nodes[rank]
        if not node.tasks:
            node.quiet_since = now
        before = node.busy
        node.tasks[task] = needs
        self._count(node, node.busy - before)
        for name, amount in needs.resources.items():
            node.free[name] = node.free.get(name, 0.0) - amount
        if node.spare <= 0:
            self._shut(rank)
        self._last = rank
        return node

    def release(self, rank: int, task: int, now: float) -> NodeSlots | None:
        """A node is done with a task."""
        node = self.nodes.get(rank)
        if node is None or task not in node.tasks:
            return node
        before = node.busy
        for name, amount in node.tasks.pop(task).resources.items():
            node.free[name] += amount
        self._count(node, node.busy - before)
        node.quiet_since = now
        self._reopen(node)
        return node

    def next_free(self, needs: Needs = NOTHING, cost: Cost | None = None) -> int | None:
        """Return the node where a task of this shape can start now whose turn it is; with `cost`, of the least one."""
        nodes = map(self.nodes.__getitem__, self._from_turn(self._open))
        return _least((node for node in nodes if not needs or node.fits(needs)), cost)

    def next_ahead(self, ahead: int, cost: Cost | None = None) -> int | None:
        """Return the node whose turn it is among those that hold fewer than `ahead` tasks more than they have slots;
        with `cost`, of the least one.
        """
        nodes = map(self.nodes.__getitem__, self._from_turn(self._order))
        return _least((node for node in nodes if node.spare + ahead > 0), cost)

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

    def _reopen(self, node: NodeSlots) -> None:
        position = bisect_right(self._open, node.rank) - 1
        is_open = position >= 0 and self._open[position] == node.rank
        if not is_open and node.spare > 0 and self.takes(node.rank):
            insort(self._open, node.rank)

    def _shut(self, rank: int) -> None:
        position = bisect_right(self._open, rank) - 1
        if position >= 0 and self._open[position] == rank:
            del self._open[position]


def _least(nodes: Iterator[NodeSlots], cost: Cost | None) -> int | None:
    """Return the first of the nodes that have the least cost."""
    node = next(nodes, None) if cost is None else min(nodes, key=cost, default=None)
    return None if node is None else node.rank
