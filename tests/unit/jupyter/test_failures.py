"""Errors of a cell that fails on several nodes: identical ones are shown once."""

import pytest

from skyward.wire.failures.failure import capture_failure
from skyward.worker.cells.cell import CellResult
from skyward.worker.cells.returned_state import ReturnedState
from skyward_jupyter.failures.notes import note_other_failures
from tests.unit.jupyter.conftest import Notebook

pytestmark = pytest.mark.unit


def test_errors_of_further_runs_are_listed(notebook: Notebook) -> None:
    notebook("xs = list(range(9))")
    lines = notebook("%%sky --map xs\n1 / xs if xs == 0 else [][xs]").shown_error.splitlines()
    assert lines[-3:] == [
        "ZeroDivisionError: division by zero",
        "9 of 9 runs failed.",
        "8 runs on node 0: IndexError: list index out of range",
    ]
    lines = notebook("%%sky --map xs\n{}[xs]").shown_error.splitlines()
    assert lines[-6:] == [f"Node 0: KeyError: {n}" for n in range(1, 6)] + ["... and 3 more."]


def test_identical_errors_are_shown_once(notebook: Notebook) -> None:
    lines = notebook("%%sky --nodes 3 --on all\n1 / 0").shown_error.splitlines()
    assert lines[-3:] == ["ZeroDivisionError: division by zero", "3 of 3 runs failed.", "The same in 2 runs on node 0."]


def test_error_at_another_line_has_its_own_traceback(notebook: Notebook) -> None:
    notebook("xs = [0, 1, 2]")
    shown = notebook("%%sky --map xs\nif xs:\n    {}['missing']\n1 / xs").shown_error
    first, second = shown.split("Traceback (most recent call last on node 0):\n")
    assert first.splitlines()[-2:] == ["ZeroDivisionError: division by zero", "3 of 3 runs failed."]
    assert second.splitlines() == [
        "  Cell In[2], line 3, in <module>",
        "    {}['missing']",
        "KeyError: 'missing'",
        "The same on node 0.",
    ]


def test_node_of_the_first_error_is_named_if_there_are_several_nodes() -> None:
    failure = capture_failure(ValueError("wrong"))
    results = [CellResult(ReturnedState(), failure, node) for node in (1, 0)]
    error = ValueError("wrong")
    note_other_failures(error, results)
    assert error.__notes__ == ["Raised on node 1.", "The same on node 0."]
