"""Which blobs a node holds. The client decides; the node drops what it is told to."""

from collections import OrderedDict
from collections.abc import Mapping

__all__ = ["Holdings"]


class Holdings:
    """The blobs of one node within a budget of bytes, the least recently used given up first."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        self._total = 0

    def __contains__(self, key: bytes) -> bool:
        return key in self._sizes

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._total

    def want(self, blobs: Mapping[bytes, memoryview]) -> tuple[dict[bytes, memoryview], tuple[bytes, ...]]:
        """What must be sent so that the node has all of `blobs`, and what it must drop to stay within its budget.

        Blobs of one call are never dropped for each other, so a call larger than the budget goes over it.
        """
        missing = {}
        for key, view in blobs.items():
            if key in self._sizes:
                self._sizes.move_to_end(key)
            else:
                missing[key] = view
                self._sizes[key] = view.nbytes
                self._total += view.nbytes
        dropped = []
        while self._total > self._budget:
            key = next(iter(self._sizes))
            if key in blobs:
                break
            self._total -= self._sizes.pop(key)
            dropped.append(key)
        return missing, tuple(dropped)

    def forget(self, key: bytes) -> None:
        """A blob did not get through."""
        self._total -= self._sizes.pop(key, 0)
