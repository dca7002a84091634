"""The queued machines of one group: those that are due, by rank, and the others, by the time at which they are."""

from bisect import bisect_left, bisect_right, insort
from math import inf

__all__ = ["LaunchQueue"]


class LaunchQueue:
    """Numbers of queued machines, in sorted lists, so that looking does not visit each of them.

    The time that is passed never decreases: a machine that was due stays so.
    """

    def __init__(self) -> None:
        self._due: list[tuple[int, int]] = []
        self._later: list[tuple[float, int, int]] = []

    def __len__(self) -> int:
        """Return the number of queued machines, due or not."""
        return len(self._due) + len(self._later)

    def add(self, machine: int, rank: int, not_before: float) -> None:
        """Add a machine that is due at `not_before`."""
        insort(self._later, (not_before, rank, machine))

    def remove(self, machine: int, rank: int, not_before: float) -> None:
        """Remove a machine, with the values that it was added with."""
        if not _delete(self._later, (not_before, rank, machine)):
            _delete(self._due, (rank, machine))

    def due(self, now: float) -> int:
        """Return the number of machines that are due."""
        if self._later and self._later[0][0] <= now:
            end = bisect_right(self._later, (now, inf, inf))
            for _, rank, machine in self._later[:end]:
                insort(self._due, (rank, machine))
            del self._later[:end]
        return len(self._due)

    def first(self, count: int) -> list[int]:
        """Return up to `count` of the machines that were due at the last call of `due`, the lowest ranks first."""
        return [machine for _, machine in self._due[:count]]

    @property
    def next_at(self) -> float | None:
        """The time at which another machine is due, after the last call of `due`; None if none waits."""
        return self._later[0][0] if self._later else None


def _delete[T: tuple[float, ...]](entries: list[T], entry: T) -> bool:
    """Delete an entry of a sorted list; return whether it was there."""
    place = bisect_left(entries, entry)
    if place == len(entries) or entries[place] != entry:
        return False
    del entries[place]
    return True
