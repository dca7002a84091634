"""Which nodes hold the data of which tasks, and what running a task elsewhere costs. Decides; does nothing.

A cost is in bytes: those that a node lacks of a task's blobs, and `CROWDING` for each task that it runs already. So an
idle node that must be sent less than that is preferred to the holder that has work. A task never waits for the holder
of its data while another node has a free slot.
"""

from collections.abc import Iterable, Mapping

__all__ = ["CROWDING", "WORTH", "Locality"]

CROWDING = 16 * 1024 * 1024
"""Bytes that are sent to an idle node rather than have a task share the holder with another."""

WORTH = 1024 * 1024
"""Bytes to send from which a task lets one behind it go first whose data a free node holds."""


class Locality:
    """The blobs that are on the nodes for sure, by rank; what is on its way to a node is not."""

    def __init__(self) -> None:
        self._held: dict[int, set[bytes]] = {}

    def stored(self, rank: int, keys: Iterable[bytes]) -> None:
        """Note that a node has these blobs."""
        self._held.setdefault(rank, set()).update(keys)

    def dropped(self, rank: int, keys: Iterable[bytes]) -> None:
        """Note that a node has been told to forget these blobs."""
        if (held := self._held.get(rank)) is not None:
            held.difference_update(keys)

    def left(self, rank: int) -> None:
        """Note that a node is gone, with all it held."""
        self._held.pop(rank, None)

    def to_send(self, rank: int, blobs: Mapping[bytes, int]) -> int:
        """Return how many bytes of `blobs`, which are sizes by key, a node lacks."""
        held = self._held.get(rank)
        return sum(blobs.values()) if not held else sum(size for key, size in blobs.items() if key not in held)

    def cost(self, rank: int, busy: int, blobs: Mapping[bytes, int]) -> int:
        """Return what it costs to run a task with `blobs` on a node that runs `busy` tasks already."""
        return self.to_send(rank, blobs) + CROWDING * busy
