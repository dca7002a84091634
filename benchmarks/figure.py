"""Figures with their floors and peers, their statistics, and the printed table."""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import batched
from typing import Literal

__all__ = ["Aim", "Figure", "Peer", "best", "interleave", "median", "percentile", "table", "timed"]


@dataclass(frozen=True, slots=True)
class Aim:
    """Target value of a figure.

    Attributes:
        of: "ratio" for an aim of ours / floor, "value" for one of ours itself.
        limit: the threshold.
        at_least: True if more is better.
    """

    of: Literal["ratio", "value"]
    limit: float
    at_least: bool = False

    def verdict(self, value: float) -> str:
        """Return "met", or by how much of the limit it was missed."""
        met = value >= self.limit if self.at_least else value <= self.limit
        return "met" if met else f"missed by {abs(value - self.limit) / self.limit:.0%}"

    def text(self, unit: str) -> str:
        """Return the aim as shown in the table."""
        sign = ">=" if self.at_least else "<="
        return f"{sign} {self.limit:g}x floor" if self.of == "ratio" else f"{sign} {number(self.limit)} {unit}"


@dataclass(frozen=True, slots=True)
class Peer:
    """Measurement of a peer, or the reason for its absence."""

    name: str
    value: float | None
    why_not: str = ""

    def text(self, ours: float | None) -> str:
        """Return the entry for the table, with the ratio of ours to theirs."""
        if self.value is None:
            return f"{self.name} {self.why_not}"
        return f"{self.name} {number(self.value)}" + (f" ({ours / self.value:.2g}x)" if ours and self.value else "")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    Attributes:
        ours: None if it could not be measured; `note` has the reason.
        quiet: ratio of the best rounds of ours and of the floor, which have the least noise.
    """

    name: str
    unit: str
    ours: float | None
    floor: float | None = None
    floor_name: str = ""
    quiet: float | None = None
    aim: Aim | None = None
    peers: Sequence[Peer] = field(default_factory=tuple)
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ratio of ours to the floor."""
        return None if self.ours is None or not self.floor else self.ours / self.floor

    @property
    def verdict(self) -> str:
        """Verdict on the aim; empty without an aim."""
        measured = self.ratio if self.aim is not None and self.aim.of == "ratio" else self.ours
        if self.aim is None:
            return ""
        return "not measured" if measured is None else self.aim.verdict(measured)

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the line."""
        ours = f"{number(self.ours)} {self.unit}" if self.ours is not None else "not available"
        floor = f"{number(self.floor)} ({self.floor_name})" if self.floor is not None else self.floor_name
        ratio = f"{self.ratio:.2f}" if self.ratio is not None else ""
        quiet = f"{self.quiet:.2f}" if self.quiet is not None else ""
        aim = self.aim.text(self.unit) if self.aim is not None else ""
        peers = "; ".join(peer.text(self.ours) for peer in self.peers)
        return (self.name, ours, floor, ratio, quiet, aim, self.verdict, "; ".join(filter(None, (peers, self.note))))


HEAD = ("figure", "ours", "floor", "ours / floor", "best rounds", "aim", "verdict", "peers (ours / theirs); notes")


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a Markdown table with aligned columns."""
    rows = [HEAD, *(figure.cells() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD) - 1)]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        return f"| {' | '.join([*padded, cells[-1]])} |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|---|"
    return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])


def number(value: float) -> str:
    """Return a measured number with three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value that `part` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def best(times: Iterable[float], batch: int = 1) -> float:
    """Return the median of the best batch."""
    return min(median(seconds) for seconds in batched(times, batch))


def interleave(calls: Sequence[Callable[[], object]], batch: int, rounds: int) -> list[list[float]]:
    """Return the seconds of single calls of each, in alternating batches, so that noise affects all of them."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(batch):
            call()
    for _ in range(rounds):
        for call, seconds in zip(calls, times, strict=True):
            seconds.extend(timed(call) for _ in range(batch))
    return times
