"""A small random program leaves the same state under `%%sky` as in the notebook."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.jupyter.cells.conftest import CellHarness

pytestmark = pytest.mark.unit

NAMES = ("a", "b", "c", "xs", "d", "f", "P")

SETUP = """
a, b, c = 1, 2, 3
xs = ys = [1, 2]
d = {"k": [0]}
def f(v=1):
    return a + v
class P:
    n = 0
    def __init__(self, v): self.v = v
    def get(self): return self.v + a
p = P(4)
"""

numbers = st.sampled_from(["a", "b", "c", "len(xs)", "f()", "f(b)", "p.get()", "p.v", "P(2).get()", "d['k'][0]", "7"])


def statements() -> st.SearchStrategy[str]:
    """Generate statements that only use the names of `SETUP`; some of them fail."""
    target = st.sampled_from(["a", "b", "c", "new"])
    simple = st.one_of(
        st.builds("{} = {} + {}".format, target, numbers, numbers),
        st.builds("{} += {}".format, st.sampled_from(["a", "b", "c"]), numbers),
        st.builds("a, *b = [{}, {}, 1]\nb = len(b)".format, numbers, numbers),
        st.builds("xs.append({})".format, numbers),
        st.builds("xs[0] = {}".format, numbers),
        st.builds("d[{}] = {}".format, numbers, numbers),
        st.builds("d['k'][0] = {}".format, numbers),
        st.builds("p.v = {}".format, numbers),
        st.builds("P.n = {}".format, numbers),
        st.builds("p = P({})".format, numbers),
        st.builds("zs = [x + {} for x in xs if x > a]".format, numbers),
        st.builds("def f(v=1): return v * {}".format, st.sampled_from(["a", "b", "c"])),
        st.builds("g = lambda v: v + {}".format, st.sampled_from(["a", "b", "f()"])),
        st.builds("q = [(w := {}), w + 1]".format, numbers),
        st.builds("1 // ({} - {})".format, numbers, numbers),
        st.just("ys = xs; zs = list(xs)"),
        st.just("del xs[-1:]"),
        st.just("import math\na = math.floor(a)"),
    )
    return st.one_of(
        simple,
        st.builds("if {} > {}: {}".format, numbers, numbers, simple.filter(lambda s: "\n" not in s and "def" not in s)),
        st.builds("for i in range(2):\n    {} += i".format, st.sampled_from(["a", "b", "c"])),
        st.builds(
            "try:\n    c = 5 // ({} - 3)\nexcept ZeroDivisionError as e:\n    c = 0\nfinally:\n    a += 1".format,
            numbers,
        ),
        st.builds("match {}:\n    case 3 | 4 as m: b = m\n    case n: c = n".format, numbers),
    )


def observable(names: dict[str, Any]) -> dict[str, Any]:
    """Return the observable state of all names."""
    seen: dict[str, Any] = {}
    for name, value in names.items():
        if name.startswith("__"):
            continue
        if isinstance(value, type):
            seen[name] = ("class", value.__name__, value.n)  # type: ignore[attr-defined]  # it is P
        elif type(value).__name__ == "P":
            seen[name] = ("P", value.v, type(value) is names["P"])
        elif callable(value):
            seen[name] = ("function", value.__name__, _outcome(value, 3))
        else:
            seen[name] = repr(value)
    seen["one list"] = names.get("xs") is names.get("ys")
    return seen


def _outcome(function: Any, value: int) -> Any:
    try:
        return function(value)
    except Exception as error:
        return repr(error)


def run_here(notebook: CellHarness, source: str) -> str:
    try:
        notebook.local(source)
    except Exception as error:
        return repr(error)
    return ""


def run_there(notebook: CellHarness, source: str) -> str:
    try:
        notebook.sky(source)
    except Exception as error:
        return repr(error)
    return ""


@settings(max_examples=150)
@given(st.lists(st.lists(statements(), min_size=1, max_size=5), min_size=1, max_size=3))
def test_program_in_cells_leaves_the_same_state_as_in_the_notebook(cells: list[list[str]]) -> None:
    here, there = CellHarness(), CellHarness()
    here.local(SETUP)
    there.local(SETUP)
    for cell in cells:
        source = "\n".join(cell)
        assert run_there(there, source) == run_here(here, source)
        assert observable(there.names) == observable(here.names)


def test_comparison_detects_differences() -> None:
    here = CellHarness()
    here.local(SETUP)
    seen = copy.deepcopy(observable(here.names))
    here.local("xs = [1, 2]")
    assert observable(here.names) != seen
