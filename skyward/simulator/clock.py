"""Virtual time: what is to happen, in the order in which it will."""

import heapq
import itertools
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """A heap of events. Events of the same moment happen in the order they were set.

    Attributes:
        now: seconds since the start.
    """

    __slots__ = ("_events", "_numbers", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """Events that are still to happen."""
        return len(self._events)

    @property
    def next(self) -> float | None:
        """When the next event happens."""
        return self._events[0][0] if self._events else None

    def at(self, when: float, call: Callable[..., None], *arguments: object) -> None:
        """Call at `when`, or now where that is past."""
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), call, arguments))

    def after(self, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        """Call `seconds` from now."""
        self.at(self.now + seconds, call, *arguments)

    def step(self) -> None:
        """Go to the next event, and let it happen."""
        self.now, _, call, arguments = heapq.heappop(self._events)
        call(*arguments)

    def wait(self, until: float) -> None:
        """Go to `until`, where no event is due before."""
        self.now = max(self.now, until)
