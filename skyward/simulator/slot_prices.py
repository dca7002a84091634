"""Prices of slots over time for the lower bound of the cost at a given wait; `bound` says why they give one.

A price is given by a function `f` of time, between 0 and the boot time, which falls by at most 1 a second. It is linear
between its knots. Two functions are tried, and their mean:

- for the compulsory parts of the tasks: low at their starts and high at their ends;
- for the least variable load that meets all waits: the cumulated work lies between what has arrived and what must be
  done, and the shortest string between these two curves has the fewest and smallest rises. `f` is low where the string
  becomes steeper, and high where it becomes flatter.

Each is the best `f` for the rises and falls of one load, found in one pass. The better of them is then improved, in a
few rounds: the tasks start when it is cheapest, and `f` moves toward the best one for all loads of that kind so far.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

__all__ = ["PricedTask", "SlotPrices", "best_payment", "least_payment", "slot_prices"]

POINTS = 20_000
"""Maximum number of points at which the curves of the work are compared."""

TRIED = 400_000
"""Maximum number of starts that are tried for all tasks; `f` is made coarser to stay below."""

LONG_WAIT = 32
"""Number of knots within a wait from which it counts as long."""

MOST_ROUNDS = 12
REPEATED = 60_000
"""Maximum number of rounds of improvement, and of tasks in all of them: many tasks need it less, and take longer."""


class PricedTask(NamedTuple):
    """A task: its arrival and duration in seconds, and the price of a slot for it, USD per second."""

    at: float
    seconds: float
    price: float


@dataclass(frozen=True, slots=True)
class SlotPrices:
    """The function `f`: its value at each knot; it is constant before the first and after the last."""

    times: Sequence[float]
    values: Sequence[float]

    def at(self, time: float) -> float:
        """Return the value at a time."""
        place = bisect_right(self.times, time)
        if not place:
            return self.values[0]
        if place == len(self.times):
            return self.values[-1]
        before, after = self.times[place - 1], self.times[place]
        share = (time - before) / (after - before)
        return self.values[place - 1] + share * (self.values[place] - self.values[place - 1])

    def sampled(self, gap: float) -> "SlotPrices":
        """Return the function with a knot every `gap` seconds; it keeps its range and its slopes."""
        count = int((self.times[-1] - self.times[0]) / gap) + 2
        times = [self.times[0] + number * gap for number in range(count)]
        return SlotPrices(times, [self.at(time) for time in times])

    def mean(self, other: "SlotPrices", share: float = 0.5) -> "SlotPrices":
        """Return the mean of two functions, of which the other one has a share."""
        times = sorted({*self.times, *other.times})
        return SlotPrices(times, [(1 - share) * self.at(time) + share * other.at(time) for time in times])


def best_payment(tasks: Sequence[PricedTask], wait: float, boot: float) -> float:
    """Return the most that prices are found for which the tasks pay at least, each starting when it is cheapest."""
    tried = [(*least_payment(tasks, wait, f), f) for f in slot_prices(tasks, wait, boot)]
    best, starts, f = max(tried, key=lambda each: each[0])
    changes: list[tuple[float, float]] = []
    for number in range(_rounds(tasks, wait, f)):
        changes += ((start, task.price) for start, task in zip(starts, tasks, strict=True))
        changes += ((start + task.seconds, -task.price) for start, task in zip(starts, tasks, strict=True))
        f = f.mean(_best_for(changes, boot), 1 / (number + 2.5))
        paid, starts = least_payment(tasks, wait, f)
        best = max(best, paid)
    return best


def _rounds(tasks: Sequence[PricedTask], wait: float, f: SlotPrices) -> int:
    """Return the number of rounds; none for long waits, at which the first prices are as good."""
    return 0 if _knots_within(wait, f) > LONG_WAIT else min(MOST_ROUNDS, REPEATED // len(tasks))


def slot_prices(tasks: Sequence[PricedTask], wait: float, boot: float) -> list[SlotPrices]:
    """Return functions for the prices of slots, for tasks that may wait for `wait` seconds."""
    found = []
    if compulsory := [task for task in tasks if task.seconds > wait]:
        starts = [(task.at + wait, task.price) for task in compulsory]
        ends = [(task.at + task.seconds, -task.price) for task in compulsory]
        found.append(_best_for(starts + ends, boot))
    found.append(_best_for(_string(tasks, wait), boot))
    return [*found, found[0].mean(found[1])] if len(found) > 1 else found


def least_payment(tasks: Sequence[PricedTask], wait: float, f: SlotPrices) -> tuple[float, list[float]]:
    """Return what the tasks pay in total if each starts when it is cheapest, and these starts.

    Each starts within `wait` seconds of its arrival. With very many tasks and knots, `f` is made coarser first.
    """
    if len(tasks) * _knots_within(wait, f) > TRIED:
        f = f.sampled(max(2 * wait * len(tasks) / TRIED, (f.times[-1] - f.times[0]) / POINTS))
    times, values, at, total = f.times, f.values, f.at, 0.0
    starts: list[float] = []
    for earliest, seconds, price in tasks:
        latest, end = earliest + wait, earliest + seconds
        start, least = earliest, at(end) - at(earliest)
        if (change := at(end + wait) - at(latest)) < least:
            start, least = latest, change
        for place in range(bisect_right(times, earliest), bisect_left(times, latest)):
            if (change := at(times[place] + seconds) - values[place]) < least:
                start, least = times[place], change
        for place in range(bisect_right(times, end), bisect_left(times, end + wait)):
            if (change := values[place] - at(times[place] - seconds)) < least:
                start, least = times[place] - seconds, change
        total += price * (seconds + least)
        starts.append(start)
    return total, starts


def _knots_within(wait: float, f: SlotPrices) -> float:
    """Return about how many knots there are at which a task could start or end."""
    return 2 * wait * len(f.times) / max(1e-9, f.times[-1] - f.times[0])


def _best_for(changes: Iterable[tuple[float, float]], boot: float) -> SlotPrices:
    """Return the best `f` for a load: the one whose sum of `-change * f(time)` is greatest.

    The best sum up to a change, as a function of the value of `f` there, is concave. Below its peak it is stored as
    breakpoints, each with the amount by which the slope falls there. A fall of the load adds a breakpoint at the boot
    time, a rise removes its amount from the highest ones, and with time all of them move down. Backwards from the last
    change, `f` is then the peak, or as close to it as the slope allows.
    """
    merged: dict[float, float] = {}
    for time, change in changes:
        merged[time] = merged.get(time, 0.0) + change
    times = sorted(merged)
    breaks: deque[list[float]] = deque()  # [position + elapsed time, amount]
    peaks: list[float] = []
    for time in times:
        elapsed, change = time - times[0], merged[time]
        while breaks and breaks[0][0] <= elapsed:
            breaks.popleft()
        if change < 0:
            breaks.append([boot + elapsed, -change])
        while change > 0 and breaks:
            taken = min(change, breaks[-1][1])
            change -= taken
            breaks[-1][1] -= taken
            if breaks[-1][1] > 1e-15:
                break
            breaks.pop()
        peaks.append(breaks[-1][0] - elapsed if breaks else 0.0)
    values = [peaks[-1]]
    for place in range(len(times) - 2, -1, -1):
        values.append(min(peaks[place], values[-1] + times[place + 1] - times[place]))
    return SlotPrices(times, values[::-1])


def _string(tasks: Sequence[PricedTask], wait: float) -> Iterator[tuple[float, float]]:
    """Yield the changes of the slope of the shortest string between the work that has arrived and that must be done."""
    events = sorted(
        [(task.at, task.price) for task in tasks] + [(task.at + task.seconds, -task.price) for task in tasks]
    )
    knots = [time for time, _ in events]
    rates = list(accumulate(change for _, change in events))
    work = [
        0.0,
        *accumulate(rate * (after - before) for rate, (before, after) in zip(rates, pairwise(knots), strict=False)),
    ]
    first, last = knots[0], knots[-1] + wait
    points = sorted({*knots, *(time + wait for time in knots)})
    if len(points) > POINTS:
        points = [first + (last - first) * number / POINTS for number in range(POINTS + 1)]
    arrived = list(_interpolated(knots, work, points))
    due = list(_interpolated([time + wait for time in knots], work, points))
    anchor, height, slope = 0, 0.0, 0.0
    while anchor < len(points) - 1:
        place, new, value = _next_contact(points, due, arrived, anchor, height)
        yield points[anchor], new - slope
        anchor, height, slope = place, value, new
    yield points[-1], -slope


def _next_contact(
    points: Sequence[float], lower: Sequence[float], upper: Sequence[float], anchor: int, height: float
) -> tuple[int, float, float]:
    """Return the place where the string from `anchor` touches a curve next, its slope until there, and its height."""
    least, most = float("-inf"), float("inf")
    low = high = anchor
    for place in range(anchor + 1, len(points)):
        span = points[place] - points[anchor]
        above, below = (upper[place] - height) / span, (lower[place] - height) / span
        if below > most:
            return high, most, upper[high]
        if above < least:
            return low, least, lower[low]
        if above <= most:
            most, high = above, place
        if below >= least:
            least, low = below, place
    return len(points) - 1, (upper[-1] - height) / (points[-1] - points[anchor]), upper[-1]


def _interpolated(knots: Sequence[float], values: Sequence[float], points: Sequence[float]) -> Iterator[float]:
    """Yield the values of a curve at ascending points; it is constant before its first knot and after its last."""
    place, last = 0, len(knots) - 1
    for point in points:
        while place < last and knots[place + 1] <= point:
            place += 1
        if point <= knots[0] or place == last:
            yield values[0] if point <= knots[0] else values[-1]
        else:
            share = (point - knots[place]) / (knots[place + 1] - knots[place])
            yield values[place] + share * (values[place + 1] - values[place])
