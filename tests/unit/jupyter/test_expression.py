"""`%sky!`: one line that runs on a node, and is its value."""

import pytest

from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit


def test_its_value_is_the_value_of_the_cell(notebook: Notebook) -> None:
    notebook("n = 2")
    ran = notebook("%sky! n + 1")
    assert ran.result == notebook["_"] == 3
    assert ran.displays == []


def test_its_value_can_be_assigned_and_braces_are_pythons(notebook: Notebook) -> None:
    notebook("n = 2")
    notebook("x = %sky! {'$n': n}")
    assert notebook["x"] == {"$n": 2}


def test_it_takes_the_options_of_a_cell(notebook: Notebook, compute: type[FakeCompute]) -> None:
    assert notebook("%sky! --nodes 2 --on all 7").result == [7, 7]
    assert notebook("%sky! --on 1 7").result == 7
    assert [on for _, on in compute.made[0].sent] == ["all", 1]
    assert notebook("%sky! --local 8").result == 8
    assert len(compute.made[0].sent) == 2


def test_names_that_it_binds_come_home(notebook: Notebook) -> None:
    assert notebook("%sky! y = 5; y + 1").result == 6
    assert notebook["y"] == 5


def test_a_name_that_is_missing_is_told(notebook: Notebook) -> None:
    assert isinstance(notebook("%sky! nothing_there").error, NameError)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "%sky! takes an expression: `%sky! torch.cuda.is_available()`."),
        ("--on all", "%sky! takes an expression: `%sky! torch.cuda.is_available()`."),
        ("yield 1", "%sky! gives one value, so its code cannot yield: write %%sky on top of a cell."),
    ],
)
def test_mistakes(notebook: Notebook, compute: type[FakeCompute], line: str, message: str) -> None:
    assert notebook(f"%sky! {line}").shown_error == f"UsageError: {message}"
    assert compute.made == []


def test_help_names_it(notebook: Notebook) -> None:
    assert "%sky! [options] EXPRESSION" in notebook("%sky help").out
