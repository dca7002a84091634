"""Tables as plain text."""

import pytest

from skyward.views.drawing import table
from skyward.views.status import POOL_STATUSES

pytestmark = pytest.mark.unit


def test_numbers_are_right_aligned_and_lines_have_no_trailing_spaces() -> None:
    assert table(("node", "state", "note"), [(0, "idle", "x"), (10, "busy", "")]) == (
        "node  state  note\n"
        "   0  idle   x\n"
        "  10  busy"
    )  # fmt: skip


def test_columns_can_be_right_aligned_by_name() -> None:
    assert table(("cost", "n"), [("$0.10", 1)], right=("cost",)) == " cost  n\n$0.10  1"


def test_empty_table_is_its_header() -> None:
    assert table(("a", "b"), []) == "a  b"


def test_wide_characters_take_two_columns() -> None:
    assert table(("code", "node"), [("学習", "a"), ("f", "b")]) == "code  node\n学習  a\nf     b"


def test_text_is_neither_markup_nor_control_sequences() -> None:
    assert table(("a",), [("[red]x[/red] :smile:",), ("\x1b[2J\ty\nz",)]) == "a\n[red]x[/red] :smile:\n?[2J y z"


def test_label_is_drawn_as_its_word() -> None:
    assert table(("state",), [(POOL_STATUSES["ready"],)]) == "state\nready"


def test_long_lines_are_neither_wrapped_nor_cut() -> None:
    assert table(("code",), [("x" * 5000,)]) == f"code\n{'x' * 5000}"
