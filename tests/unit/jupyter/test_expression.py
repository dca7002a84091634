"""The magic `%sky!`, which runs an expression on a node and returns its value."""

import pytest

from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit


def test_expression_returns_its_value(notebook: Notebook) -> None:
    notebook("n = 2")
    ran = notebook("%sky! n + 1")
    assert ran.result == notebook["_"] == 3
    assert ran.displays == []


def test_value_can_be_assigned_and_braces_are_not_expanded(notebook: Notebook) -> None:
    notebook("n = 2")
    notebook("x = %sky! {'$n': n}")
    assert notebook["x"] == {"$n": 2}


def test_expression_takes_the_options_of_a_cell(notebook: Notebook, compute: type[FakeCompute]) -> None:
    assert notebook("%sky! --nodes 2 --on all 7").result == [7, 7]
    assert notebook("%sky! --on 1 7").result == 7
    assert [on for _, on in compute.made[0].sent] == ["all", 1]
    assert notebook("%sky! --local 8").result == 8
    assert len(compute.made[0].sent) == 2


def test_assigned_variables_are_returned_to_the_notebook(notebook: Notebook) -> None:
    assert notebook("%sky! y = 5; y + 1").result == 6
    assert notebook["y"] == 5


def test_missing_name_is_a_name_error(notebook: Notebook) -> None:
    assert isinstance(notebook("%sky! nothing_there").error, NameError)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "%sky! takes an expression: `%sky! torch.cuda.is_available()`."),
        ("--on all", "%sky! takes an expression: `%sky! torch.cuda.is_available()`."),
        ("yield 1", "%sky! returns one value, so its code cannot yield: use a %%sky cell."),
    ],
)
def test_usage_error_in_an_expression_is_one_line_and_opens_no_pool(
    notebook: Notebook, compute: type[FakeCompute], line: str, message: str
) -> None:
    assert notebook(f"%sky! {line}").shown_error == f"UsageError: {message}"
    assert compute.made == []


def test_help_lists_the_expression_magic(notebook: Notebook) -> None:
    assert "%sky! [options] EXPRESSION" in notebook("%sky help").out


@pytest.mark.parametrize("options", ["", "--local "])
class TestInAFunction:
    def test_expression_reads_the_variables_of_the_function(self, notebook: Notebook, options: str) -> None:
        notebook(f"p = 100\ndef fn(p):\n    r = %sky! {options}p + 1\n    return r")
        assert notebook("fn(4)").result == 5
        notebook(f"def other(q):\n    return [q, get_ipython().run_line_magic('sky!', '{options}q')]")
        assert notebook("other(4)").result == [4, 4]

    def test_returned_variable_is_the_local_object(self, notebook: Notebook, options: str) -> None:
        notebook(f"p = [100]\ndef fn(p):\n    r = %sky! {options}p\n    return r is p")
        assert notebook("fn([4])").result is True

    def test_local_objects_are_changed_in_place(self, notebook: Notebook, options: str) -> None:
        notebook(f"def fn(p):\n    q = p\n    n = %sky! {options}p.append(1) or len(p)\n    return n, q")
        assert notebook("fn([0])").result == (2, [0, 1])

    def test_nested_scopes_and_map_read_the_variables(self, notebook: Notebook, options: str) -> None:
        notebook(
            f"p = 9\ndef fn(p, xs):\n    r = %sky! {options}--map xs [p + i for i in (lambda: [p, xs])()]\n    return r"
        )
        assert notebook("fn(1, [2, 3])").result == [[2, 3], [2, 4]]
        assert notebook["p"] == 9

    def test_other_variables_are_bound_in_the_notebook(self, notebook: Notebook, options: str) -> None:
        notebook(f"def fn(p):\n    r = %sky! {options}import math; x = p; math.floor(x)\n    return r")
        assert notebook("fn(1.5)").result == 1
        assert notebook["x"] == 1.5
        assert notebook["math"].floor(2.5) == 2

    @pytest.mark.parametrize("code", ["p = 1", "(p := 1)", "del p"])
    def test_local_variables_cannot_be_bound(self, notebook: Notebook, options: str, code: str) -> None:
        notebook(f"p = 7\ndef fn(p):\n    %sky! {options}{code}")
        assert notebook("fn(1)").shown_error == (
            "UsageError: p is a variable of the function, which %sky! cannot bind: assign it the value of the "
            "expression, `p = %sky! ...`."
        )
        assert notebook["p"] == 7


def test_local_variable_that_shadows_one_used_by_a_function_is_rejected(notebook: Notebook) -> None:
    notebook("p = 1\ndef g(): return p\ndef fn(p):\n    r = %sky! g() + p\n    return r")
    assert notebook("fn(p)").result == 2
    assert notebook("fn(5)").shown_error == (
        "UsageError: g uses the notebook's p, but p is also a variable of the function here: rename one of them."
    )


def test_local_variable_that_would_be_rebound_is_reported(notebook: Notebook) -> None:
    notebook("it = iter([7])\ndef fn(it):\n    r = %sky! next(it)\n    return r, next(it)")
    ran = notebook("fn(iter(range(5, 9)))")
    assert ran.result == (5, 5)
    assert ran.err == (
        "it is bound to another object by the cell, but %sky! cannot bind a variable of a function: it is unchanged. "
        "Assign the value: `it = %sky! ...`.\n"
    )
    assert notebook("next(it)").result == 7
