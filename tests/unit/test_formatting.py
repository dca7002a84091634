"""Formatters, tested with the cases that the panel's formatters share."""

import json
from pathlib import Path

import pytest

from skyward.formatting import asked_to_stop, duration_text, first_line, joined, money_text, nodes_text, size_text

pytestmark = pytest.mark.unit

CASES = json.loads((Path(__file__).parents[1] / "cases" / "formats.json").read_text())
FORMATTERS = {"money": money_text, "duration": duration_text, "size": size_text}


@pytest.mark.parametrize(
    ("kind", "value", "text"), [(kind, value, text) for kind in FORMATTERS for value, text in CASES[kind]]
)
def test_formatters_match_the_shared_cases(kind: str, value: float, text: str) -> None:
    assert FORMATTERS[kind](value) == text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [((3,), "node 3"), ((1, 0), "nodes 0 and 1"), ((0, 0), "node 0"), ({4, 0, 10}, "nodes 0, 4 and 10"), ((), "")],
)
def test_nodes_are_listed_in_a_sentence(ranks: tuple[int, ...], text: str) -> None:
    assert nodes_text(ranks) == text


def test_nodes_without_confirmation_of_a_stop_are_named() -> None:
    assert asked_to_stop({2}) == "node 2 was asked to stop the work, and has not confirmed it yet"
    assert asked_to_stop({2, 0}) == "nodes 0 and 2 were asked to stop the work, and have not confirmed it yet"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("no\nmore", "no"),
        ("\n \n\tCUDA  out of\tmemory \r\nrest", "CUDA out of memory"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07", "red ?]0;title?"),
        ("x" * 200, "x" * 200),
        ("x" * 10_000_000, "x" * 199 + "…"),
    ],
)
def test_first_line_of_a_text_is_safe_to_show(text: str, line: str) -> None:
    assert first_line(text) == line


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "a"), (2, "a and b"), (3, "a, b and c"), (4, "a, b, c and 1 more")]
)
def test_long_list_in_a_sentence_ends_with_the_number_of_the_others(count: int, text: str) -> None:
    assert joined("abcdefgh"[:count], 3) == text
