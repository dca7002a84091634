"""Tracking of a pool's collections: those that have content, those that lost it, and the copies of it. No I/O.

Each strong value is replicated to up to three nodes. It is lost when all of them are lost before a copy is made: always
when no node is left, and possibly when as many are lost as there were copies.

It may be lost with one copy left, too. Each node that joins a cluster of at least three, lost members included, takes
the place of another one for some values. The engine moves these, and can drop the only copy of one in the move: both
nodes hand it to each other while the new one is filling. It can also leave a value with one copy less than it reports.
"""

from collections.abc import Hashable, Iterable, Mapping

from skyward.wire.collections.lost import Loss, Name
from skyward.wire.protocol.messages import CopiesReport

__all__ = ["COPIES", "SAFE_COPIES", "SAME_TIME", "CollectionContents", "copies_left", "is_outvoted"]

COPIES = 3
"""Nodes that keep each value, if the pool has that many."""

SAFE_COPIES = 2
"""Copies of a value of which one remains where it is while the engine moves another."""

SAME_TIME = 1.0
"""Seconds between two losses in which the last writes may have reached only the two lost nodes, a quorum of three."""


def copies_left(reports: Mapping[Hashable, CopiesReport], members: Iterable[Hashable]) -> int | None:
    """Return the number of copies that each value has at least, or None while that is unknown.

    It is known once all members of the cluster agree on who they are, and have the copies that they store. A lost
    member keeps its place until it is removed: each value may be stored on it.
    """
    if set(reports) != set(members) or not all(report.complete for report in reports.values()):
        return None
    if (shared := _agreed(reports)) is None:
        return None
    mine = {report.node for report in reports.values()}
    return max(0, min(COPIES, len(shared)) - len(shared - mine)) if mine <= shared else None


def is_outvoted(reports: Mapping[Hashable, CopiesReport]) -> bool:
    """Return whether a cluster cannot remove its lost members, because they are as many as the others, or more."""
    if not reports or (shared := _agreed(reports)) is None:
        return False
    alive = shared & {report.node for report in reports.values()}
    return len(shared) >= 2 * len(alive)


def _agreed(reports: Mapping[Hashable, CopiesReport]) -> frozenset[str] | None:
    views = {frozenset(report.members) for report in reports.values()}
    return views.pop() if len(views) == 1 else None


class CollectionContents:
    """The strong collections of one pool.

    Attributes:
        written: collections that have content.
        lost: losses that were not reported yet.
        copies: number of copies that each value has at least.
    """

    def __init__(self) -> None:
        self.written: set[Name] = set()
        self.lost: dict[Name, Loss] = {}
        self.copies = 1
        self._reports: dict[Hashable, CopiesReport] = {}
        self._removed: set[Hashable] = set()
        self._last_loss: float | None = None
        self._peak = 0
        self._in_danger = False
        self._departed: set[str] = set()

    def write(self, names: Iterable[Name]) -> list[Name]:
        """Record that these collections have content; return those that were new."""
        new = [name for name in names if name not in self.written]
        self.written.update(new)
        return new

    def see(self, node: Hashable, report: CopiesReport, members: Iterable[Hashable], now: float) -> list[Loss]:
        """Record what a node reports of the cluster with these `members`; return the collections lost.

        The copies of a node that the others removed, because they could not reach it, are lost: it joins again, empty.
        """
        before = self._reports.get(node)
        members = set(members)
        size = self._size(len(members))
        self._reports[node] = report
        self._peak = max(self._peak, len(members))
        losses: list[Loss] = []
        if before is not None:
            gone = set(before.members) - set(report.members)
            for other, last in self._reports.items():
                if other != node and other not in self._removed and last.node in gone:
                    self._removed.add(other)
                    losses = self._lose_copy(now, size)
            if report.node != before.node:
                losses = losses if node in self._removed else self._lose_copy(now, size)
                self._removed.discard(node)
        if (copies := copies_left(self._reports, members)) is not None:
            self.copies = copies
            if self._in_danger and copies >= min(SAFE_COPIES, len(members)):
                self._in_danger = False
                losses += self._lose(whole=False, names=self.written - self.lost.keys())
        return losses

    def lose_member(self, node: Hashable, left: int, now: float) -> list[Loss]:
        """Record the loss of a node, with `left` others in the cluster; return the collections lost with it."""
        size = self._size(left + 1)
        self._reports.pop(node, None)
        if not left:
            return self._lose(whole=True)
        if node in self._removed:
            self._removed.discard(node)
            return []
        return self._lose_copy(now, size)

    def leave(self, node: Hashable, left: int) -> None:
        """Record that a node leaves after handing over its values to the `left` others."""
        if (last := self._reports.pop(node, None)) is not None:
            self._departed.add(last.node)
        self._removed.discard(node)
        self.copies, self._peak = min(self.copies, left), min(self._peak, left)

    def would_move_single_copies(self, members: int) -> bool:
        """Return whether a node that joins the `members` takes over values of which there may be only one copy."""
        return bool(self.written) and self.copies < SAFE_COPIES and self._size(members) >= COPIES

    def can_restore(self, members: int) -> bool:
        """Return whether the `members` make the copies that are missing, without others that join.

        They do if no member was lost, or if they can remove those that were.
        """
        return 2 * members > self._size(members)

    def endanger(self) -> list[Loss]:
        """Record that values with one copy may be moved from now on; return the collections that may lose some.

        A collection that is used before its values have copies again may lose some after that: it is lost once more
        when they have.
        """
        if self._in_danger:
            return []
        self._in_danger = True
        return self._lose(whole=False)

    def give_up(self) -> list[Loss]:
        """Record that all nodes will form a new cluster; return the collections lost."""
        return self._lose(whole=True)

    def is_stuck(self) -> bool:
        """Return whether the cluster cannot recover, though each of its lost members was replaced.

        Strong collections cannot be reached then. With fewer nodes, those that come may restore the majority.
        """
        return is_outvoted(self._reports) and len(self._reports) >= self._peak

    def _size(self, members: int) -> int:
        """Return the size of the cluster, lost members included. Some of the current `members` may have no report."""
        known = {each for report in self._reports.values() for each in report.members} - self._departed
        return len(known) + max(0, members - len(self._reports))

    def _lose_copy(self, now: float, size: int) -> list[Loss]:
        is_close = self._last_loss is not None and now - self._last_loss < SAME_TIME
        self._last_loss = now
        self.copies = max(0, self.copies - 1)
        losses = self.endanger() if self.copies < SAFE_COPIES and size >= COPIES else []
        return losses or (self._lose(whole=False) if is_close or not self.copies else [])

    def _lose(self, whole: bool, names: Iterable[Name] | None = None) -> list[Loss]:
        new = [Loss(*name, whole=whole) for name in sorted(self.written if names is None else names)]
        self.lost.update({(loss.kind, loss.name): loss for loss in new})
        if whole:
            self.written.clear()
            self._reports.clear()
            self._removed.clear()
            self._departed.clear()
            self.copies, self._peak, self._last_loss, self._in_danger = 1, 0, None, False
        return new

    def take_loss(self, name: Name) -> Loss | None:
        """Return the unreported loss of a collection, and mark it as reported."""
        return self.lost.pop(name, None)
