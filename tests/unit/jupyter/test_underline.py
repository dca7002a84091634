"""What is wrong in the line of a magic is underlined."""

import pytest

from tests.unit.jupyter.conftest import Notebook

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("line", "below"),
    [
        ("%%sky --noblock --nodes x --quiet", "                ^^^^^^^^^"),
        ("%%sky --nodes=x --quiet", "      ^^^^^^^^^"),
        ("%%sky --timeout", "      ^^^^^^^^^"),
        ("%%sky --nodes 2 --quiet --nodes 3", "      ^^^^^^^^^         ^^^^^^^^^"),
        ("%%sky --map xs --quiet --on all", "      ^^^^^^^^         ^^^^^^^^"),
        ("%%sky --no-capture -i x", "      ^^^^^^^^^^^^ ^^"),
        ("%%sky --quiet print", "              ^^^^^"),
        ("%sky up train --budget none", "              ^^^^^^^^^^^^^"),
        ("%sky up --map xs", "        ^^^^^"),
        ("%%sky --quiet --pool 'a", "                     ^^"),
        ("%%sky --nodes 2 \\", "                ^"),
        ("%sky up 'train", "        ^^^^^^"),
    ],
)
def test_what_is_wrong_is_underlined(notebook: Notebook, line: str, below: str) -> None:
    shown = notebook(f"{line}\n1" if line.startswith("%%") else line).shown_error
    assert shown.splitlines()[1:] == [f"    {line}", f"    {below}"], shown


def test_secrets_are_left_out(notebook: Notebook) -> None:
    shown = notebook("%%sky --env TOKEN=hidden --env=KEY=hidden --env 'ODD NAME=hidden' --nodes x\n1").shown_error
    assert "hidden" not in shown
    assert "--env TOKEN=... --env=KEY=..." in shown


@pytest.mark.parametrize("line", ["--env 'TOKEN=hidden", "--env=TOKEN='hidden", "--pool 'a --env TOKEN=hidden"])
def test_secrets_are_left_out_of_a_line_that_cannot_be_read(notebook: Notebook, line: str) -> None:
    shown = notebook(f"%%sky {line}\n1").shown_error
    assert "hidden" not in shown
    assert "^^" in shown


def test_nothing_is_underlined_where_no_option_is_to_blame(notebook: Notebook) -> None:
    assert len(notebook("%%sky\nundefined_name").shown_error.splitlines()) == 1
