"""What `--plot` keeps of the numbers that a cell yields: for each key the extremes of stretches of elements.

The stretches grow with the number of elements, so that a million of them take no more room, and no more time to draw,
than a thousand.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

__all__ = ["COLUMNS", "KEYS", "Curve", "Curves", "numbers_of"]

COLUMNS = 600
"""Stretches of a curve, at most."""

KEYS = 15
"""Curves that are drawn, at most; the first ones."""

_LARGEST = 1e300
"""Numbers beyond it are taken for it, so that differences of them are finite."""


@dataclass(slots=True)
class Curve:
    """The numbers of one key.

    Attributes:
        stretches: number of the stretch, least and greatest number in it, in order. Both are NaN where there was
            nothing but NaN and infinities.
        last: the latest number.
    """

    stretches: list[tuple[int, float, float]]
    last: float


class Curves:
    """Takes the elements of a stream. It is not safe for several threads.

    Attributes:
        count: elements that were taken.
        step: how many elements one stretch has.
        curves: by key, in the order in which the keys came.
        unseen: keys beyond the first `KEYS`, which are not kept.
        remarks: by key, the latest value that is no number.
    """

    def __init__(self) -> None:
        self.count = 0
        self.step = 1
        self.curves: dict[str, Curve] = {}
        self.unseen: set[str] = set()
        self.remarks: dict[str, Any] = {}

    def add(self, element: object) -> bool:
        """Take an element; whether there is a number in it. If not, it is not counted."""
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
        """Make one stretch of every two."""
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
    """The numbers of an element by their keys, and what else a mapping has. Nothing where the element is not drawn.

    A number has the key "value"; the items of a tuple, all of which must be numbers, have their positions or, in a
    named tuple, their names.
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
    """`value` as a float; None where it is no real number, nor an array of none."""
    if type(value) is float:
        return value
    if isinstance(value, Real) or getattr(value, "shape", None) == ():
        try:
            return float(value)
        except Exception:  # an array of something else, or an int beyond all floats
            return None
    return None


def _joined(one: tuple[int, float, float], other: tuple[int, float, float]) -> tuple[int, float, float]:
    if math.isnan(one[1]) or math.isnan(other[1]):
        return one if math.isnan(other[1]) else other
    return one[0], min(one[1], other[1]), max(one[2], other[2])
