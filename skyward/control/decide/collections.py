"""Which collections of a pool have content, and which have lost it. Decides; does no I/O.

Each strong value has copies on up to three nodes. It is lost when all of them are gone before the others have copied
it: certainly when no node is left, and possibly when three are lost within the time that copying takes.
"""

from collections import deque
from collections.abc import Iterable

from skyward.wire.collections.lost import Loss, Name

__all__ = ["COPIES", "REPAIR", "Contents"]

COPIES = 3
"""Nodes that keep each value, where there are so many."""

REPAIR = 10.0
"""Seconds after which the remaining nodes have noticed the loss of one, and copied what it kept."""


class Contents:
    """The strong collections of one pool.

    Attributes:
        written: those that have content.
        lost: losses that nobody was told of yet.
    """

    def __init__(self) -> None:
        self.written: set[Name] = set()
        self.lost: dict[Name, Loss] = {}
        self._losses: deque[tuple[float, int]] = deque()

    def write(self, names: Iterable[Name]) -> list[Name]:
        """Note that these have content; return those that were new."""
        new = [name for name in names if name not in self.written]
        self.written.update(new)
        return new

    def lose_member(self, left: int, now: float) -> list[Loss]:
        """Note that a node was lost, with `left` others in the cluster; return the losses that follow from it."""
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

    def tell(self, name: Name) -> Loss | None:
        """Return the loss of a collection that is still to be told, once."""
        return self.lost.pop(name, None)
