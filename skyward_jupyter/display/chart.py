"""Rendering of curves as an SVG picture and as a line of text.

Text, axes and grid inherit the colour of the surrounding text, so the picture is readable in light and dark themes.
"""

import html
import itertools
import math
import reprlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from skyward_jupyter.display.elements import counted

if TYPE_CHECKING:
    from skyward_jupyter.display.curves import Curve, Curves

__all__ = ["COLOURS", "caption", "picture", "ticks"]

COLOURS = ("#0077bb", "#ee7733", "#009988", "#cc3311", "#aa4499")
"""Colours of the curves. They are colour-blind safe and stand out on white and on black."""

_DASHES = ("", "6 3", "1.5 3")
"""Dash patterns: solid for the first five curves, then one pattern for each further five."""

_WIDTH, _HEIGHT = 640, 260
_TOP, _RIGHT, _BOTTOM = 8, 10, 34
_CHARACTER = 6.4
_ROW = 17
"""Sizes in pixels; `_CHARACTER` is the average width of a character of the font."""

_LONGEST_KEY = 30


def caption(curves: "Curves") -> str:
    """Return the latest values as text: `loss 0.12, accuracy 0.97 (100 elements)`."""
    parts = [f"{_short(key)} {curve.last:.5g}" for key, curve in curves.curves.items()]
    parts += [f"{_short(key)}: {_brief(value)}" for key, value in curves.remarks.items()]
    if curves.unseen:
        parts.append(f"{len(curves.unseen)} more not drawn")
    return f"{', '.join(parts)} ({counted(curves.count)})"


def picture(curves: "Curves") -> str:
    """Return an SVG of the curves over the index of the element, with axes and a legend."""
    low, high = _range(curves)
    marks = ticks(low, high, 7)
    labels = _labels(marks)
    left = 14 + _CHARACTER * max(map(len, labels))
    legend, top = _legend(curves, left)
    plot = _Frame(left, top, low, high, max(curves.count - 1, 1))
    text = html.escape(caption(curves))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'style="max-width:100%;height:auto" role="img" aria-label="{text}" fill="currentColor" '
        'font-family="system-ui,sans-serif" font-size="11">',
        *legend,
    ]
    for value, label in zip(marks, labels, strict=True):
        y = plot.y(value)
        parts.append(
            f'<path d="M{plot.left:.1f} {y:.1f}H{plot.right}" stroke="currentColor" stroke-opacity=".18"/>'
            f'<text x="{plot.left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    for value, label in _positions(plot.last):
        x = plot.x(value)
        parts.append(
            f'<path d="M{x:.1f} {plot.bottom}v4" stroke="currentColor" stroke-opacity=".6"/>'
            f'<text x="{x:.1f}" y="{plot.bottom + 16}" text-anchor="middle">{label}</text>'
        )
    parts.append(
        f'<path d="M{plot.left:.1f} {top}V{plot.bottom}H{plot.right}" fill="none" stroke="currentColor" '
        'stroke-opacity=".6"/>'
        f'<text x="{(plot.left + plot.right) / 2:.1f}" y="{_HEIGHT - 3}" text-anchor="middle">element</text>'
    )
    opacity = ' stroke-opacity=".75"' if curves.step > 1 else ""  # curves behind a dense one stay visible
    for number, curve in enumerate(curves.curves.values()):
        if path := _path(curve, plot, curves.step, curves.count):
            parts.append(
                f'<path d="{path}" fill="none" {_stroke(number)}{opacity} '
                'stroke-linejoin="round" stroke-linecap="round"/>'
            )
    parts.append("</svg>")
    return "".join(parts)


class _Frame:
    """Mapping of positions and values to pixels of the picture."""

    def __init__(self, left: float, top: float, low: float, high: float, last: int) -> None:
        self.left, self.right = left, _WIDTH - _RIGHT
        self.top, self.bottom = top, _HEIGHT - _BOTTOM
        self.last = last
        self._low, self._high = low, high

    def x(self, position: float) -> float:
        return self.left + (self.right - self.left) * position / self.last

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * ((value - self._low) / (self._high - self._low))


def ticks(low: float, high: float, about: int) -> list[float]:
    """Return about `about` round, evenly spaced numbers from `low` to `high`; `low` must be less than `high`."""
    rough = (high - low) / about
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next((factor * scale for factor in (1, 2, 2.5, 5) if factor * scale >= rough), 10 * scale)
    first = math.ceil(low / step - 1e-9)
    return [step * number for number in range(first, first + 2 * about + 2) if step * number <= high + step * 1e-9]


def _range(curves: "Curves") -> tuple[float, float]:
    """Return the least and the greatest number with a margin, also if they are equal."""
    lows = [low for curve in curves.curves.values() for _, low, _ in curve.stretches if not math.isnan(low)]
    highs = [high for curve in curves.curves.values() for _, _, high in curve.stretches if not math.isnan(high)]
    low, high = min(lows, default=0.0), max(highs, default=1.0)
    apart = max(abs(low), abs(high)) * 1e-12
    if high - low <= apart or high - low < 1e-290:
        margin = abs(low) * 0.1 or 1.0
        return low - margin, high + margin
    margin = (high - low) * 0.04
    return low - margin, high + margin


def _labels(marks: list[float]) -> list[str]:
    """Format the numbers with as few digits as keep them distinct."""
    size = max(map(abs, marks))
    step = min((abs(b - a) for a, b in itertools.pairwise(marks)), default=size) or 1.0
    if step >= 1e-4 and size < 1e7:
        digits = next((n for n in range(6) if all(abs(round(m, n) - m) < step * 1e-3 for m in marks)), 6)
        return [f"{mark:,.{digits}f}" for mark in marks]
    digits = min(16, max(2, math.ceil(math.log10(size / step)) + 2)) if size else 2
    return [f"{mark:.{digits}g}" if abs(mark) > step * 1e-6 else "0" for mark in marks]


def _positions(last: int) -> Iterator[tuple[float, str]]:
    """Yield the ticks of the element axis, each with its label."""
    for mark in ticks(0, last, 6):
        if mark == int(mark):
            yield mark, f"{int(mark):,}"


def _legend(curves: "Curves", left: float) -> tuple[list[str], float]:
    """Return the SVG parts of the legend and the y coordinate below it."""
    parts: list[str] = []
    x, y = left, float(_TOP)
    entries: list[tuple[str, int | None]] = [
        (f"{_short(key)} {curve.last:.5g}", number) for number, (key, curve) in enumerate(curves.curves.items())
    ]
    entries += [(f"{_short(key)}: {_brief(value)}", None) for key, value in curves.remarks.items()]
    if curves.unseen:
        entries.append((f"{len(curves.unseen)} more not drawn", None))
    for text, number in entries:
        width = _CHARACTER * len(text) + (28 if number is not None else 0)
        if x > left and x + width > _WIDTH - _RIGHT:
            x, y = left, y + _ROW
        if y > _HEIGHT / 2:
            break
        if number is not None:
            parts.append(f'<path d="M{x:.1f} {y + 5:.1f}h18" {_stroke(number)}/>')
        start = x if number is None else x + 23
        parts.append(f'<text x="{start:.1f}" y="{y + 9:.1f}">{html.escape(text)}</text>')
        x += width + 14
    return parts, y + _ROW + 3


def _stroke(number: int) -> str:
    dash = _DASHES[number // len(COLOURS) % len(_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"{dashed}'


def _path(curve: "Curve", plot: _Frame, step: int, count: int) -> str:
    """Return the SVG path of a curve; each stretch begins at the end that is nearer to the stretch before."""
    parts: list[str] = []
    before: float | None = None
    for stretch, low, high in curve.stretches:
        if math.isnan(low):
            before = None
            continue
        x = plot.x(min((stretch + 0.5) * step - 0.5, count - 1))
        y, to = plot.y(low), plot.y(high)
        if before is not None and abs(to - before) < abs(y - before):
            y, to = to, y
        parts.append(f"{'M' if before is None else 'L'}{x:.1f} {y:.1f}")
        if to != y:
            parts.append(f"V{to:.1f}")
        elif before is None:
            parts.append("h0")  # makes a single point visible
        before = to
    return "".join(parts)


def _short(key: str) -> str:
    return key if len(key) <= _LONGEST_KEY else f"{key[: _LONGEST_KEY - 3]}..."


def _brief(value: object) -> str:
    return reprlib.repr(value)[:_LONGEST_KEY]
