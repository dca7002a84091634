"""Data locality: the blobs of each node, and the cost of running a task there. Decides only; no I/O.

A cost is in bytes: those of a task's blobs that a node lacks, and `CROWDING` for each task that it already runs. So an
idle node that lacks less than that is preferred to a busy holder. A task never waits for the holder of its data while
another node has a free slot.
"""

from collections.abc import Iterable, Mapping

__all__ = ["CROWDING", "WORTH", "Locality"]

CROWDING = 16 * 1024 * 1024
"""Bytes that are worth sending to an idle node rather than share a holder with another task."""

WORTH = 1024 * 1024
"""Bytes to send from which a task lets a later task, whose data is on a free node, overtake it."""


class Locality:
    """The blobs stored on each node, by rank; blobs in transfer do not count."""

    def __init__(self) -> None:
        self._held: dict[int, set[bytes]] = {}

    def stored(self, rank: int, keys: Iterable[bytes]) -> None:
        """Record that a node has these blobs."""
        self._held.setdefault(rank, set()).update(keys)

    def dropped(self, rank: int, keys: Iterable[bytes]) -> None:
        """Record that a node drops these blobs."""
        if (held := self._held.get(rank)) is not None:
            held.difference_update(keys)

    def left(self, rank: int) -> None:
        """Remove a node and its blobs."""
        self._held.pop(rank, None)

    def to_send(self, rank: int, blobs: Mapping[bytes, int]) -> int:
        """Return the bytes of `blobs` (sizes by key) that a node lacks."""
        held = self._held.get(rank)
        return sum(blobs.values()) if not held else sum(size for key, size in blobs.items() if key not in held)

    def cost(self, rank: int, busy: int, blobs: Mapping[bytes, int]) -> int:
        """Return the cost of a task with `blobs` on a node that already runs `busy` tasks."""
        return self.to_send(rank, blobs) + CROWDING * busy
