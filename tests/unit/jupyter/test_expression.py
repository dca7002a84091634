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


@pytest.mark.parametrize("options", ["", "--local "])
class TestInAFunction:
    def test_it_has_the_variables_of_the_function(self, notebook: Notebook, options: str) -> None:
        notebook(f"p = 100\ndef fn(p):\n    r = %sky! {options}p + 1\n    return r")
        assert notebook("fn(4)").result == 5
        notebook(f"def other(q):\n    return [q, get_ipython().run_line_magic('sky!', '{options}q')]")
        assert notebook("other(4)").result == [4, 4]

    def test_a_variable_that_is_the_value_is_the_local_one(self, notebook: Notebook, options: str) -> None:
        notebook(f"p = [100]\ndef fn(p):\n    r = %sky! {options}p\n    return r is p")
        assert notebook("fn([4])").result is True

    def test_its_objects_are_changed_in_place(self, notebook: Notebook, options: str) -> None:
        notebook(f"def fn(p):\n    q = p\n    n = %sky! {options}p.append(1) or len(p)\n    return n, q")
        assert notebook("fn([0])").result == (2, [0, 1])

    def test_nested_scopes_and_map_have_them_too(self, notebook: Notebook, options: str) -> None:
        notebook(
            f"p = 9\ndef fn(p, xs):\n    r = %sky! {options}--map xs [p + i for i in (lambda: [p, xs])()]\n    return r"
        )
        assert notebook("fn(1, [2, 3])").result == [[2, 3], [2, 4]]
        assert notebook["p"] == 9

    def test_other_names_are_bound_in_the_notebook(self, notebook: Notebook, options: str) -> None:
        notebook(f"def fn(p):\n    r = %sky! {options}import math; x = p; math.floor(x)\n    return r")
        assert notebook("fn(1.5)").result == 1
        assert notebook["x"] == 1.5
        assert notebook["math"].floor(2.5) == 2

    @pytest.mark.parametrize("code", ["p = 1", "(p := 1)", "del p"])
    def test_it_cannot_bind_one(self, notebook: Notebook, options: str, code: str) -> None:
        notebook(f"p = 7\ndef fn(p):\n    %sky! {options}{code}")
        assert notebook("fn(1)").shown_error == (
            "UsageError: p is a variable of the function, which %sky! cannot bind: give it the value of the "
            "expression, `p = %sky! ...`."
        )
        assert notebook["p"] == 7


def test_a_local_variable_that_hides_one_that_a_function_uses(notebook: Notebook) -> None:
    notebook("p = 1\ndef g(): return p\ndef fn(p):\n    r = %sky! g() + p\n    return r")
    assert notebook("fn(p)").result == 2
    assert notebook("fn(5)").shown_error == (
        "UsageError: g uses p of the notebook, and here p is a variable of the function: one of them needs another "
        "name."
    )


def test_a_local_variable_that_would_be_another_object_is_told(notebook: Notebook) -> None:
    notebook("it = iter([7])\ndef fn(it):\n    r = %sky! next(it)\n    return r, next(it)")
    ran = notebook("fn(iter(range(5, 9)))")
    assert ran.result == (5, 5)
    assert ran.err == (
        "it is another object after this, and a variable of a function cannot be bound to it: it is as before. Give "
        "it the value: `it = %sky! ...`.\n"
    )
    assert notebook("next(it)").result == 7
