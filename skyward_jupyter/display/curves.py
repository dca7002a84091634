"""Downsampled curves for `--plot`: for each key, the extremes of consecutive stretches of elements.

The stretches grow with the number of elements, so that a million elements take no more memory and no more time to
draw than a thousand.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

__all__ = ["COLUMNS", "KEYS", "Curve", "Curves", "numbers_of"]

COLUMNS = 600
"""Maximum number of stretches of a curve."""

KEYS = 15
"""Maximum number of curves that are drawn: those of the first keys."""

_LARGEST = 1e300
"""Bound to which numbers are clamped, so that their differences are finite."""


@dataclass(slots=True)
class Curve:
    """The numbers of one key.

    Attributes:
        stretches: index of the stretch, its minimum and its maximum, in order. Both are NaN if the stretch has
            nothing but NaN and infinities.
        last: the latest number.
    """

    stretches: list[tuple[int, float, float]]
    last: float


class Curves:
    """Curves of the elements of a stream. Not thread-safe.

    Attributes:
        count: number of elements that were added.
        step: number of elements of one stretch.
        curves: by key, in order of first appearance.
        unseen: keys beyond the first `KEYS`, which are not recorded.
        remarks: by key, the latest value that is not a number.
    """

    def __init__(self) -> None:
        self.count = 0
        self.step = 1
        self.curves: dict[str, Curve] = {}
        self.unseen: set[str] = set()
        self.remarks: dict[str, Any] = {}

    def add(self, element: object) -> bool:
        """Add an element and return whether it holds a number; one without is not counted."""
        numbers, rest = numbers_of(element)
        if not numbers:
            return False
        index = self.count
        self.count += 1
        if self.count > self.step * COLUMNS:
            self._merge()
        for key, number in numbers.items():
            self._add(key, number, index // self.step)
        for key, value in rest.items():
            if key in self.remarks or len(self.remarks) < KEYS:
                self.remarks[key] = value
        return True

    def _add(self, key: str, number: float, stretch: int) -> None:
        drawn = max(-_LARGEST, min(_LARGEST, number)) if math.isfinite(number) else math.nan
        curve = self.curves.get(key)
        if curve is None:
            if len(self.curves) < KEYS:
                self.curves[key] = Curve([(stretch, drawn, drawn)], number)
            elif len(self.unseen) < 1000:
                self.unseen.add(key)
            return
        curve.last = number
        last = curve.stretches[-1]
        if last[0] == stretch:
            curve.stretches[-1] = _joined(last, (stretch, drawn, drawn))
        else:
            curve.stretches.append((stretch, drawn, drawn))

    def _merge(self) -> None:
        """Merge every two adjacent stretches into one."""
        self.step *= 2
        for curve in self.curves.values():
            merged: list[tuple[int, float, float]] = []
            for number, low, high in curve.stretches:
                each = (number // 2, low, high)
                if merged and merged[-1][0] == each[0]:
                    merged[-1] = _joined(merged[-1], each)
                else:
                    merged.append(each)
            curve.stretches = merged


def numbers_of(element: object) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the numbers of an element by key, and the other items of a mapping; both empty if it cannot be drawn.

    A bare number has the key "value". The items of a tuple, all of which must be numbers, have their positions as keys
    or, in a named tuple, their names.
    """
    if isinstance(element, Mapping):
        return _sorted_out((str(key), value) for key, value in element.items())
    if isinstance(element, tuple):
        names: Iterable[str] = getattr(element, "_fields", map(str, range(len(element))))
        numbers, rest = _sorted_out(zip(names, element, strict=False))
        return ({}, {}) if rest else (numbers, {})
    number = _number(element)
    return ({}, {}) if number is None else ({"value": number}, {})


def _sorted_out(items: Iterable[tuple[str, Any]]) -> tuple[dict[str, float], dict[str, Any]]:
    numbers: dict[str, float] = {}
    rest: dict[str, Any] = {}
    for key, value in items:
        number = _number(value)
        if number is None:
            rest[key] = value
        else:
            numbers[key] = number
    return numbers, rest


def _number(value: Any) -> float | None:
    """Return `value` as a float; None unless it is a real number or a zero-dimensional array of one."""
    if type(value) is float:
        return value
    if isinstance(value, Real) or getattr(value, "shape", None) == ():
        try:
            return float(value)
        except Exception:  # an array of another type, or an int beyond the range of floats
            return None
    return None


def _joined(one: tuple[int, float, float], other: tuple[int, float, float]) -> tuple[int, float, float]:
    if math.isnan(one[1]) or math.isnan(other[1]):
        return one if math.isnan(other[1]) else other
    return one[0], min(one[1], other[1]), max(one[2], other[2])
