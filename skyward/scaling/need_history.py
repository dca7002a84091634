"""Memory of earlier snapshots: the tasks that each group of nodes was needed for lately, and for how long.

Times are divided into spans, of which the most tasks at once count: a node that idles between two tasks is needed.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from skyward.scaling.snapshot import Group, Snapshot
from skyward.scaling.snapshot.fitting import at_once
from skyward.values.needs import NOTHING, Needs

__all__ = ["NeedHistory"]

SPANS = 20
"""Spans in the time within which consolidation must pay."""

KEPT = 3 * SPANS
"""Spans that are remembered."""

SHORTEST = 0.25
"""Seconds of a span at least."""


@dataclass(slots=True)
class _Span:
    """A span of time, with the most tasks at once, and the tasks that were sent to the group and submitted before."""

    since: float
    most: int
    started: int
    submitted: int


class NeedHistory:
    """Tasks that ran on each group, or waited and could have, over time."""

    def __init__(self) -> None:
        self._spans: dict[str, deque[_Span]] = {}
        self._shapes: dict[str, dict[Needs, float]] = {}

    def observe(self, snapshot: Snapshot) -> None:
        """Add what is needed now."""
        length = max(SHORTEST, snapshot.consolidate_within / SPANS)
        for group in snapshot.groups:
            counts, spans = snapshot.counts[group.name], self._spans.setdefault(group.name, deque(maxlen=KEPT))
            waiting = [each for each in snapshot.demands if each.count and at_once(group, each.needs)]
            needed = counts.busy + sum(each.count for each in waiting)
            self.add_shapes(group.name, (each.needs for each in waiting), snapshot.now)
            if spans and snapshot.now < spans[-1].since + length:
                spans[-1].most = max(spans[-1].most, needed)
            else:
                spans.append(_Span(snapshot.now, needed, counts.started, snapshot.submitted))

    def add_shapes(self, group: str, shapes: Iterable[Needs], now: float) -> None:
        """Add shapes of tasks that run on a group, or could."""
        seen = self._shapes.setdefault(group, {})
        for needs in shapes:
            seen[needs] = now

    def shapes(self, group: Group, snapshot: Snapshot) -> list[Needs]:
        """Return the shapes of tasks that the group was needed for within the time in which consolidation must pay."""
        seen = self._shapes.get(group.name, {})
        for needs in [each for each, at in seen.items() if at < snapshot.now - snapshot.consolidate_within]:
            del seen[needs]
        return list(seen) or [NOTHING]

    def peak(self, group: str, snapshot: Snapshot) -> int:
        """Return the most tasks at once within the time in which consolidation must pay."""
        from_then = snapshot.now - snapshot.consolidate_within
        spans = list(self._spans.get(group, ()))
        ends = [*(span.since for span in spans[1:]), snapshot.now]
        return max((span.most for span, end in zip(spans, ends, strict=True) if end >= from_then), default=0)

    def lasted(self, group: str, level: int, now: float) -> float:
        """Return the seconds for which at least `level` tasks at once have been there without a break."""
        since = now
        for span in reversed(self._spans.get(group, ())):
            if span.most < level:
                break
            since = span.since
        return now - since

    def rate(self, group: str, over: float, snapshot: Snapshot) -> float:
        """Return the tasks per second that have arrived for a group within about the last `over` seconds."""
        spans = self._spans.get(group)
        if not spans:
            return 0.0
        from_then = snapshot.now - over
        first = next((span for span in reversed(spans) if span.since <= from_then), spans[0])
        passed = snapshot.now - first.since
        started = snapshot.counts[group].started - first.started
        arrived = min(started, snapshot.submitted - first.submitted)
        return max(0, arrived) / passed if passed > 0 else 0.0
