"""Inventory of the blobs on a node. The client decides which to drop, and sends the node their keys."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

__all__ = ["BlobInventory"]


class Sized(Protocol):
    """Bytes, or a stand-in for them."""

    @property
    def nbytes(self) -> int:
        """Number of bytes."""


class BlobInventory:
    """The blobs of one node within a budget of bytes; the least recently used is dropped first."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        self._wanted: Counter[bytes] = Counter()
        self._pinned: dict[bytes, int] = {}
        self._total = 0

    def __contains__(self, key: bytes) -> bool:
        return key in self._sizes

    def __iter__(self) -> Iterator[bytes]:
        return iter(tuple(self._sizes))

    @property
    def nbytes(self) -> int:
        """Bytes of the blobs on the node."""
        return self._total

    def limit(self, budget: int) -> tuple[bytes, ...]:
        """Set the budget; return the keys that the node must drop to stay within it."""
        self._budget = budget
        return tuple(self._drop(budget))

    def shrink_to(self, nbytes: int) -> tuple[bytes, ...]:
        """Return the keys that the node must drop to hold at most `nbytes` now. The budget does not change."""
        return tuple(self._drop(nbytes))

    def want[B: Sized](self, blobs: Mapping[bytes, B]) -> tuple[dict[bytes, B], tuple[bytes, ...]]:
        """Return the blobs to send so that the node has all of `blobs`, and the keys that it must drop for its budget.

        Until `release`, none of them is dropped for others, so concurrent wants may exceed the budget.
        """
        missing = {}
        for key, view in blobs.items():
            self._wanted[key] += 1
            if key in self._sizes:
                self._sizes.move_to_end(key)
            else:
                missing[key] = view
                self._sizes[key] = view.nbytes
                self._total += view.nbytes
        return missing, tuple(self._drop(self._budget)) if self._total > self._budget else ()

    def _drop(self, budget: int) -> Iterator[bytes]:
        for key in [key for key in self._sizes if key not in self._wanted]:
            if self._total <= budget:
                return
            self._total -= self._sizes.pop(key)
            yield key

    def adopt(self, blobs: Iterable[tuple[bytes, int]]) -> None:
        """Add blobs that the node holds already: keys and sizes."""
        for key, size in blobs:
            if key not in self._sizes:
                self._sizes[key] = size
                self._total += size

    def release(self, blobs: Iterable[bytes]) -> None:
        """Release wanted blobs: their task was sent after them, or never will be. Called once for each `want`."""
        for key in blobs:
            self._wanted[key] -= 1
            if not self._wanted[key]:
                del self._wanted[key]

    def can_pin(self, size: int) -> bool:
        """Return whether `size` more bytes can be pinned within the budget."""
        return sum(self._pinned.values()) + size <= self._budget

    def pin(self, keys: Iterable[bytes]) -> None:
        """Keep these blobs, which the node holds, until `unpin`. Each may be pinned once."""
        for key in keys:
            self._pinned[key] = self._sizes[key]
            self._wanted[key] += 1

    def unpin(self, keys: Iterable[bytes]) -> None:
        """Undo a `pin`."""
        for key in keys:
            if self._pinned.pop(key, None) is not None:
                self.release([key])

    def discard(self, keys: Iterable[bytes]) -> tuple[bytes, ...]:
        """Remove blobs that are not wanted; return the keys that the node must drop."""
        dropped = tuple(key for key in keys if key in self._sizes and key not in self._wanted)
        for key in dropped:
            self._total -= self._sizes.pop(key)
        return dropped

    def forget(self, key: bytes) -> None:
        """Remove a blob whose transfer failed."""
        self._total -= self._sizes.pop(key, 0)
