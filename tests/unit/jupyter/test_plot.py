"""`--plot`: downsampling and drawing of the numbers that a cell yields."""

import math
import re
import xml.etree.ElementTree as ET
from collections import namedtuple

import numpy as np
import pytest

from skyward_jupyter.display.chart import COLOURS, caption, picture, ticks
from skyward_jupyter.display.curves import COLUMNS, KEYS, Curves, numbers_of
from tests.unit.jupyter.conftest import Notebook

pytestmark = pytest.mark.unit

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("element", "numbers"),
    [
        (3, {"value": 3.0}),
        (np.float32(0.5), {"value": 0.5}),
        (np.array(2), {"value": 2.0}),
        ((1, 2.5), {"0": 1.0, "1": 2.5}),
        (Point(1, 2), {"x": 1.0, "y": 2.0}),
        ({"loss": 1, 7: True}, {"loss": 1.0, "7": 1.0}),
        ({"loss": 1, "phase": "warmup"}, {"loss": 1.0}),
        ({}, {}),
        ((), {}),
        ((1, "a"), {}),
        ("1.5", {}),
        (1j, {}),
        (10**400, {}),
        (np.array([1.0]), {}),
        (np.array("a"), {}),
        ([1, 2], {}),
        (None, {}),
    ],
)
def test_numbers_of_an_element_are_its_curves(element: object, numbers: dict[str, float]) -> None:
    assert numbers_of(element)[0] == numbers
    assert Curves().add(element) is bool(numbers)


def drawn(elements: object) -> Curves:
    curves = Curves()
    for element in elements:  # type: ignore[attr-defined]
        curves.add(element)
    return curves


def points(curves: Curves) -> list[list[tuple[float, float]]]:
    """Return the points of each curve in the picture, which must be well-formed XML."""
    root = ET.fromstring(picture(curves))
    found = []
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        if path.get("stroke-linecap") == "round":
            x, row = 0.0, []
            for kind, numbers in re.findall(r"([MLVh])([-\d. ]+)", path.get("d") or ""):
                values = [float(number) for number in numbers.split()]
                if kind in "ML":
                    x = values[0]
                    row.append((x, values[1]))
                elif kind == "V":
                    row.append((x, values[0]))
            found.append(row)
    return found


def test_million_elements_take_little_memory_and_keep_extremes() -> None:
    curves = drawn({"loss": 1e6 if i == 654_321 else i % 7} for i in range(1_000_000))
    curve = curves.curves["loss"]
    assert curves.count == 1_000_000
    assert COLUMNS / 2 <= len(curve.stretches) <= COLUMNS
    peak = next(number for number, _, high in curve.stretches if high == 1e6)
    assert peak == 654_321 // curves.step
    assert min(low for _, low, _ in curve.stretches) == 0
    assert len(picture(curves)) < 40_000
    assert caption(curves) == f"loss {999_999 % 7} (1,000,000 elements)"


def test_short_stream_has_every_point_drawn() -> None:
    (row,) = points(drawn([1.0, 3.0, 2.0]))
    (x0, y0), (x1, y1), (x2, y2) = row
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y1 < y2 < y0, "greater values are drawn higher"


def test_non_finite_numbers_interrupt_the_curve_and_appear_in_the_caption() -> None:
    curves = drawn([{"loss": number} for number in (1.0, math.nan, 2.0, math.inf)])
    assert caption(curves) == "loss inf (4 elements)"
    assert picture(curves).count('h0"') + picture(curves).count("h0M") == 2
    assert points(drawn([math.nan, -math.inf])) == [], "nothing to draw, and no error"


@pytest.mark.parametrize(
    "numbers", [[5], [0, 0, 0], [1e300, -1e300], [1.7e308, -1.7e308], [5e-324, 0], [1e9, 1e9 + 1], [1e-12, 3e-12]]
)
def test_any_range_can_be_drawn(numbers: list[float]) -> None:
    (row,) = points(drawn(numbers))
    assert len(row) == len(numbers)
    assert all(0 <= x <= 640 and 0 <= y <= 260 for x, y in row)
    root = ET.fromstring(picture(drawn(numbers)))
    labels = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text") if text.get("text-anchor") == "end"]
    assert len(labels) == len(set(labels)) >= 2


def test_late_or_rare_key_is_drawn_at_its_position() -> None:
    curves = drawn({"loss": 1, **({"valid": 2} if i % 50 == 49 else {})} for i in range(100))
    loss, valid = points(curves)
    assert [x for x, _ in valid] == [loss[49][0], loss[99][0]]


def test_texts_in_the_picture_are_escaped() -> None:
    curves = drawn([{"<script>&\"'": 1, "phase": "<b>"}])
    assert "<script>" not in picture(curves)
    ET.fromstring(picture(curves))
    assert caption(curves) == "<script>&\"' 1, phase: '<b>' (1 element)"


def test_excess_keys_are_counted_but_not_drawn() -> None:
    curves = drawn([{f"a rather long name {n}": n for n in range(KEYS + 5)}])
    assert len(points(curves)) == KEYS
    assert "5 more not drawn" in caption(curves)
    strokes = re.findall(r'fill="none" (stroke="#\w+" stroke-width="2"(?: stroke-dasharray="[^"]+")?)', picture(curves))
    assert len(set(strokes)) == KEYS, "no two curves look alike"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0, 99, [0, 20, 40, 60, 80]), (-3, 3, [-2, 0, 2])],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high, 5) == pytest.approx(expected)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", COLOURS)
def test_colours_stand_out_on_light_and_dark(colour: str) -> None:
    own = _luminance(colour)
    assert 1.05 / (own + 0.05) > 2.7
    assert (own + 0.05) / (_luminance("#111111") + 0.05) > 2.7


def test_plotted_elements_are_not_printed(notebook: Notebook) -> None:
    ran = notebook("%%sky --plot\nfor i in range(3):\n    yield {'loss': i / 2}")
    assert (ran.out, ran.err) == ("", "")
    assert ran.displays == ["loss 1 (3 elements)"], "a terminal shows the last state"
    assert notebook["_"] == [{"loss": 0.0}, {"loss": 0.5}, {"loss": 1.0}]


def test_elements_without_numbers_are_printed(notebook: Notebook) -> None:
    ran = notebook("%%sky --plot\nyield 'begin'\nyield 1\nyield 'end'")
    assert ran.out == "'begin'\n'end'\n"
    assert ran.displays == ["value 1 (1 element)"]
    ran = notebook("%%sky --plot\nyield 'nothing'")
    assert ran.displays == []
    assert ran.err == "--plot drew nothing: no element was a number, or a tuple or dict of numbers.\n"


def test_elements_before_an_error_are_drawn(notebook: Notebook) -> None:
    ran = notebook("%%sky --plot\nyield 1\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert ran.displays == ["value 1 (1 element)"]


def test_cell_without_yield_is_rejected(notebook: Notebook) -> None:
    assert notebook("%%sky --plot\nx = 1").shown_error == (
        "UsageError: --plot draws what a cell yields, but this one yields nothing: add a `yield`, such as `yield loss`."
    )


def test_background_cell_is_drawn_and_shown_again(notebook: Notebook) -> None:
    handle = notebook("%%sky --plot --noblock\nyield 1\nyield 2").result
    assert handle.result() == [1, 2]
    assert notebook("%sky show").displays[0] == "value 2 (2 elements)"
