"""A cell leaves a random graph of objects in the same state as in the notebook."""

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.jupyter.cells.conftest import CellHarness

pytestmark = pytest.mark.unit

SETUP = """
class Node:
    seen = []
    def __init__(self, *parts): self.parts = list(parts); self.other = None
    def add(self, part): self.parts.append(part); Node.seen.append(len(self.parts)); return self
class Slotted:
    __slots__ = ("part", "count")
    def __init__(self, part): self.part, self.count = part, 0
a = [1]
b = {"a": a}
c = Node(a, b)
d = Slotted(c)
e = (a, d)
f = array
g = array[2:6]
h = {1, 2}
twins = [[1], [1], Node(), Node()]
hidden = [a, b, c, d, e, f, g, h, *twins]
def touch(x, log=[]):
    log.append(len(log))
    if isinstance(x, Node): x.add(log)
    return x
def make():
    held = a
    def put(x): held.append(x); return len(held)
    def get(): return held
    return put, get
put, get = make()
"""

_NAMES = "abcdefgh"
_names = st.sampled_from(_NAMES)
_objects = st.sampled_from(
    ["a", "b", "c", "d", "e[0]", "c.parts", "d.part", "touch(c)", "get()", "[a]", "[1]", "Node(b)"]
)
_statements = st.one_of(
    st.builds("a.append({})".format, _objects),
    st.builds("b[{!r}] = {}".format, st.sampled_from("pqr"), _objects),
    st.builds("c.add({})".format, _objects),
    st.builds("x = c.add({}).parts".format, _objects),
    st.builds("c.other = {}".format, _objects),
    st.builds("d.part = {}".format, _objects),
    st.builds("d.count += len(a)".format),
    st.builds("{} = {}".format, st.sampled_from(["x", "y", "a", "c"]), _objects),
    st.builds("x = [{}, {}]".format, _objects, _objects),
    st.builds("x = put({})".format, _objects),
    st.builds("{}[{}] = {}".format, st.sampled_from("fg"), st.integers(0, 3), st.integers(-9, 9)),
    st.builds("x = f[{}:6]".format, st.integers(0, 3)),
    st.builds("g += {}".format, st.integers(1, 3)),
    st.builds("h.add({})".format, st.integers(0, 5)),
    st.sampled_from(
        [
            "b.pop('p', None)",
            "del a[:1]",
            "c.parts.reverse()",
            "x = [touch(part) for part in c.parts]",
            "touch(a)",
            "del d.count; d.count = 1",
            "Node.seen = [c]",
            "twins[:2] = twins[1::-1]",
            "twins[2:] = twins[:1:-1]",
            "twins[1] = [1]",
            "twins[3] = Node()",
            "a, c = a, c",
            "1 / 0",
        ]
    ),
)


def shape(names: dict[str, Any]) -> list[object]:
    """Describe everything reachable from the names: each object once, then by reference."""
    seen: dict[int, int] = {}
    found: list[object] = []
    waiting = collections.deque((name, names[name]) for name in sorted(names) if not name.startswith("__"))
    memory: dict[int, int] = {}
    keep = []
    while waiting:
        path, value = waiting.popleft()
        if isinstance(value, (int, str, type(None))):
            found.append((path, value))
            continue
        if id(value) in seen:
            found.append((path, "met", seen[id(value)]))
            continue
        seen[id(value)] = len(seen)
        keep.append(value)
        found.append((path, type(value).__name__))
        if isinstance(value, np.ndarray):
            owner = value if value.base is None else value.base
            start = value.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
            found.append((path, value.tolist(), start, memory.setdefault(id(owner), len(memory))))
        waiting.extend((f"{path}.{step}", part) for step, part in _parts(value))
    return found


def _parts(value: Any) -> Iterator[tuple[object, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)
    elif isinstance(value, set):
        yield from enumerate(sorted(value))
    elif isinstance(value, type):
        yield "seen", vars(value).get("seen")
    elif callable(value):
        yield "defaults", value.__defaults__
        for number, cell in enumerate(value.__closure__ or ()):
            yield number, cell.cell_contents
    elif not isinstance(value, np.ndarray):
        names = getattr(type(value), "__slots__", None) or sorted(vars(value))
        yield "type", type(value)
        yield from ((name, getattr(value, name, "not there")) for name in names)


def run(notebook: CellHarness, source: str, *, sky: bool) -> str:
    try:
        if sky:
            assert notebook.sky(source) == []
        else:
            notebook.local(source)
    except Exception as error:
        return repr(error)
    return ""


@settings(max_examples=200)
@given(st.lists(st.lists(_statements, min_size=1, max_size=5), min_size=1, max_size=3))
def test_cell_leaves_the_same_graph_as_in_the_notebook(cells: list[list[str]]) -> None:
    here, there = CellHarness(), CellHarness()
    for notebook in (here, there):
        notebook.names["array"] = np.arange(10)
        notebook.local(SETUP)
    for cell in cells:
        source = "\n".join(cell)
        assert run(there, source, sky=True) == run(here, source, sky=False)
        assert shape(there.names) == shape(here.names)


@pytest.mark.parametrize("change", ["b = dict(b)", "g = g.copy()", "a = list(a)", "d.part = Node()"])
def test_comparison_detects_identities(change: str) -> None:
    notebook = CellHarness()
    notebook.names["array"] = np.arange(10)
    notebook.local(SETUP)
    before = shape(notebook.names)
    assert shape(notebook.names) == before
    notebook.local(change)
    assert shape(notebook.names) != before
