"""Virtual time: a clock that steps through scheduled events."""

import heapq
import itertools
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """A heap of events. Events of the same moment run in the order in which they were scheduled.

    Attributes:
        now: seconds since the start.
    """

    __slots__ = ("_events", "_numbers", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """Return the number of scheduled events."""
        return len(self._events)

    @property
    def next(self) -> float | None:
        """Time of the next event; None if there is none."""
        return self._events[0][0] if self._events else None

    def at(self, when: float, call: Callable[..., None], *arguments: object) -> None:
        """Schedule a call at `when`, or now if that is in the past."""
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), call, arguments))

    def after(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        """Schedule a call `seconds` from now."""
        self.at(self.now + seconds, call, *arguments)

    def step(self) -> None:
        """Advance to the next event, and run it."""
        self.now, _, call, arguments = heapq.heappop(self._events)
        call(*arguments)

    def wait(self, until: float) -> None:
        """Advance to `until`, if no event is due before."""
        self.now = max(self.now, until)
