"""Underlining of the wrong words in the line of a magic."""

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
def test_wrong_words_are_underlined(notebook: Notebook, line: str, below: str) -> None:
    shown = notebook(f"{line}\n1" if line.startswith("%%") else line).shown_error
    assert shown.splitlines()[1:] == [f"    {line}", f"    {below}"], shown


def test_secrets_are_hidden(notebook: Notebook) -> None:
    shown = notebook("%%sky --env TOKEN=hidden --env=KEY=hidden --env 'ODD NAME=hidden' --nodes x\n1").shown_error
    assert "hidden" not in shown
    assert "--env TOKEN=... --env=KEY=..." in shown


@pytest.mark.parametrize("line", ["--env 'TOKEN=hidden", "--env=TOKEN='hidden", "--pool 'a --env TOKEN=hidden"])
def test_secrets_are_hidden_in_a_malformed_line(notebook: Notebook, line: str) -> None:
    shown = notebook(f"%%sky {line}\n1").shown_error
    assert "hidden" not in shown
    assert "^^" in shown


def test_errors_unrelated_to_options_are_not_underlined(notebook: Notebook) -> None:
    assert len(notebook("%%sky\nundefined_name").shown_error.splitlines()) == 1
