"""Changes of a cell are applied in place to the notebook's objects."""

import collections
import random
import types
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own
import pytest

import skyward as sky
from tests.unit.jupyter.cells.conftest import CellHarness

pytestmark = pytest.mark.unit

COUNTER = """
def make():
    n = 0
    def up():
        nonlocal n
        n += 1
    def get(): return n
    return up, get
up, get = make()
"""

WITH_STATE = """
class A:
    def __getstate__(self): return {'v': self.v}
    def __setstate__(self, state):
        self.v = state['v']
        self.made = True
x = A(); x.v = 1; y = [x]
"""

MODEL = """
class Model:
    def __init__(self): self.w = 0
    def fit(self): self.w += 1; return 1 / self.w
def train(m): m.w += 1; return 1 / m.w
model = Model()
models = [model, Model()]
class Trainer:
    def __init__(self, m): self.m = m
    def fit(self): return train(self.m)
trainer = Trainer(model)
losses = []
"""


@pytest.mark.parametrize(
    "cell",
    [
        "train(model)",
        "loss = train(model)",
        "print(train(model))",
        "losses.append(train(model))",
        "if train(model) < 0: pass",
        "x = [train(m) for m in [model]]",
        "x = [train(m) for m in models[:1]]",
        "trainer.fit()",
        "x = trainer.fit()",
        "x = Trainer(model).fit()",
        "assert train(model)",
        "x = {train(model): 1}",
        "f = model.fit\nx = f()",
        "m = model\nx = train(m)",
        "def step(): return train(model)\nx = step()",
        "x = (lambda: train(model))()",
        "try:\n    train(model)\n    1 / 0\nexcept ZeroDivisionError: pass",
    ],
)
def test_change_by_a_call_is_applied_however_its_value_is_used(notebook: CellHarness, cell: str) -> None:
    notebook.local(MODEL)
    model = notebook["model"]
    assert notebook.sky(cell) == []
    assert notebook["model"] is model
    assert model.w == 1
    assert notebook["models"][0] is notebook["trainer"].m is model


def test_change_by_a_streaming_cell_is_applied(notebook: CellHarness) -> None:
    notebook.local(MODEL)
    assert list(notebook.stream("yield train(model)\nyield train(model)")) == [1, 0.5]
    assert notebook["models"][0].w == 2


def test_change_is_applied_before_the_error_is_raised(notebook: CellHarness) -> None:
    notebook.local(MODEL)
    with pytest.raises(ZeroDivisionError):
        notebook.sky("x = train(model)\n1 / 0")
    assert notebook["models"][0].w == 1


@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        ("x = [1]; y = {'x': x}", "x.append(2)", "y == {'x': [1, 2]} and y['x'] is x"),
        ("x = [1]; y = (x,)", "z = y[0].append(2)", "x == [1, 2] and y[0] is x"),
        ("x = {1: [2]}; y = x[1]", "y += [3]", "x == {1: [2, 3]} and x[1] is y"),
        ("x = {1: 2}; y = [x]", "x.pop(1); x['b'] = 1; x['a'] = 2", "list(y[0]) == ['b', 'a']"),
        ("x = {1}; y = [x]", "x.add(2); x.discard(1)", "y == [{2}]"),
        ("x = bytearray(b'a'); y = [x]", "x += b'b'", "y[0] == b'ab' and y[0] is x"),
        (
            "import collections; x = collections.deque([1], 3); y = [x]",
            "x.extend([2, 3, 4])",
            "list(y[0]) == [2, 3, 4]",
        ),
        (
            "import collections; x = collections.OrderedDict(a=1); y = [x]",
            "x['b'] = 2; x.move_to_end('a')",
            "list(y[0]) == ['b', 'a']",
        ),
        ("import collections; x = collections.Counter('aab'); y = [x]", "x.update('b')", "y[0]['b'] == 2"),
        (
            "import collections; x = collections.defaultdict(list); y = [x]",
            "x['k'].append(1)",
            "y[0]['k'] == [1] and y[0]['l'] == []",
        ),
        ("x = []; x.append(x)", "x.append(1)", "x[0] is x and len(x) == 2"),
        ("x = [1]; y = {}", "y['x'] = x", "y['x'] is x"),
        ("x = [1]", "y = [x, x]\nx.append(2)", "y[0] is y[1] is x and x == [1, 2]"),
        ("x = [[1], [2]]; y = x[0]", "x.reverse()", "x[1] is y"),
        ("x = [3, 1]; y = x", "x.sort()", "y is x and y == [1, 3]"),
        ("import random; x = random.Random(1); y = [x]", "z = x.random()", "y[0] is x and x.random() != z"),
        ("x = iter([1, 2, 3]); y = [x]", "z = next(x)", "next(y[0]) == 2"),
    ],
)
def test_containers_are_updated_for_all_references(notebook: CellHarness, before: str, cell: str, after: str) -> None:
    notebook.local(before)
    assert notebook.sky(cell) == []
    assert eval(after, notebook.names)


@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        ("x = {1: 'a', 2: 'b'}", "x[True] = x.pop(1)", "repr(x) == \"{2: 'b', True: 'a'}\""),
        ("x = {2: 'b', 1: 'a'}", "x[True] = x.pop(1)", "repr(x) == \"{2: 'b', True: 'a'}\""),
        ("x = {0.0: 1}", "x.clear(); x[-0.0] = 1", "repr(x) == '{-0.0: 1}'"),
        ("x = {D('1.0'): 1}", "x.clear(); x[D('1.00')] = 1", "str(*x) == '1.00'"),
        ("x = collections.Counter([1, 2])", "x[2.0] = x.pop(2)", "[*map(type, x)] == [int, float]"),
        ("x = {1, 2}", "x.clear(); x.update({1.0, 2.0})", "set(map(type, x)) == {float}"),
        ("x = {1, 2}", "x.remove(1); x.add(True)", "set(map(type, x)) == {bool, int}"),
        ("x = {0.0}", "x.clear(); x.add(-0.0)", "repr(x) == '{-0.0}'"),
        ("x = {float('nan'), 1, 2}", "x.remove(1); x.add(True)", "len(x) == 3 and bool in map(type, x)"),
    ],
)
def test_keys_are_replaced_with_equal_ones_of_other_types(
    notebook: CellHarness, before: str, cell: str, after: str
) -> None:
    notebook.local(f"import collections; from decimal import Decimal as D\n{before}\ny = x")
    assert notebook.sky(cell) == []
    assert eval(f"({after}) and y is x", notebook.names), notebook.names["x"]


@pytest.mark.parametrize(
    ("before", "cell", "is_replaced"),
    [
        ("x = [a]", "x[0] = [1]", "x[0] is not a"),
        ("x = [a, b]", "x.reverse()", "x[0] is b and x[1] is a"),
        ("x = {1: a}", "x[1] = [1]", "x[1] is not a"),
        ("x = {1: a, 2: b}", "x[1], x[2] = x[2], x[1]", "x[1] is b and x[2] is a"),
        ("x = [(a,)]", "x[0] = ([1],)", "x[0][0] is not a"),
        ("x = collections.deque([a, b])", "x.rotate()", "x[0] is b and x[1] is a"),
        ("x = types.SimpleNamespace(v=a)", "x.v = [1]", "x.v is not a"),
        ("class A: pass\nx = A(); x.v = a; x.w = b", "x.v, x.w = x.w, x.v", "x.v is b and x.w is a"),
        ("class A: __slots__ = ('v', 'w')\nx = A(); x.v = a; x.w = b", "x.v, x.w = x.w, x.v", "x.v is b and x.w is a"),
        ("class A: v = a", "A.v = [1]", "A.v is not a"),
        ("def x(v=a): return v", "x.__defaults__ = ([1],)", "x() is not a"),
        ("def make(v):\n  def put(w): nonlocal v; v = w\n  def get(): return v\n  return put, get\nx, y = make(a)",
         "x([1])", "y() is not a"),
        ("class A:\n  def __init__(self, v): self.v = v\n  def __reduce__(self): return A, (list(self.v),)\nx = A([a])",
         "x.v[0] = [1]", "x.v[0] is not a"),
        ("x = np.empty(2, dtype=object); x[:] = [a, b]", "x[:] = x[::-1].copy()", "x[0] is b and x[1] is a"),
        ("x = pd.Series([a, b])", "x.iloc[0], x.iloc[1] = x.iloc[1], x.iloc[0]", "x[0] is b and x[1] is a"),
        ("class A: pass\nx = [A(), A()]; a, b = x", "x.reverse()", "x[0] is b and x[1] is a"),
    ],
)  # fmt: skip  # one case per entry
def test_equal_objects_are_told_apart(notebook: CellHarness, before: str, cell: str, is_replaced: str) -> None:
    notebook.names |= {"np": np, "pd": pd, "collections": collections, "types": types}
    notebook.local(f"a = [1]; b = [1]\n{before}")
    assert notebook.sky("u = x" if "x" in notebook else "u = A") == []
    assert not eval(is_replaced, notebook.names), "a cell that only reads has replaced it"
    assert notebook.sky(cell) == []
    assert eval(is_replaced, notebook.names)


@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        ("class A: pass\nx = A(); x.a = 1; y = [x]", "x.b = 2; del x.a", "vars(y[0]) == {'b': 2}"),
        ("import types; x = types.SimpleNamespace(a=1); y = [x]", "x.b = 2; del x.a", "vars(y[0]) == {'b': 2}"),
        ("import types\nclass A(types.SimpleNamespace): pass\nx = A(a=1); y = [x]", "x.b = 2", "y[0] == A(a=1, b=2)"),
        (
            "class A: __slots__ = ('a', 'b')\nx = A(); x.a = 1; y = [x]",
            "x.b = 2; del x.a",
            "y[0].b == 2 and not hasattr(x, 'a')",
        ),
        ("class A(list): pass\nx = A([1]); x.n = 1; y = [x]", "x.append(2); x.n = 2", "y[0] == [1, 2] and y[0].n == 2"),
        ("class A(dict): pass\nx = A(k=1); y = [x]", "x['l'] = 2", "y == [{'k': 1, 'l': 2}]"),
        (
            "from dataclasses import dataclass\n@dataclass\nclass A:\n  v: int\nx = A(1); y = [x]",
            "x.v = 2",
            "y[0].v == 2",
        ),
        (
            WITH_STATE,
            "x.v = 2",
            "y[0].v == 2 and y[0].made",
        ),
        (
            "class A:\n  def __getstate__(s): return {'v': s.v}\nx = A(); x.v = 1; x.connection = 7; y = [x]",
            "x.v = 2",
            "y[0].v == 2 and y[0].connection == 7",
        ),
        (
            "class A:\n  def __init__(s): s.p = None\nx = A(); z = A(); z.p = x; x.p = z",
            "x.v = z.v = 2",
            "x.p is z and z.p is x and z.v == 2",
        ),
        (
            "class A:\n  n = 0\n  seen = []\n  def f(s): A.n += 1; A.seen.append(s)\nx = A(); l = A.seen",
            "x.f()",
            "A.n == 1 and A.seen is l and l == [x]",
        ),
        (
            "class A:\n  @property\n  def v(s): return s._v\n  @v.setter\n  def v(s, v): s._v = v\nx = A(); p = A.v",
            "x.v = 3",
            "x.v == 3 and A.v is p",
        ),
        (
            "class B: pass\nclass A(B):\n  def __init__(s): super().__init__(); s.v = 1\nx = A()",
            "y = A()\nx.v += y.v",
            "x.v == 2 and type(y) is A",
        ),
    ],
)
def test_objects_are_updated_in_place(notebook: CellHarness, before: str, cell: str, after: str) -> None:
    notebook.local(before)
    assert notebook.sky(cell) == []
    assert eval(after, notebook.names)


@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        (
            COUNTER,
            "up()",
            "get() == 1",
        ),
        (
            COUNTER,
            "up()\nz = get()",
            "z == 1 and get() == 1",
        ),
        ("def f(x, seen=[]): seen.append(x)\ng = f", "f(1)", "f.__defaults__ == ([1],) and g is f"),
        ("def f(): f.calls += 1\nf.calls = 0\ng = f", "f()", "g.calls == 1"),
        ("n = 0; d = {}\ndef f():\n  global n\n  n += 1; d[n] = 1\ne = d", "x = f()", "n == 1 and e == {1: 1}"),
        (
            "def fact(n): return 1 if n < 2 else n * fact(n - 1)\nfact.calls = []",
            "fact.calls.append(fact(3))",
            "fact.calls == [6]",
        ),
        (
            "registry = {}\ndef register(f):\n  registry[f.__name__] = f\n  return f",
            "@register\ndef g(): return 1",
            "registry['g'] is g",
        ),
    ],
)
def test_functions_are_updated_in_place(notebook: CellHarness, before: str, cell: str, after: str) -> None:
    notebook.local(before)
    assert notebook.sky(cell) == []
    assert eval(after, notebook.names)


@pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning")
@pytest.mark.parametrize("size", [10, 3_000_000])
@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        ("y = [x]", "x += 1", "y[0] is x and x[-1] == 1"),
        ("y = [x]", "x[3] = 1", "y[0] is x and x[3] == 1 and x.sum() == 1"),
        ("y = x[2:5]", "x[3] = 1", "y[1] == 1"),
        ("y = x[2:5]", "y[1] = 1", "x[3] == 1 and y.base is x"),
        ("y = x[2:5]", "y[1] = 1\nx[4] = 2", "x[3] == 1 and y[2] == 2"),
        ("y = x[::2]", "y[1] = 1", "x[2] == 1"),
        ("y = x[::2]", "y[1] = 1; z = x[2]", "x[2] == 1 and z == 1"),
        ("y = x.reshape(2, -1)", "y[1] = 1; z = x.sum()", "x.sum() == x.size / 2 == z"),
        ("y = x", "x.shape = (2, -1)", "y.shape == (2, y.size // 2)"),
        ("y = {'a': x}", "y['b'] = y['a'][1:3]\ny['b'][0] = 1", "x[1] == 1 and np.shares_memory(x, y['b'])"),
        ("", "y = x[1:3]", "np.shares_memory(x, y)"),
        ("", "y = np.ones(5); z = y[1:]", "np.shares_memory(z, y)"),
        ("", "z = np.ones(5)[1:]", "z.sum() == 4"),
        ("x.flags.writeable = False", "z = x.flags.writeable", "not z"),
        ("y = x.view(); y.flags.writeable = False", "x[0] = 5; z = y[0]", "y[0] == z == 5"),
        ("x = np.asfortranarray(x.reshape(2, -1)); y = [x]", "x[1, 0] = 5", "y[0] is x and x[1, 0] == 5"),
        ("x = np.array([1, [2]], dtype=object); y = [x]", "x[1].append(3)", "y[0][1] == [2, 3]"),
        ("x = np.array(1.0); y = [x]", "x += 1", "y[0] == 2"),
        ("x = np.ma.array([1, 2, 3], mask=[0, 1, 0]); y = [x]", "x[0] = 5", "y[0] is x and y[0][0] == 5"),
        ("rng = np.random.default_rng(1); y = [rng]", "z = rng.random()", "y[0] is rng and rng.random() != z"),
    ],
)
def test_arrays_and_views_are_updated_in_place(
    notebook: CellHarness, size: int, before: str, cell: str, after: str
) -> None:
    notebook.names |= {"np": np, "x": np.zeros(size)}
    notebook.local(before)
    assert notebook.sky(cell) == []
    assert eval(after, notebook.names)


WINDOWS = "y = np.lib.stride_tricks.sliding_window_view(x, 2, writeable=True)"
LENT = "b = bytearray(8 * x.size); x = np.frombuffer(b)"


FUNCTIONS = "def f(a=1): 'one'; return a\ndef g(a=2): return a + 100\nkept = [f]"
CLASS = "import functools\nclass A:\n    'one'\n    def __len__(self): return 1\n    n = 1\nclass B(A): pass\nx = A()"


@pytest.mark.parametrize("more", ["", "; z = kept"])
@pytest.mark.parametrize(
    ("cell", "after"),
    [
        ("f.__code__ = g.__code__", "kept[0]() == f() == 101"),
        ("f.__doc__ = 'two'", "kept[0].__doc__ == 'two'"),
        ("f.__name__ = 'h'; f.__qualname__ = 'x.h'", "(kept[0].__name__, kept[0].__qualname__) == ('h', 'x.h')"),
        ("f.__annotations__['a'] = int", "kept[0].__annotations__ == {'a': int}"),
        ("f.__defaults__ = (7,)", "kept[0]() == 7"),
        ("f.__kwdefaults__ = {'a': 7}", "kept[0].__kwdefaults__ == {'a': 7}"),
        ("f.__module__ = 'other'", "kept[0].__module__ == 'other'"),
        ("f.note = 7", "kept[0].note == 7"),
    ],
)
def test_all_attributes_of_a_function_are_updated(notebook: CellHarness, cell: str, after: str, more: str) -> None:
    notebook.local(FUNCTIONS)
    assert notebook.sky(cell + more) == []
    assert eval(f"kept[0] is f and {after}", notebook.names)


def test_unchanged_code_object_of_a_function_keeps_its_identity(notebook: CellHarness) -> None:
    notebook.local(FUNCTIONS)
    code = notebook["f"].__code__
    notebook.sky("f.note = 7")
    assert notebook["f"].__code__ is code


@pytest.mark.parametrize("more", ["", "; z = x"])
@pytest.mark.parametrize(
    ("cell", "after"),
    [
        ("A.__doc__ = 'two'", "A.__doc__ == 'two'"),
        ("A.__hash__ = None", "A.__hash__ is None"),
        ("A.__len__ = functools.partial(lambda n: n, 3)", "A.__len__() == 3"),
        ("A.__iter__ = property(lambda self: lambda: iter([1]))", "isinstance(vars(A)['__iter__'], property)"),
        ("A.__call__ = print", "A.__call__ is print"),
        ("del A.__len__", "not hasattr(x, '__len__')"),
        ("A.__match_args__ = ('n',)", "A.__match_args__ == ('n',)"),
        ("B.__doc__ = 'two'; B.n = 2", "B.__doc__ == 'two' and A.__doc__ == 'one' and A.n == 1"),
        ("A.n = 2", "A.__doc__ == 'one' and A.__module__ == '__main__' and B.__doc__ is None"),
    ],
)
def test_all_attributes_of_a_class_are_updated(notebook: CellHarness, cell: str, after: str, more: str) -> None:
    notebook.local(CLASS)
    assert notebook.sky(cell + more) == []
    assert eval(f"type(x) is A and {after}", notebook.names)


@pytest.mark.filterwarnings("ignore:Setting the")
@pytest.mark.parametrize("more", ["", "; z = y"])
@pytest.mark.parametrize("size", [6, 600_000])
@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        ("", "x.dtype = 'i8'", "x.dtype == 'i8'"),
        ("", "x.dtype = 'f4'; x[1] = 5", "x.dtype == 'f4' and x[1] == 5"),
        ("x = x.reshape(2, -1); y = [x]", "x.dtype = 'f4'", "x.dtype == 'f4' and x.shape[0] == 2"),
        ("v = x[2:4]", "x.shape = (2, -1)", "x.shape[0] == 2 and np.shares_memory(x, v)"),
        ("v = x[2:4]", "x.shape = (2, -1); x[0, 2] = 5; w = v[0]", "w == 5 == v[0] and np.shares_memory(x, v)"),
        ("", "x.flags.writeable = False", "not x.flags.writeable"),
        ("", "x[0] = 5; x.flags.writeable = False", "not x.flags.writeable and x[0] == 5"),
        ("v = x.view(); x.flags.writeable = False", "x.flags.writeable = True; w = v", "x.flags.writeable"),
        (
            "v = x.view(); x.flags.writeable = False",
            "x.flags.writeable = True; x[0] = 5; x.flags.writeable = False; w = v[0]",
            "not x.flags.writeable and x[0] == v[0] == w == 5",
        ),
        ("", "v = x[1:]; v.flags.writeable = False", "not v.flags.writeable and np.shares_memory(x, v)"),
        ("", "v = np.broadcast_to(x[1:3], (2, 2))", "not v.flags.writeable and np.shares_memory(x, v)"),
    ],
)
def test_all_attributes_of_an_array_are_updated(
    notebook: CellHarness, size: int, before: str, cell: str, after: str, more: str
) -> None:
    notebook.names |= {"np": np, "x": np.zeros(size)}
    notebook.local(f"y = [x]\n{before}")
    assert notebook.sky(cell + more) == []
    assert eval(f"y[0] is x and {after}", notebook.names)


def test_read_only_array_is_read_only_on_the_node(notebook: CellHarness) -> None:
    notebook.names["x"] = np.zeros(3)
    notebook.local("x.flags.writeable = False")
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
        notebook.sky("x.flags.writeable = True; x[0] = 1")


@pytest.mark.parametrize("size", [6, 600_000])
@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        (WINDOWS, "x[1] = 5; z = y.sum()", "z == 10 and y.sum() == 10 and np.shares_memory(x, y)"),
        (WINDOWS, "y[0, 1] = 50; z = x.sum()", "z == 50 and x[1] == 50"),
        (WINDOWS, "y[0, 1] = 50", "x[1] == 50 and x.sum() == 50 and y[1, 0] == 50"),
        (WINDOWS, "y[1, 0] = 50", "x[1] == 50 and x.sum() == 50 and y[0, 1] == 50"),
        ("y = np.broadcast_to(x, (3, x.size))", "x[0] = 5; z = y.sum()", "z == 15 == y.sum()"),
        ("y = np.broadcast_to(x, (3, x.size)); c = (y, x)", "c[1][0] = 5; z = c[0].sum()", "z == 15 == y.sum()"),
        ("", "y = np.lib.stride_tricks.sliding_window_view(x, 2)", "np.shares_memory(x, y)"),
        ("", "w = np.ones(4)\n" + WINDOWS.replace("(x", "(w"), "np.shares_memory(w, y)"),
        (LENT, "x[0] = 1; z = bytes(b).count(0)", "z == len(b) - 2 and bytes(b).count(0) == z and x[0] == 1"),
        (LENT, "b[7] = 64; z = x[0]", "z == 2 == x[0] and b[7] == 64"),
        (LENT + "; c = {'x': x}", "c['x'][0] = 1; z = bytes(b).count(0)", "z == len(b) - 2 and x[0] == 1"),
        (LENT + "; y = np.frombuffer(b, 'u1')", "x[0] = 2; z = y[7]", "z == 64 == y[7] and b[7] == 64"),
        (LENT + "; y = np.asarray(memoryview(b))[2:]", "y[5] = 64; z = x[0]", "z == 2 == x[0] and b[7] == 64"),
        (LENT, "z = x[0] + b[0]", "z == 0 and np.shares_memory(x, np.frombuffer(b))"),
        ("y = np.frombuffer(memoryview(x).cast('B'), 'u1')", "x[0] = 2; z = y[7]", "z == 64 == y[7]"),
    ],
)
def test_memory_shared_through_buffers_stays_shared(
    notebook: CellHarness, size: int, before: str, cell: str, after: str
) -> None:
    notebook.names |= {"np": np, "x": np.zeros(size)}
    notebook.local(before)
    assert notebook.sky(cell) == []
    assert eval(after, notebook.names)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize(
    ("before", "cell", "names"),
    [
        ("y = pd.DataFrame(x.reshape(3, 2), copy=False)", "x[0] = 5; z = y.iloc[0, 0]", "x and y"),
        ("y = pd.DataFrame(x.reshape(3, 2), copy=False)", "y.iloc[0, 0] = 5; z = x[0]", "x and y"),
        ("y = np.asmatrix(x)", "x[0] = 5; z = y[0, 0]", "x and y"),
        ("x = np.array([1, 2, None]); y = x[1:]", "x[1] = 5; z = y[0]", "x and y"),
        ("a = np.array([1, 2, None]); x = [a, a[1:]]; y = 1", "x[0][1] = 5; z = y + x[1][0]", "Arrays in x"),
    ],
)
def test_memory_that_cannot_be_shared_on_the_node_is_reported(
    notebook: CellHarness, before: str, cell: str, names: str
) -> None:
    notebook.names |= {"np": np, "pd": pd, "x": np.zeros(6)}
    notebook.local(before)
    assert notebook.sky("z = x[0], y") == []  # no change, so no notice
    (notice,) = notebook.sky(cell)
    assert notice.startswith(f"{names} share memory here, but not on the node")


@pytest.mark.parametrize("index", ["list('abc')", "['a', 1, None]", "pd.MultiIndex.from_product([list('abc')])"])
def test_index_of_several_frames_is_no_shared_memory(notebook: CellHarness, index: str) -> None:
    notebook.names |= {"pd": pd}
    notebook.local(f"x = pd.DataFrame({{'a': [1, 2, 3]}}, index={index}); y = x['a'] * 2")
    assert notebook.sky("x['b'] = y; y.iloc[0] = 9") == []
    assert notebook.sky("y.iloc[0] = 7; z = x") == []
    assert notebook.names["x"].b.tolist() == [2, 4, 6]
    assert notebook.names["y"].tolist() == [7, 4, 6]


def test_arrays_over_a_bytearray_that_were_only_read_are_unchanged(notebook: CellHarness) -> None:
    notebook.names["np"] = np
    notebook.local("b = bytearray(16); x = np.frombuffer(b, 'u1')")
    assert notebook.sky("z = b[0] + x[0]", nodes=2) == []


@pytest.mark.parametrize("value", ["memoryview(b)", "memoryview(b).toreadonly()"])
def test_writable_memoryview_is_refused(notebook: CellHarness, value: str) -> None:
    notebook.local(f"b = bytearray(4); m = {value}")
    with pytest.raises(sky.NotPicklableError, match="a memoryview of writable memory cannot share it with a node"):
        notebook.sky("x = m[0]")


@pytest.mark.filterwarnings("ignore:The inplace keyword")
@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        ("y = [df]", "df['c'] = df.a * 2", "y[0] is df and list(df.c) == [2, 4]"),
        ("y = [df]", "df.loc[0, 'a'] = 7", "y[0] is df and df.a[0] == 7"),
        ("y = [df]", "df.drop(columns='b', inplace=True)", "list(y[0]) == ['a']"),
        ("y = [df]", "df.rename(columns={'a': 'z'}, inplace=True)", "list(y[0]) == ['z', 'b']"),
        ("s = df['a']; y = [df, s]", "df.loc[0, 'a'] = 7", "s[0] == 1 and y[1] is s"),
        ("s = df['a']; y = [df, s]", "df.loc[0, 'a'] = 7; z = s[0]", "z == 1 and s[0] == 1 and df.a[0] == 7"),
        ("s = df['a']; y = [df, s]", "s.iloc[0] = 9; z = df.a[0]", "z == 1 and df.a[0] == 1 and y[1][0] == 9"),
        ("e = df.copy(deep=False)", "df.loc[0, 'a'] = 7; z = e.a[0]", "z == 1 and e.a[0] == 1"),
        ("y = df.index", "df.index = ['p', 'q']", "list(df.index) == ['p', 'q'] and list(y) == [0, 1]"),
    ],
)
def test_data_frames_are_updated_in_place(notebook: CellHarness, before: str, cell: str, after: str) -> None:
    notebook.names |= {"df": pd.DataFrame({"a": [1, 2], "b": ["u", "v"]})}
    notebook.local(before)
    assert notebook.sky(cell) == []
    assert eval(after, notebook.names)


def test_figures_and_axes_are_updated_in_place(notebook: CellHarness) -> None:
    notebook.local("from matplotlib.figure import Figure\nfig = Figure(); ax = fig.subplots()")
    axes = notebook["ax"]
    assert notebook.sky("line, = ax.plot([1, 2])\nsame = ax.figure is fig") == []
    assert notebook["same"]
    assert notebook["ax"] is notebook["fig"].axes[0] is axes
    assert axes.figure is notebook["fig"]
    assert axes.lines[0] is notebook["line"]


def test_values_that_were_only_read_are_unchanged(notebook: CellHarness) -> None:
    values: dict[str, Any] = {
        "a": np.arange(10),
        "d": {"k": ["a", "b"], "s": {"x", "y"}},
        "o": collections.OrderedDict(a=1),
        "r": random.Random(3),
        "df": pd.DataFrame({"a": [1.5, None], "b": ["u", "v"]}),
    }
    notebook.names |= values
    sent = notebook.take("x = len(d), a.sum(), o['a'], r, df.sum(numeric_only=True)")
    result = sent.pending.fn(*sent.pending.args)
    assert result.failure is None
    assert result.state.changed == ()
    assert set(result.state.graph.names) == {"x"}  # it has `r`
    assert result.state.graph.replaced == ()


def test_changes_by_several_runs_stay_in_copies_and_are_reported(notebook: CellHarness) -> None:
    notebook.local(MODEL)
    assert notebook.sky("loss = train(model)", nodes=2) == [
        "model changed on node 0, in a separate copy for each run; here it is unchanged. "
        "To get a list of all copies, assign the value in the cell: `model = model`."
    ]
    assert notebook["model"].w == 0
    assert notebook["loss"] == [1, 1]
    assert notebook.sky("train(model)\ncopy = model", nodes=2)[0].startswith("model changed")
    assert [copy.w for copy in notebook["copy"]] == [1, 1]
    assert notebook["copy"][0] is not notebook["model"]


def test_change_that_cannot_be_returned_is_reported(notebook: CellHarness) -> None:
    notebook.local(MODEL)
    assert notebook.sky("import threading\nmodel.lock = threading.Lock()\nx = 1") == [
        "model was changed on node 0, but the change was not returned: model.lock is of type _thread.lock, which "
        "cannot be pickled (cannot pickle '_thread.lock' object). Here model is unchanged. "
        "Return the parts that you need under another name."
    ]
    assert vars(notebook["model"]) == {"w": 0}
    assert notebook["x"] == 1


def test_change_over_the_limit_is_reported(notebook: CellHarness) -> None:
    notebook.names |= {"x": [1], "y": [2]}
    assert notebook.sky("x.append(bytes(3 << 20)); y.append(3)", limit=1 << 20) == [
        "x was changed on node 0, but the change was not returned: the 3.0 MiB are over the limit of 1.0 MiB for "
        "returned values. Here x is unchanged. Return less of it, or raise the limit with --capture-limit."
    ]
    assert notebook["x"] == [1]
    assert notebook["y"] == [2, 3]


def test_only_requested_names_change(notebook: CellHarness) -> None:
    notebook.local("x = [1]; y = [2]; z = [x, y]")
    assert notebook.sky("x.append(3); y.append(4)", outputs=["x"]) == []
    assert notebook["z"] == [[1, 3], [2]]


@pytest.mark.parametrize(
    "cell",
    [
        "with open('/dev/null') as f: pass",
        "f = open('/dev/null'); f.close()",
        "import threading\nwith threading.Lock() as held, open('/dev/null') as f: n = 1",
        "import threading\nfor lock in [threading.Lock()]: pass",
    ],
)
def test_incidental_name_that_cannot_be_returned_is_not_reported(notebook: CellHarness, cell: str) -> None:
    assert notebook.sky(cell) == []


def test_value_that_several_nodes_cannot_return_is_reported_once(notebook: CellHarness) -> None:
    sent = notebook.take("import threading\nlock = threading.Lock()", in_place=False)
    from dataclasses import replace

    from skyward_jupyter.running.results import apply_results

    results = [replace(sent.pending.fn(*sent.pending.args), node=node) for node in (0, 1)]
    assert apply_results(results, notebook.names).notices == [
        "lock was not returned from nodes 0 and 1: it is of type _thread.lock, which cannot be pickled "
        "(cannot pickle '_thread.lock' object). Return the parts that you need under another name."
    ]


@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        (
            "class A:\n  n = 0\n  seen = []\n  def __init_subclass__(cls): A.n += 1; A.seen.append(cls.__name__)\n"
            "class B(A): pass\nclass C(B):\n  l = []",
            "x = C()\nC.l.append(1)\nclass D(C): pass",
            "A.n == 3 and A.seen == ['B', 'C', 'D'] and C.l == [1] and issubclass(D, C)",
        ),
        (
            "class A:\n  kinds = []\n  def __init_subclass__(cls): A.kinds.append(cls)\nclass B(A): pass\nb = B()",
            "x = b\nn = len(A.kinds)",
            "x is b and n == 1 and A.kinds == [B]",
        ),
        (
            "import abc\nclass M(abc.ABCMeta):\n  made = []\n  def __new__(m, name, bases, ns):\n"
            "    M.made.append(name); return super().__new__(m, name, bases, ns)\n"
            "class A(metaclass=M):\n  @abc.abstractmethod\n  def f(self): ...",
            "class B(A):\n  def f(self): return 1\nx = B().f()\ntry: A()\nexcept TypeError: y = True",
            "M.made == ['A', 'B'] and x == 1 and y",
        ),
    ],
)
def test_side_effects_of_class_creation_are_not_repeated(
    notebook: CellHarness, before: str, cell: str, after: str
) -> None:
    notebook.local(before)
    assert notebook.sky(cell) == []
    assert eval(after, notebook.names)


@pytest.mark.parametrize("more", ["", "    kept = []\n"])
def test_class_that_was_only_used_is_unchanged(notebook: CellHarness, more: str) -> None:
    notebook.local(
        "from dataclasses import dataclass\n@dataclass\nclass Point:\n    x: int\n"
        f"{more}    @property\n    def twice(self): return 2 * self.x"
    )
    assert notebook.sky("p = Point(1)\nn = p.twice\na = Point.__annotations__", nodes=2) == []
