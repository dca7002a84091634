"""The ranks that no node has, lowest first."""

import heapq
from collections.abc import Container

__all__ = ["FreeRanks"]


class FreeRanks:
    """A heap of the free ranks below the first rank that was never taken.

    Taken ranks stay in the heap until they come to its top.
    """

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._listed: set[int] = set()
        self._taken: set[int] = set()
        self._new = 0

    def take(self, rank: int) -> None:
        """Record that a rank is taken."""
        self._taken.add(rank)
        for skipped in range(self._new, rank):
            self._list(skipped)
        self._new = max(self._new, rank + 1)

    def release(self, rank: int) -> None:
        """Record that a rank is free again."""
        self._taken.discard(rank)
        self._list(rank)

    def lowest(self, count: int, without: Container[int] = ()) -> list[int]:
        """Return the `count` lowest free ranks that are not in `without`, and take none of them."""
        found: list[int] = []
        free: list[int] = []
        while self._heap and len(found) < count:
            rank = heapq.heappop(self._heap)
            if rank in self._taken:
                self._listed.discard(rank)
                continue
            free.append(rank)
            if rank not in without:
                found.append(rank)
        for rank in free:
            heapq.heappush(self._heap, rank)
        new = self._new
        while len(found) < count:
            if new not in without:
                found.append(new)
            new += 1
        return found

    def _list(self, rank: int) -> None:
        if rank not in self._listed:
            self._listed.add(rank)
            heapq.heappush(self._heap, rank)
