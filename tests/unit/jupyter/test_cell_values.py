"""The value of a cell is in `_` and `Out`, as if the cell had run in the notebook."""

import pytest

from tests.unit.jupyter.conftest import Notebook

pytestmark = pytest.mark.unit


def values(notebook: Notebook, name: str = "_") -> object:
    return notebook.shell.user_ns.get(name)


@pytest.mark.parametrize("cell", ["6 * 7", "await __import__('asyncio').sleep(0, 42)", "x = 42\nx"])
def test_value_of_a_cell_is_in_the_history(notebook: Notebook, cell: str) -> None:
    ran = notebook(f"%%sky\n{cell}")
    assert ran.result is None  # it was displayed by the node
    number = notebook.shell.execution_count - 1
    assert values(notebook) == values(notebook, f"_{number}") == notebook.shell.user_ns["Out"][number] == 42


def test_value_that_a_variable_holds_is_the_same_object(notebook: Notebook) -> None:
    notebook("xs = [1]")
    notebook("%%sky\nxs.append(2)\nxs")
    assert values(notebook) is values(notebook, "xs")
    notebook("%%sky\nys = [xs]\nys")
    assert values(notebook) is values(notebook, "ys")
    notebook("%%sky\n[xs, ys]")
    assert notebook("_[0] is xs and _[1] is ys").result is True


@pytest.mark.parametrize("cell", ["None", "x = 1", "6 * 7;", "1 / 0"])
def test_cell_without_a_value_keeps_the_previous_one(notebook: Notebook, cell: str) -> None:
    notebook("'before'")
    notebook(f"%%sky\n{cell}")
    assert values(notebook) == "before"


def test_value_that_was_not_returned_explains_why_on_use(notebook: Notebook) -> None:
    ran = notebook("%%sky\nimport threading\nthreading.Lock()")
    assert ran.err == ""
    assert "cannot be pickled" in repr(values(notebook))
    assert str(notebook("_.acquire()").error).startswith(
        "this value was not returned from its node: it is of type _thread.lock"
    )
    notebook("%%sky\nbytes(20 << 20)")
    assert repr(values(notebook)) == (
        "<a value that was not returned from its node: its 20.0 MiB are returned only under a name>"
    )
    notebook("%%sky\nx = bytes(20 << 20)\nx")
    assert values(notebook) is values(notebook, "x")


def test_values_of_several_runs_are_a_list(notebook: Notebook) -> None:
    notebook("xs = [1, 2]")
    notebook("%sky up --nodes 2")
    assert notebook("%%sky --on all\n'v'").result is None
    assert values(notebook) == ["v", "v"]
    assert notebook("%%sky --map xs\nxs * 2").result == [2, 4] == values(notebook)


@pytest.mark.parametrize(("cell", "result"), [("x = xs", None), ("xs * 2", [])])
def test_value_of_a_map_over_an_empty_list_is_a_list(notebook: Notebook, cell: str, result: object) -> None:
    notebook("xs = []")
    assert notebook(f"%%sky --map xs\n{cell}").result == result


def test_elements_of_a_stream_are_a_list(notebook: Notebook) -> None:
    notebook("%%sky\nfor i in range(3):\n    yield {'loss': i}")
    assert values(notebook) == [{"loss": 0}, {"loss": 1}, {"loss": 2}]
    notebook("%%sky\nyield 1\n1 / 0")
    assert values(notebook) == [1]


def test_result_of_a_background_cell_is_its_value(notebook: Notebook) -> None:
    notebook.shell.user_ns["handle"] = notebook("%%sky --noblock\nx = 6\nx * 7").result
    assert notebook("handle.result()").result == 42
    assert values(notebook, "x") == 6


def test_finished_background_cell_keeps_no_value_alive(notebook: Notebook) -> None:
    notebook("import weakref\nclass A: pass\na = A()\nref = weakref.ref(a)")
    notebook.shell.user_ns["handle"] = notebook("%%sky --noblock\nx = a").result
    notebook("handle.result()\ndel a, x")
    assert notebook("import gc\n_ = gc.collect()\nref() is None").result is True
