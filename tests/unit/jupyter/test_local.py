"""`%%sky --local`, which runs a cell in the notebook itself."""

import pytest

from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit


def test_local_cell_runs_like_a_plain_cell_without_a_pool(notebook: Notebook, compute: type[FakeCompute]) -> None:
    ran = notebook("%%sky --local --nodes 4\ndef f(n): return n + 1\nx = f(1)\nprint('hi')\nx")
    assert ran.out.startswith("hi\n")
    assert ran.result == notebook["x"] == notebook["_"] == 2
    assert notebook["f"](2) == 3
    assert compute.made == []


def test_only_the_footer_shows_that_the_cell_was_local(notebook: Notebook) -> None:
    notebook.magics.footer = True
    (footer,) = notebook("%%sky --local\nx = 1").displays
    assert footer.startswith("here, 0.")
    assert notebook("%%sky --local --no-footer\nx = 1").displays == []
    assert notebook("%%sky --local --quiet\nx = 1").displays == []


def test_semicolon_suppresses_the_value(notebook: Notebook) -> None:
    assert notebook("%%sky --local\n42;").result is None


def test_magics_run_in_the_notebook(notebook: Notebook) -> None:
    assert "CPU times" in notebook("%%sky --local\n%time x = 1").out
    assert notebook("%%sky --local\n%%time\ny = 2").error is None
    assert (notebook["x"], notebook["y"]) == (1, 2)


def test_error_is_unchanged_and_bound_variables_stay(notebook: Notebook) -> None:
    ran = notebook("%%sky --local\ndone = 1\n1 / 0")
    assert isinstance(ran.error, ZeroDivisionError)
    assert "Cell In[1], line 3\n" in ran.shown_error
    assert "----> 3 1 / 0" in ran.shown_error
    assert "skyward" not in ran.shown_error
    assert notebook["done"] == 1


def test_syntax_error_has_its_line(notebook: Notebook) -> None:
    ran = notebook("%%sky --local\n\nx = = 1")
    assert isinstance(ran.error, SyntaxError)
    assert ran.error.lineno == 3


def test_map_runs_sequentially(notebook: Notebook) -> None:
    notebook("xs, seen = [1, 2], []\ndef f(): return xs * 10")
    ran = notebook("%%sky --local --map xs\nseen.append(xs)\nimport os\ntens = f()\nif xs == 2: late = 1\nxs + 1")
    assert ran.result == [2, 3]
    assert notebook["tens"] == [10, 20]
    assert notebook["late"] == [None, 1]
    assert notebook["os"].name
    assert (notebook["xs"], notebook["seen"]) == ([1, 2], [1, 2])


@pytest.mark.parametrize(
    ("cell", "elements", "result"),
    [
        ("ys = xs * 2", [1, 2], None),
        ("print(xs)", [1, 2], None),
        ("xs or None", [0, 2], [None, 2]),
        ("xs", [], []),
        ("ys = xs", [], None),
    ],
)
@pytest.mark.parametrize("where", ["--local ", ""])
def test_map_has_a_list_if_a_run_has_a_value(
    notebook: Notebook, where: str, cell: str, elements: list[int], result: list[int | None] | None
) -> None:
    notebook(f"xs = {elements}")
    ran = notebook(f"%%sky {where}--map xs\n{cell}")
    assert (ran.error, ran.result) == (None, result)


def test_map_restores_variables_if_a_run_raises(notebook: Notebook) -> None:
    notebook("xs, y = [1, 0], 'before'")
    assert isinstance(notebook("%%sky --local --map xs\ny = 1 / xs").error, ZeroDivisionError)
    assert (notebook["xs"], notebook["y"]) == ([1, 0], "before")


def test_map_over_a_missing_variable_is_rejected(notebook: Notebook) -> None:
    assert notebook("%%sky --local --map nothing\nnothing").shown_error.startswith("UsageError: --map nothing: ")


def test_yielded_elements_are_shown(notebook: Notebook) -> None:
    ran = notebook("%%sky --local\nfor i in range(2):\n    yield i\n'end'")
    assert ran.out == "0\n1\n'end'\n"
    assert notebook["_"] == [0, 1]
    assert not [name for name in notebook.shell.user_ns if "skyward" in name]


@pytest.mark.parametrize("where", ["--local", ""])
@pytest.mark.parametrize("raised", ["1 / 0", "raise KeyboardInterrupt"])
def test_elements_yielded_before_an_error_are_the_value(notebook: Notebook, where: str, raised: str) -> None:
    notebook("'of an earlier cell'")
    ran = notebook(f"%%sky {where}\nyield 1\nyield 2\n{raised}\nyield 3")
    assert ran.error is not None
    assert ran.out == "1\n2\n"
    assert notebook["_"] == [1, 2]
    assert not [name for name in notebook.shell.user_ns if "skyward" in name]


def test_cell_that_awaits_is_rejected(notebook: Notebook) -> None:
    assert notebook("%%sky --local\nawait x").shown_error == (
        "UsageError: A cell that awaits cannot run with --local: run it without the %%sky line."
    )
