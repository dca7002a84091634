"""A cell that ran on a node leaves the notebook in the same state as a local one."""

import re
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from skyward.errors import MissingModuleError, PayloadError, TaskExitError
from skyward.worker.tasks.missing_modules import pip_name
from skyward_jupyter.cells.placeholders import module_here
from skyward_jupyter.running.results import apply_result
from tests.unit.jupyter.cells.conftest import CellHarness, frames_of_cell, travel

pytestmark = pytest.mark.unit


def test_assigned_names_are_returned(notebook: CellHarness) -> None:
    notebook.local("a = 1")
    assert notebook.sky("b = a + 1\nfor i in range(3): c = i") == []
    assert (notebook["b"], notebook["c"], notebook["i"]) == (2, 2, 2)


def test_only_what_the_cell_reads_is_sent(notebook: CellHarness) -> None:
    notebook.local("a, b = 1, 2")
    assert list(notebook.take("c = a").captured) == ["a"]


def test_deleted_names_are_unbound(notebook: CellHarness) -> None:
    notebook.local("a, e = 1, 2")
    notebook.sky("del a\ntry: 1 / 0\nexcept ZeroDivisionError as e: pass")
    assert "a" not in notebook
    assert "e" not in notebook


def test_assignment_to_items_and_attributes_is_returned(notebook: CellHarness) -> None:
    notebook.local("import types\nd = {}; o = types.SimpleNamespace(); x = [1, 2]")
    notebook.sky("d['k'] = 1\no.a = 2\ndel x[0]")
    assert notebook["d"] == {"k": 1}
    assert notebook["o"].a == 2
    assert notebook["x"] == [2]


@pytest.mark.parametrize(
    ("before", "cell", "name", "after"),
    [
        ("x = [1]", "x.append(2)", "x", [1, 2]),
        ("x = {3, 1}", "x.add(2)", "x", {1, 2, 3}),
        ("x = bytearray(100)", "x.extend(b'1')", "x", bytearray(100) + b"1"),
        ("x = [3, 1, 2]", "import heapq\nheapq.heapify(x)", "x", [1, 3, 2]),
        ("x = [1, 2]", "y = x.pop()", "x", [1]),
        ("x = [1]", "x = x", "x", [1]),
        ("x = [1]\ndef f(v): v.append(2); return v", "x = f(x)", "x", [1, 2]),
    ],
)
def test_values_changed_in_place_are_returned(
    notebook: CellHarness, before: str, cell: str, name: str, after: Any
) -> None:
    notebook.local(before)
    notebook.sky(cell)
    assert notebook[name] == after


def test_array_changed_in_place_is_returned(notebook: CellHarness) -> None:
    notebook.names["x"] = np.zeros(100_000)
    notebook.sky("x.fill(3)")
    assert notebook["x"][-1] == 3


def test_value_that_was_only_read_keeps_its_identity(notebook: CellHarness) -> None:
    notebook.names["x"] = before = {"k": ["a", "b"], "s": {"x", "y"}, "f": np.arange(10)}
    notebook.sky("x.get('k')\nlen(x)\nx.items()")
    assert notebook["x"] is before


def test_two_names_of_one_object_stay_aliases(notebook: CellHarness) -> None:
    notebook.local("a = b = [1]")
    notebook.sky("a[0] = 2\nb\nc = d = []")
    assert notebook["a"] == [2]
    assert notebook["a"] is notebook["b"]
    assert notebook["c"] is notebook["d"]
    assert list(notebook.take("a, b").captured) == ["a, b"]


class TestFunctionsOfTheNotebook:
    def test_functions_see_names_that_the_cell_assigns(self, notebook: CellHarness) -> None:
        notebook.local("k = 1\ndef f(): return k\ndef g(): return f()")
        notebook.sky("k = 10\nr = g()")
        assert notebook["r"] == 10

    def test_functions_change_globals(self, notebook: CellHarness) -> None:
        notebook.local("n = 0\ndef count():\n    global n, m\n    n += 1\n    m = n")
        notebook.sky("count(); count()")
        assert (notebook["n"], notebook["m"]) == (2, 2)

    def test_value_used_by_several_functions_is_sent_once(self, notebook: CellHarness) -> None:
        notebook.names["data"] = np.zeros(100_000)
        notebook.local("def f(): return data[0]\ndef g(): return data[1]")
        sent = notebook.take("f() + g()")
        assert set(sent.captured) == {"f", "g", "data"}
        assert sum(packed.nbytes for packed in sent.captured.values()) < 810_000

    def test_returned_functions_use_names_of_the_notebook(self, notebook: CellHarness) -> None:
        notebook.local("k = 1")
        notebook.sky("xs = [1]\ndef f(): return xs, k")
        assert notebook["f"]()[0] is notebook["xs"]
        notebook.local("k = 2")
        assert notebook["f"]()[1] == 2

    def test_requested_functions_are_returned_with_names_they_use(self, notebook: CellHarness) -> None:
        notebook.sky("import math\nk = 2\ndef g(): return math.pi * k\ndef f(): return g()", outputs=["f"])
        assert notebook["f"]() == pytest.approx(6.283, abs=0.001)

    def test_closures_defaults_and_recursion_work(self, notebook: CellHarness) -> None:
        notebook.local("def make(n):\n    def add(x, y=[1]): return x + n + y[0]\n    return add\nadd = make(5)")
        notebook.local("def fact(n): return 1 if n < 2 else n * fact(n - 1)")
        notebook.sky("r = add(1), fact(5)\nmul = (lambda k: lambda x: x * k)(3)")
        assert notebook["r"] == (7, 120)
        assert notebook["mul"](2) == 6


class TestClassesOfTheNotebook:
    def test_instances_are_returned_with_their_own_class(self, notebook: CellHarness) -> None:
        notebook.local("class P:\n    def __init__(self, v): self.v = v\n    def get(self): return self.v\np = P(1)")
        kind, method = notebook["P"], notebook["P"].get
        notebook.sky("p.v = 2\nq = P(3)\nsame = isinstance(p, P)")
        assert notebook["same"]
        assert type(notebook["p"]) is type(notebook["q"]) is notebook["P"] is kind
        assert notebook["P"].get is method
        assert (notebook["p"].get(), notebook["q"].get()) == (2, 3)

    def test_enums_and_dataclasses_keep_their_identity(self, notebook: CellHarness) -> None:
        notebook.local("import enum, dataclasses\nclass C(enum.Enum): A = 1\n@dataclasses.dataclass\nclass D: x: int")
        notebook.local("c, d = C.A, D(1)")
        notebook.sky("same = c is C.A\nd.x += 1\ne = C.A")
        assert notebook["same"]
        assert notebook["e"] is notebook["C"].A
        assert notebook["d"] == notebook["D"](2)

    def test_class_defined_in_a_cell_is_the_same_in_the_next(self, notebook: CellHarness) -> None:
        notebook.sky("class A:\n    def who(self): return name()\ndef name(): return 'a'\na = A()")
        notebook.sky("class B(A): pass\nb = B()\nsame = isinstance(a, A)")
        assert notebook["same"]
        assert isinstance(notebook["b"], notebook["A"])
        notebook.local("def name(): return 'here'")
        assert notebook["b"].who() == "here"

    def test_attributes_assigned_to_a_class_are_returned(self, notebook: CellHarness) -> None:
        notebook.local("class P:\n    n = 0\nP0 = P")
        notebook.sky("P.n += 5\nP.twice = lambda self: self.n * 2")
        assert notebook["P"] is notebook["P0"]
        assert notebook["P"].n == 5
        assert notebook["P"]().twice() == 10

    def test_plain_pickle_finds_classes(self, notebook: CellHarness) -> None:
        notebook.sky("import pickle\nclass A: pass\nok = isinstance(pickle.loads(pickle.dumps(A())), A)")
        assert notebook["ok"]

    def test_type_hints_find_classes(self, notebook: CellHarness) -> None:
        notebook.sky("import typing\nclass A: pass\nclass B:\n    a: 'A'\nok = typing.get_type_hints(B)['a'] is A")
        assert notebook["ok"]


class TestModules:
    def test_modules_are_sent_by_name(self, notebook: CellHarness) -> None:
        notebook.local("import json as j, os.path")
        sent = notebook.take("j.dumps(os.path.sep)")
        assert sent.request.modules == {"j": "json", "os": "os"}
        assert not sent.captured

    def test_imports_of_a_cell_are_bound_here(self, notebook: CellHarness) -> None:
        notebook.sky("import json\nfrom json import loads as read\nimport email.mime as m")
        assert notebook["json"] is sys.modules["json"]
        assert notebook["read"]("1") == 1
        assert notebook["m"].__name__ == "email.mime"

    def test_module_is_loaded_here_on_first_use(self, notebook: CellHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        sent = notebook.take("import colorsys")
        result = sent.pending.fn(*sent.pending.args)
        monkeypatch.delitem(sys.modules, "colorsys")
        apply_result(result, notebook.names, sent.originals)
        assert repr(notebook["colorsys"]) == "<module 'colorsys', imported on a node>"
        assert "colorsys" not in sys.modules
        assert notebook["colorsys"].rgb_to_hls(1, 1, 1) == (0.0, 1.0, 0.0)
        assert notebook.take("colorsys.x").request.modules == {"colorsys": "colorsys"}


class TestExceptions:
    def test_names_bound_before_a_failure_are_returned_then_it_is_raised(self, notebook: CellHarness) -> None:
        notebook.local("d = {}")
        with pytest.raises(ZeroDivisionError) as caught:
            notebook.sky("a = 1\nd['k'] = 1\n1 / 0\nb = 2")
        assert notebook["a"] == 1
        assert notebook["d"] == {"k": 1}
        assert "b" not in notebook
        assert caught.value.__cause__ is None
        (frame,) = frames_of_cell(caught.value)
        assert (frame.filename, frame.lineno, frame.name, frame.line) == ("<sky cell>", 3, "<module>", "1 / 0")

    def test_exception_class_of_the_notebook_is_caught_there(self, notebook: CellHarness) -> None:
        notebook.local("class Mine(Exception):\n    def __init__(self, n): super().__init__(n); self.n = n")
        with pytest.raises(notebook["Mine"]) as caught:
            notebook.sky("raise Mine(3)")
        assert caught.value.n == 3

    def test_traceback_includes_functions_of_the_notebook(self, notebook: CellHarness) -> None:
        notebook.local("def f(x):\n    return 1 / x")
        with pytest.raises(ZeroDivisionError) as caught:
            notebook.sky("f(0)")
        found = [(frame.filename, frame.lineno, frame.name) for frame in frames_of_cell(caught.value)]
        assert found == [("<sky cell>", 1, "<module>"), ("<notebook>", 2, "f")]

    def test_exit_in_a_cell_is_an_error(self, notebook: CellHarness) -> None:
        with pytest.raises(TaskExitError, match=r"^The cell called sys\.exit\(3\) on node 0, which ended") as caught:
            notebook.sky("a = 1\nraise SystemExit(3)")
        assert caught.value.status == 3
        assert notebook["a"] == 1
        advice = (
            "Put code that should not run below an `if`, or into a function that returns early, or raise an exception"
        )
        assert f"the task without a result. {advice} that says what is wrong." in str(caught.value)

    @pytest.mark.parametrize(("limit", "said"), [(1024, r"1\.0 KiB"), (100, "100 B")])
    def test_small_limit_is_shown_in_small_units(self, notebook: CellHarness, limit: int, said: str) -> None:
        (told,) = notebook.sky("big = list(range(10_000))", limit=limit)
        assert re.search(rf"its \d+\.\d KiB are over the limit of {said} for returned values", told)

    @pytest.mark.parametrize(
        ("given", "source", "made"),
        [
            ("class St[T]: pass", "class S2[K](St[K]): pass\nmade = S2[int]()", "S2"),
            ("from typing import Protocol", "class P[A](Protocol[A]): pass\nmade = P", "P"),
            ("class Base: pass", "def f[T: Base](x: T) -> T: return x\nmade = f(Base())", "f"),
            ("class Base: pass", "type Many[T: Base] = list[T]\nmade = Many.__value__", "Many"),
            ("type Vec = list[float]", "def g[**P, *Ts](v: Vec) -> Vec: return v\nmade = g([1])", "g"),
            ("type Vec = list[float]\ndef g[**P, *Ts](v: Vec) -> Vec: return v", "made = g([1])", "made"),
            ("class Run[**P]: pass", "class Own[**Q](Run[Q]): pass\nmade = Own()", "Own"),
        ],
    )
    def test_type_parameters_are_not_captured(self, notebook: CellHarness, given: str, source: str, made: str) -> None:
        notebook.local(given)
        assert notebook.sky(source) == []
        assert made in notebook
        assert "K" not in notebook

    def test_recursive_type_alias_keeps_its_identity(self, notebook: CellHarness) -> None:
        notebook.local("type Json = dict[str, Json] | int\ntype Pair[T] = tuple[T, T]")
        before = notebook["Json"], notebook["Pair"]
        assert notebook.sky("both = [Json, Pair]\nshown = str(Json.__value__), str(Pair[int])\ntype New = Json") == []
        assert all(new is old for new, old in zip(notebook["both"], before, strict=True))
        assert notebook["shown"] == ("dict[str, Json] | int", "Pair[int]")
        assert notebook["New"].__value__ is notebook["Json"]

    def test_class_with_slots_is_returned(self, notebook: CellHarness) -> None:
        notebook.local("class Slotted:\n    __slots__ = ('a',)\nx = Slotted()\nx.a = 1")
        notebook.sky("y = Slotted()\ny.a = x.a + 1\nx.a = 5")
        assert (type(notebook["y"]), notebook["y"].a) == (notebook["Slotted"], 2)

    def test_exceptions_of_the_notebook_keep_their_attributes(self, notebook: CellHarness) -> None:
        notebook.local("class Mine(Exception):\n    def __init__(self, *, n): super().__init__('m'); self.n = n")
        with pytest.raises(notebook["Mine"]) as caught:
            notebook.sky("raise Mine(n=3)")
        assert caught.value.n == 3
        with pytest.raises(ExceptionGroup) as group:
            notebook.sky("import threading\ne = Mine(n=4)\ne.lock = threading.Lock()\nraise ExceptionGroup('g', [e])")
        (member,) = group.value.exceptions
        assert (type(member), vars(member)["n"]) == (notebook["Mine"], 4)

    def test_cached_function_sees_the_variables_of_each_cell(self, notebook: CellHarness) -> None:
        notebook.local("import functools\nk = 2\n@functools.cache\ndef f(x):\n    return x + k")
        notebook.sky("k = 10\na = f(1)")
        notebook.local("k = 2")
        notebook.sky("b = f(1)")
        assert (notebook["a"], notebook["b"]) == (11, 3)

    def test_cached_functions_can_be_used_and_returned(self, notebook: CellHarness) -> None:
        notebook.local("import functools\nk = 2\n@functools.cache\ndef f(x):\n    return f(x - 1) * k if x else 1")
        notebook.sky("a = f(5)\n@functools.lru_cache(maxsize=7)\ndef g(x):\n    return x + k")
        assert (notebook["a"], notebook["g"](1), notebook["g"].cache_parameters()["maxsize"]) == (32, 3, 7)

    @pytest.mark.parametrize(
        ("module", "package"),
        [("skimage.io", "scikit-image"), ("cv2", "opencv-python-headless")],
    )
    def test_missing_module_is_reported_with_its_package(
        self, notebook: CellHarness, module: str, package: str
    ) -> None:
        top = module.partition(".")[0]
        with pytest.raises(MissingModuleError) as caught:
            notebook.sky(f"import {module}")
        assert str(caught.value) == (
            f"module {top!r} is not installed on node 0; add it with `--pip {package}` on the cell, "
            f"or Image(pip=[{package!r}]) in code"
        )

    def test_missing_submodule_of_an_installed_package_is_a_plain_error(self, notebook: CellHarness) -> None:
        with pytest.raises(ModuleNotFoundError, match=r"^No module named 'json\.nothing'$"):
            notebook.sky("import json.nothing")


class TestValuesThatAreNotReturned:
    def test_unpicklable_value_is_named_and_the_rest_returned(self, notebook: CellHarness) -> None:
        notices = notebook.sky("import threading\nlock = threading.Lock()\nholder = {'l': [lock]}\nx = 1")
        assert notebook["x"] == 1
        assert notices == [
            "lock was not returned from node 0: it is of type _thread.lock, which cannot be pickled "
            "(cannot pickle '_thread.lock' object). Return the parts that you need under another name.",
            "holder was not returned from node 0: holder['l'][0] is of type _thread.lock, which cannot be pickled "
            "(cannot pickle '_thread.lock' object). Return the parts that you need under another name.",
        ]

    def test_largest_values_over_the_limit_are_not_returned(self, notebook: CellHarness) -> None:
        notices = notebook.sky("a = bytes(3 << 20)\nb = c = bytes(5 << 20)\nd = 1", limit=4 << 20)
        assert len(notebook["a"]) == 3 << 20
        assert notebook["d"] == 1
        assert "b" not in notebook
        reason = "its 5.0 MiB are over the limit of 4.0 MiB for returned values"
        fix = "Return less of it, or raise the limit with --capture-limit."
        assert notices == [
            f"b was not returned from node 0: {reason}. {fix}",
            f"c was not returned from node 0: {reason}. {fix}",
        ]

    def test_requested_name_that_was_not_bound_is_reported(self, notebook: CellHarness) -> None:
        notices = notebook.sky("x = y = 1", outputs=["x", "z"])
        assert notebook["x"] == 1
        assert "y" not in notebook
        assert notices == [
            "z was not returned from node 0: the cell did not bind it. Assign it in the cell, or leave it out of -o."
        ]

    def test_value_with_a_module_missing_here_can_be_used_in_the_next_cell(
        self, notebook: CellHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent = notebook.take("import fractions\nfrom fractions import Fraction\nx = fractions.Fraction(1, 3)")
        result = sent.pending.fn(*sent.pending.args)
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "fractions", None)
            notices = apply_result(result, notebook.names, sent.originals).notices
            assert notices == [
                "x cannot be used here: module 'fractions' is not installed here. "
                "It can be used in %%sky cells, and here after `%pip install fractions`."
            ]
            with pytest.raises(MissingModuleError, match="this value cannot be used here: module 'fractions' is not"):
                notebook["x"].numerator  # noqa: B018 - the access is what fails
            with pytest.raises(MissingModuleError, match="this value cannot be used here"):
                notebook["Fraction"](1, 2)
            notebook.names["held"] = [notebook["x"]]
            sent = notebook.take("y = x + Fraction(1, 3) + held[0]")
        apply_result(sent.pending.fn(*sent.pending.args), notebook.names, sent.originals)
        assert str(notebook["y"]) == "1"

    @pytest.fixture
    def thin(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[CellHarness, str], list[str]]:
        """Run cells for a notebook without a module that the node has."""
        module = types.ModuleType("nodes_only")
        exec(
            "class Model:\n    def __init__(self): self.w, self.parts = 0, [1]\n"
            "class Opt:\n    def __init__(self, m): self.m = m\n    def step(self): self.m.w += 1",
            module.__dict__,
        )
        monkeypatch.setitem(sys.modules, "nodes_only", module)

        def run(notebook: CellHarness, source: str) -> list[str]:
            sent = notebook.take(source)
            result = travel(sent.pending.fn(*travel(sent.pending.args)))
            with monkeypatch.context() as without:
                without.setitem(sys.modules, "nodes_only", None)
                return apply_result(result, notebook.names, sent.originals).notices

        return run

    def test_aliases_with_a_module_missing_here_stay_aliases(
        self, notebook: CellHarness, thin: Callable[[CellHarness, str], list[str]]
    ) -> None:
        notebook.local("limit = 5\ndef double(x): return x * limit\nclass Mine: pass")
        thin(notebook, "from nodes_only import Model, Opt\nmodel = Model()\nopt = Opt(model)\nmodel.f = double")
        thin(notebook, "same = opt.m is model\nopt.step()\nw = model.w")
        assert (notebook["same"], notebook["w"]) == (True, 1)
        thin(notebook, "w, same, ten = model.w, opt.m is model, model.f(2)\nopt.step()")
        assert (notebook["same"], notebook["w"], notebook["ten"]) == (True, 1, 10)
        notebook.local("held = {'m': model}")
        thin(notebook, "same = held['m'] is model\nalias = model\nw = held['m'].w")
        assert (notebook["same"], notebook["w"]) == (True, 2)
        assert notebook["alias"] is notebook["model"] is notebook["held"]["m"]
        thin(notebook, "parts = model.parts\nmine = Mine()\nmodel.mine = mine")
        thin(notebook, "parts.append(2)")
        thin(notebook, "found, same, own = list(model.parts), opt.m is model, isinstance(model.mine, Mine)")
        thin(notebook, "in_held = held['m'].parts == found")
        assert notebook["in_held"]
        assert (notebook["found"], notebook["same"], notebook["own"]) == ([1, 2], True, True)

    def test_change_in_a_container_of_a_packed_value_is_reported(
        self, notebook: CellHarness, thin: Callable[[CellHarness, str], list[str]]
    ) -> None:
        thin(notebook, "from nodes_only import Model\nmodel = Model()")
        notebook.local("held = {'m': model}")
        notices = thin(notebook, "held['m'].w = 7")
        assert any(notice.startswith("The changes of held could not be applied here") for notice in notices)


def test_top_level_await_works(notebook: CellHarness) -> None:
    notebook.sky(
        "import asyncio\nasync def count():\n    yield 1\n    yield 2\n"
        "x = await asyncio.sleep(0, 3)\ny = [i async for i in count()]"
    )
    assert (notebook["x"], notebook["y"]) == (3, [1, 2])


def test_cells_have_separate_namespaces(notebook: CellHarness) -> None:
    notebook.sky("a = 1", outputs=[])
    with pytest.raises(NameError):
        notebook.sky("if True: a")


def test_names_bound_by_exec_are_returned(notebook: CellHarness) -> None:
    notebook.sky("exec('a = 1')\nglobals()['b'] = 2\nfrom math import *")
    assert (notebook["a"], notebook["b"]) == (1, 2)
    assert notebook["floor"](1.5) == 1


class Fragile:
    """An object that can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return _fail, ()


def _fail() -> None:
    raise AttributeError("module 'x' has no attribute 'y'")


def test_value_that_the_node_cannot_unpickle_is_named(notebook: CellHarness) -> None:
    notebook.names["table"] = {"k": Fragile()}
    with pytest.raises(PayloadError) as caught:
        notebook.sky("table['k']")
    assert str(caught.value) == (
        "table cannot be read on node 0 (AttributeError: module 'x' has no attribute 'y'); the node may have a "
        "different version of its package. Pin the version with --pip, or create the value on the node."
    )


def test_value_that_cannot_be_unpickled_here_is_kept(notebook: CellHarness) -> None:
    notebook.names["Fragile"] = Fragile
    assert notebook.sky("x = Fragile()") == [
        "x cannot be used here: it cannot be unpickled here (AttributeError: module 'x' has no attribute 'y'). "
        "It can be used in %%sky cells."
    ]
    assert repr(notebook["x"]).startswith("<value from a node, ")


def test_module_that_is_not_installed_here_raises_on_use(notebook: CellHarness) -> None:
    module = module_here("sklearn_not_here")
    with pytest.raises(MissingModuleError) as caught:
        module.svm  # noqa: B018 - the access is what fails
    assert str(caught.value) == (
        "module 'sklearn_not_here' is not installed here; "
        "use it in a %%sky cell, or install it with `%pip install sklearn-not-here`"
    )


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("PIL.Image", "pillow"),
        ("yaml", "pyyaml"),
        ("google.protobuf.x", "protobuf"),
        ("a_b.c", "a-b"),
        ("torch", "torch"),
    ],
)
def test_module_is_mapped_to_its_package(module: str, package: str) -> None:
    assert pip_name(module) == package
