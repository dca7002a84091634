"""Cells with several runs, and cells that yield elements."""

import pytest

from skyward.errors import NotPicklableError
from tests.unit.jupyter.cells.conftest import CellHarness, frames_of_cell

pytestmark = pytest.mark.unit


class TestManyRuns:
    def test_names_become_lists_in_order_of_runs(self, notebook: CellHarness) -> None:
        notebook.local("xs = [1, 2, 3]")
        assert notebook.sky("import math\ny = xs * 10\ndef f(): return y", map_name="xs") == []
        assert notebook["y"] == [10, 20, 30]
        assert notebook["xs"] == [1, 2, 3]
        assert notebook["f"]() == [10, 20, 30]

    def test_class_is_bound_once(self, notebook: CellHarness) -> None:
        notebook.sky("class A: pass\na = A()", nodes=3)
        assert {type(a) for a in notebook["a"]} == {notebook["A"]}

    def test_in_place_changes_of_parallel_runs_do_not_reach_the_notebook(self, notebook: CellHarness) -> None:
        notebook.local("x = [1]")
        notebook.sky("x.append(2)\ny = len(x)", nodes=2)
        assert notebook["x"] == [1]
        assert notebook["y"] == [2, 2]

    @pytest.mark.parametrize(
        ("given", "store"),
        [
            ("v = {'n': 0}", "v['n'] += 1"),
            ("v = {'n': 0}", "v['n'] = v"),
            ("v = {'n': 0}", "del v['n']"),
            ("class v: tot = 0", "v.tot += 1"),
            ("class V: k = 0\nv = V()", "v.k = [1]"),
            ("import numpy as np; v = np.zeros(2)", "v[0] = 1"),
            ("import pandas as pd; v = pd.DataFrame({'a': [1]})", "v['b'] = 1"),
        ],
    )
    @pytest.mark.parametrize("over", ["nodes", "map"])
    def test_stored_item_or_attribute_is_not_applied(
        self, notebook: CellHarness, given: str, store: str, over: str
    ) -> None:
        notebook.local(f"{given}\nxs = [1, 2]")
        before, shown = notebook["v"], repr(notebook["v"])
        notices = notebook.sky(f"{store}\nxs", map_name="xs") if over == "map" else notebook.sky(store, nodes=2)
        assert notebook["v"] is before
        assert repr(notebook["v"]) == shown
        assert len(notices) == 1
        assert notices[0].startswith("v changed on node 0, in a separate copy for each run; here it is unchanged.")
        assert notices[0].endswith("`v = v`.")

    def test_stored_item_is_in_the_list_if_the_name_is_bound(self, notebook: CellHarness) -> None:
        notebook.local("d = {'n': 0}; xs = [1, 2]")
        assert notebook.sky("d['n'] += xs; d = d", map_name="xs") == []
        assert notebook["d"] == [{"n": 1}, {"n": 2}]

    def test_name_that_was_only_read_is_unchanged(self, notebook: CellHarness) -> None:
        notebook.local("n = 5; xs = [1, 2]; shared = [0]")
        notebook.sky("y = n\nz = xs\nother = shared", map_name="xs")
        assert (notebook["n"], notebook["xs"], notebook["shared"]) == (5, [1, 2], [0])
        assert (notebook["y"], notebook["z"], notebook["other"]) == ([5, 5], [1, 2], [[0], [0]])

    def test_failure_is_in_the_list_and_raised(self, notebook: CellHarness) -> None:
        notebook.local("xs = [1, 0, 2]")
        with pytest.raises(ZeroDivisionError) as caught:
            notebook.sky("y = 2 // xs", map_name="xs")
        assert notebook["y"] == [2, caught.value, 1]
        assert caught.value.__notes__ == ["1 of 3 runs failed; the values of the other 2 runs are in the lists."]

    def test_deleted_names_are_unbound_and_missing_values_are_none(self, notebook: CellHarness) -> None:
        notebook.local("a = 1; xs = [0, 1]")
        notebook.sky("del a\nif xs: y = 1", map_name="xs")
        assert "a" not in notebook
        assert notebook["y"] == [None, 1]

    def test_map_over_no_elements_binds_empty_lists(self, notebook: CellHarness) -> None:
        notebook.local("xs = []")
        assert notebook.sky("y = xs", map_name="xs") == []


class TestStreams:
    def test_names_are_bound_after_the_elements(self, notebook: CellHarness) -> None:
        notebook.local("class P:\n    def __init__(self, v): self.v = v\nn = 3")
        stream = notebook.stream("total: int = 0\nfor i in range(n):\n    total += i\n    yield P(i)\ntotal")
        assert [(type(p) is notebook["P"], p.v) for p in stream] == [(True, 0), (True, 1), (True, 2)]
        assert notebook["total"] == 3

    def test_functions_see_names_of_a_streaming_cell(self, notebook: CellHarness) -> None:
        assert list(notebook.stream("k = 1\ndef f(): return k\nyield f()\nk = 2\nyield f()")) == [1, 2]

    def test_failure_is_raised_after_its_elements(self, notebook: CellHarness) -> None:
        stream = notebook.stream("x = 1\nyield x\n1 / 0")
        assert next(stream) == 1
        with pytest.raises(ZeroDivisionError) as caught:
            next(stream)
        assert notebook["x"] == 1
        assert [(each.name, each.lineno) for each in frames_of_cell(caught.value)] == [("<module>", 3)]

    def test_asynchronous_cell_streams(self, notebook: CellHarness) -> None:
        source = "import asyncio\nfor i in range(2):\n    await asyncio.sleep(0)\n    yield i\ndone = True"
        assert list(notebook.stream(source)) == [0, 1]
        assert notebook["done"]

    def test_all_kinds_of_binding_in_a_streaming_cell(self, notebook: CellHarness) -> None:
        source = (
            "from __future__ import annotations\nimport json as j\ndef f(): ...\nclass A:\n    x: int = 1\n"
            "for a, *b in [(1, 2, 3)]: pass\nwith open('/dev/null') as h: pass\n(w := 5)\n[v := i for i in (7,)]\n"
            "match {'k': 1, 'l': 2}:\n    case {'k': m, **rest}: pass\nz: int\nglobal q\nq = 1\nc = 2\ndel c\nyield 1"
        )
        assert list(notebook.stream(source)) == [1]
        assert {name: notebook[name] for name in ["a", "b", "w", "v", "m", "rest", "q"]} == {
            "a": 1,
            "b": [2, 3],
            "w": 5,
            "v": 7,
            "m": 1,
            "rest": {"l": 2},
            "q": 1,
        }
        assert notebook["A"].x == 1
        assert "c" not in notebook
        assert "i" not in notebook

    def test_element_that_cannot_be_pickled_is_named(self, notebook: CellHarness) -> None:
        with pytest.raises(NotPicklableError, match=r"^the element cannot be sent back from the node: it is of"):
            list(notebook.stream("import threading\nyield threading.Lock()"))
