"""Tracking of a pool's collections: those that have content, and those that lost it. No I/O.

Each strong value is replicated to up to three nodes. It is lost when all of them are lost before a copy is made: always
when no node is left, and possibly when three are lost within the time that replication takes.
"""

from collections import deque
from collections.abc import Iterable

from skyward.wire.collections.lost import Loss, Name

__all__ = ["COPIES", "REPAIR", "CollectionContents"]

COPIES = 3
"""Nodes that keep each value, if the pool has that many."""

REPAIR = 10.0
"""Seconds after which the remaining nodes have noticed a lost node and replicated its values."""


class CollectionContents:
    """The strong collections of one pool.

    Attributes:
        written: collections that have content.
        lost: losses that were not reported yet.
    """

    def __init__(self) -> None:
        self.written: set[Name] = set()
        self.lost: dict[Name, Loss] = {}
        self._losses: deque[tuple[float, int]] = deque()

    def write(self, names: Iterable[Name]) -> list[Name]:
        """Record that these collections have content; return those that were new."""
        new = [name for name in names if name not in self.written]
        self.written.update(new)
        return new

    def lose_member(self, left: int, now: float) -> list[Loss]:
        """Record the loss of a node, with `left` others in the cluster; return the collections lost with it."""
        while self._losses and now - self._losses[0][0] > REPAIR:
            self._losses.popleft()
        self._losses.append((now, left + 1))
        if left and len(self._losses) < min(COPIES, self._losses[0][1]):
            return []
        self._losses.clear()
        new = [Loss(*name, whole=not left) for name in sorted(self.written)]
        self.lost.update({(loss.kind, loss.name): loss for loss in new})
        if not left:
            self.written.clear()
        return new

    def take_loss(self, name: Name) -> Loss | None:
        """Return the unreported loss of a collection, and mark it as reported."""
        return self.lost.pop(name, None)
