"""Gaps in the use of slots, and from them the time for which an idle node is worth keeping.

A pool whose load falls and rises again, as between the cells of a notebook, could have kept the nodes, or have launched
others. The gaps are remembered by the level of the load: the first slot may be needed again every minute, and the
fiftieth once a day. The best time to keep a node is the one that would have cost least over the latest gaps: for each
of them the node is either kept until it ends, or kept for that time and launched again. This is the ski rental problem
with a known distribution.

Source: Karlin, Manasse, McGeoch and Owicki, "Competitive randomized algorithms for non-uniform problems" (1990).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Gaps", "bucket_of"]

REMEMBERED = 16
"""Latest gaps of each level from which the time is found."""

ENOUGH = 2
"""Gaps of a level from which they tell more than a guess."""


def bucket_of(level: int) -> int:
    """Return the bucket of a level of load. Levels are put together by powers of two: 1, 2 to 3, 4 to 7, and so on."""
    return level.bit_length()


@dataclass(slots=True)
class Gaps:
    """Gaps of one group of nodes, by the bucket of the level of its load."""

    _load: int = 0
    _since: list[tuple[float, int]] = field(default_factory=list)
    _gaps: dict[int, deque[tuple[float, int]]] = field(default_factory=dict)

    @property
    def load(self) -> int:
        """Load that was recorded last, in slots."""
        return self._load

    def observe(self, load: int, now: float, fell_at: float | None = None) -> None:
        """Record the load, in slots, at a time in seconds.

        Args:
            fell_at: time at which it fell, if it did, since it was recorded last; None for `now`.
        """
        if load < self._load:
            self._since.append((now if fell_at is None else fell_at, self._load - load))
        while load > self._load:
            level, rise = self._load + 1, load - self._load
            since, count = self._since.pop() if self._since else (None, rise)
            taken = min(count, rise, (1 << bucket_of(level)) - level)  # those of one bucket
            if since is not None:
                self._gaps.setdefault(bucket_of(level), deque(maxlen=REMEMBERED)).append((now - since, taken))
                if count > taken:
                    self._since.append((since, count - taken))
            self._load += taken
        self._load = load

    def best_keep(self, level: int, cost: float) -> float | None:
        """Return the seconds for which a node that is needed from this level of load on is worth keeping.

        Args:
            cost: what another launch costs, in seconds of an idle node.

        Returns:
            None while too few gaps are known.
        """
        gaps = self._gaps.get(bucket_of(level), ())
        if len(gaps) < ENOUGH:
            return None
        return min((0.0, *(gap for gap, _ in gaps if gap <= cost)), key=lambda keep: _regret(gaps, keep, cost))


def _regret(gaps: Sequence[tuple[float, int]], keep: float, cost: float) -> float:
    """Return the idle seconds and launches, in seconds, of keeping nodes for `keep` seconds in each gap."""
    return sum(count * (gap if gap <= keep else keep + cost) for gap, count in gaps)
