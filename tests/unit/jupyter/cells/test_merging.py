"""Changes of a cell are merged with changes that the notebook makes meanwhile."""

import gc
import itertools
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own
import pytest

from skyward.wire.objects.contents import contents_of, put_contents
from skyward.wire.payloads.payload import decode, encode
from skyward.wire.protocol.messages import Blob
from skyward.worker.blobs.store import BlobStore
from skyward_jupyter.failures.presentation import short_errors
from skyward_jupyter.running.results import apply_result
from tests.unit.jupyter.cells.conftest import CellHarness, travel

pytestmark = [
    pytest.mark.unit,
    pytest.mark.filterwarnings("ignore:Pickle, copy, and deepcopy support:DeprecationWarning"),
]

TWO = "class M: pass\na, b = M(), M(); a.w = b.w = 0; ms = [a, b]"
KEY = """
class K:
    def __init__(self, v): self.v = v
    def __hash__(self): return hash(self.v)
    def __eq__(self, other): return type(other) is K and self.v == other.v
k = K(1)
"""
DATA = """
from dataclasses import dataclass
@dataclass(unsafe_hash=True)
class K: v: int
k = K(1)
"""


@pytest.mark.parametrize(
    ("before", "cell", "meanwhile", "after"),
    [
        (TWO, "ms[0].w = 1", "b.w = 7", "(a.w, b.w) == (1, 7)"),
        (TWO, "ms[0].w = 1", "a.u = 7", "vars(a) == {'w': 1, 'u': 7}"),
        (TWO, "ms[0].w = 1", "ms.append(3)", "a.w == 1 and ms == [a, b, 3]"),
        (TWO, "M.n = 1", "M.m = 2", "M.n == 1 and M.m == 2"),
        ("res = []", "res.append('node')", "res.append('home')", "res == ['home', 'node']"),
        ("x = [1, 2, 3]", "x[0] = 7", "x[2] = 8", "x == [7, 2, 8]"),
        ("x = [1, 2, 3]", "x[0] = 7; x[2] = 9", "x[1] = 8", "x == [7, 8, 9]"),
        ("x = [3, 1, 2]", "x.sort()", "x.append(9)", "x == [1, 2, 3, 9]"),
        ("x = [1, 2, 3]", "del x[1]", "x.append(4)", "x == [1, 3, 4]"),
        ("d = {'a': 1}", "d['b'] = 2", "d['c'] = 3", "d == {'a': 1, 'b': 2, 'c': 3}"),
        ("d = {'a': 1, 'b': 2}", "del d['a']", "d['b'] = 3", "d == {'b': 3}"),
        ("d = {'a': 1, 'b': 2}", "d['a'] = d.pop('a')", "d['c'] = 3", "list(d) == ['b', 'a', 'c']"),
        ("s = {1}", "s.add(2); s.discard(1)", "s.add(3)", "s == {2, 3}"),
        (
            "import collections; c = collections.Counter()",
            "c['a'] += 1",
            "c['b'] += 1",
            "c == {'a': 1, 'b': 1} and type(c) is collections.Counter",
        ),
        (
            "class L(list): pass\nx = L([1]); x.n = 1; y = x",
            "x.append(2)",
            "x.n = 3",
            "x == [1, 2] and x.n == 3 and x is y",
        ),
        (
            "class S: __slots__ = ('a', 'b')\nx = S(); x.a = x.b = 0",
            "x.a = 1",
            "x.b = 2",
            "(x.a, x.b) == (1, 2)",
        ),
        (
            "n = m = 0\ndef f():\n  global n\n  n += 1\ndef g():\n  f.calls = 1",
            "f(); g()",
            "m = 5",
            "n == 1 and m == 5 and f.calls == 1",
        ),
    ],
)
def test_changes_in_different_places_are_merged(
    notebook: CellHarness, before: str, cell: str, meanwhile: str, after: str
) -> None:
    notebook.local(before)
    assert notebook.sky(cell, meanwhile=meanwhile) == []
    assert eval(after, notebook.names)


@pytest.mark.parametrize(
    ("before", "cell", "meanwhile", "after"),
    [
        (TWO, "ms[0].w = 1", "a.w = 7", "(a.w, b.w) == (1, 0)"),
        ("ms = [1, 2]", "ms[0] = 7", "ms[0] = 8", "ms == [7, 2]"),
        ("ms = [1, 2]", "ms[1] = 7", "ms.pop()", "ms == [1, 7]"),
        ("ms = [1, 2]", "del ms[:]", "ms[0] = 3", "ms == []"),
        ("ms = {'a': 1}", "ms['a'] = 2", "ms['a'] = 3", "ms == {'a': 2}"),
        ("ms = {'a': 1}", "ms['b'] = 2", "ms['b'] = 3", "ms == {'a': 1, 'b': 2}"),
        ("ms = bytearray(b'ab')", "ms[0] = 1", "ms[1] = 2", "ms == b'\\x01b'"),
        ("import itertools; ms = itertools.count()", "next(ms)", "next(ms); next(ms)", "next(ms) == 1"),
        (
            "class M:\n  def __getstate__(s): return s.v\n  def __setstate__(s, v): s.v = v\nms = M(); ms.v = 0",
            "ms.v = 1",
            "ms.v = 2",
            "ms.v == 1",
        ),
    ],
)
def test_conflicting_changes_are_reported(
    notebook: CellHarness, before: str, cell: str, meanwhile: str, after: str
) -> None:
    notebook.local(before)
    assert notebook.sky(cell, meanwhile=meanwhile) == [
        "ms was also changed here since the cell was sent: where both changed the same part, the cell's version was "
        "kept. "
        "Change it after the cell, or give the cell a copy."
    ]
    assert eval(after, notebook.names)


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        ("ms = [1]; other = 0", "other = 1"),
        ("ms = {1: [2]}", ""),
        ("ms = {frozenset({1}): 2, (1, 'a'): 3.5}", ""),
        ("class M:\n  def __reduce__(s): return M, (), {'v': s.v}\nms = M(); ms.v = [1]", ""),
        ("class M:\n  def __getstate__(s): return {'v': list(s.v)}\nms = M(); ms.v = [1]", ""),
        ("import collections; ms = collections.deque([1, [2]], 3)", ""),
        ("import datetime; ms = [datetime.datetime.now(), float('nan'), -0.0, 1j]", ""),
        ("def ms(x, y=[1], *, z={}): return ms", ""),
        ("import logging; ms = logging.getLogger('x')", ""),
    ],
)
def test_changes_by_the_cell_alone_are_not_reported(notebook: CellHarness, before: str, meanwhile: str) -> None:
    notebook.local(before + "\nheld = [ms, {'ms': ms}, (ms,)]")
    assert notebook.sky("held.append(ms)\nheld[1]['new'] = 1\ndel held[2]", meanwhile=meanwhile) == []
    ms = notebook["ms"]
    assert len(notebook["held"]) == 3
    assert notebook["held"][0] is notebook["held"][1]["ms"] is notebook["held"][2] is ms


@pytest.mark.parametrize("size", [4, 1000, 600_000])
def test_changes_to_elements_of_one_array_are_merged(notebook: CellHarness, size: int) -> None:
    notebook.names["a"] = np.zeros(size, "f4")
    half = size // 2
    first, second = (notebook.take(f"a[{part}] += {n}") for n, part in ((1, f":{half}"), (2, f"{half}:")))
    results = [travel(sent.pending.fn(*travel(sent.pending.args))) for sent in (first, second)]
    for sent, result in zip((first, second), results, strict=True):
        notebook.notices += apply_result(result, notebook.names, sent.originals).notices
    if size == 600_000:  # large: no copy of the sent bytes
        assert [notice.partition(" here")[0] for notice in notebook.notices] == ["a was also changed"]
    else:
        assert notebook.notices == []
        assert notebook["a"].tolist() == [1] * half + [2] * (size - half)


def test_conflicting_changes_to_array_elements_are_reported(notebook: CellHarness) -> None:
    notebook.names |= {"a": np.zeros(4, int), "np": np}
    assert notebook.sky("a[2:] = 2", meanwhile="a[2] = 1")[0].startswith("a was also changed here")
    assert notebook["a"].tolist() == [0, 0, 2, 2]
    notebook.names["view"] = notebook["a"][1:]
    assert notebook.sky("a[0] = 5; view[0] = 6", meanwhile="a[3] = 7") == []
    assert notebook["a"].tolist() == [5, 6, 2, 7]


def test_conflicting_changes_to_a_data_frame_are_reported(notebook: CellHarness) -> None:
    notebook.names["df"] = pd.DataFrame({"a": [1, 2]})
    assert len(notices := notebook.sky("df.loc[0, 'a'] = 5", meanwhile="df.loc[1, 'a'] = 7")) == 1
    assert notices[0].startswith("df was also changed here")


def test_rebound_name_is_not_unbound(notebook: CellHarness) -> None:
    notebook.local("x = 1")
    assert notebook.sky("del x", meanwhile="x = 'precious'") == [
        "The cell deleted x, but x was rebound here after the cell was sent: it was kept."
    ]
    assert notebook["x"] == "precious"
    assert notebook.sky("del x") == []
    assert "x" not in notebook


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Provide an object of a library that recreates the state that it does not pickle."""
    library = types.ModuleType("library_of_test")
    exec(
        "import threading\n"
        "class Conn:\n"
        "    def __init__(self): self.v, self.cache = 0, {}; self._connect()\n"
        "    def _connect(self): self.lock, self.sock = threading.Lock(), object()\n"
        "    def __getstate__(self): return {'v': self.v}\n"
        "    def __setstate__(self, state): self.__dict__.update(state); self.cache = {}; self._connect()\n",
        vars(library),
    )
    monkeypatch.setitem(sys.modules, "library_of_test", library)
    return library.Conn()


def test_unchanged_object_is_left_alone(notebook: CellHarness, connection: Any) -> None:
    connection.cache["k"] = 1
    before = dict(vars(connection))
    notebook.names["cfg"] = [connection, []]
    assert notebook.sky("cfg[1].append(1)") == []
    assert notebook["cfg"][1] == [1]
    assert all(vars(connection)[name] is value for name, value in before.items())
    assert connection.cache == {"k": 1}


def test_unpickled_state_survives_a_change_of_its_object(notebook: CellHarness, connection: Any) -> None:
    lock, sock = connection.lock, connection.sock
    notebook.names["conn"] = connection
    assert notebook.sky("conn.v = 3") == []
    assert (connection.v, connection.lock, connection.sock) == (3, lock, sock)


@pytest.mark.parametrize("key", [KEY, DATA])
@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        ("d = {k: 1}", "d.pop(k); k.v = 5; d[k] = 2", "d[k] == 2 and len(d) == 1"),
        ("d = {k: 1}", "d.pop(k); k.v = 5; d[k] = 1", "d[k] == 1 and len(d) == 1"),
        ("d = {k: 1}", "d.pop(k); d['a'] = 2; k.v = 5; d[k] = 1", "d[k] == 1 and len(d) == 2"),
        ("d = {(k, 1): 1}", "d.clear(); k.v = 5; d[k, 1] = 2", "d[k, 1] == 2 and len(d) == 1"),
        ("d = {k}", "d.discard(k); k.v = 5; d.add(k)", "k in d and len(d) == 1"),
        ("", "k.v = 9\nd = {k: 1}; s = {k}; t = {(k, 1): 3}", "k in d and k in s and (k, 1) in t"),
        ("", "k.v = 9\nx = [{k: 1}, {k}]", "k in x[0] and k in x[1]"),
        (
            "import collections; d = collections.defaultdict(int)",
            "d[k] = 1; d.pop(k); k.v = 5; d[k] = 2",
            "d[k] == 2 and len(d) == 1",
        ),
    ],
)
def test_containers_find_keys_whose_hash_changed(
    notebook: CellHarness, key: str, before: str, cell: str, after: str
) -> None:
    notebook.local(key + before)
    assert notebook.sky(cell) == []
    assert eval(after, notebook.names)


class _Refusing:
    def __hash__(self) -> int:
        raise TypeError("no")


@pytest.mark.parametrize("value", [{"a": 1}, {1, 2}])
def test_dict_is_unchanged_if_hashing_a_key_fails(value: Any) -> None:
    before = value.copy()
    contents = contents_of(value)
    assert contents is not None
    (contents.parts[0] if contents.form == "dict" else contents.parts).append(_Refusing())
    if contents.form == "dict":
        contents.parts[1].append(1)
    with pytest.raises(TypeError, match="no"):
        put_contents(value, contents)
    assert value == before


@pytest.mark.parametrize(
    ("before", "cell", "after"),
    [
        ("import array; c = array.array('i', [1])", "c.append(2); c[0] = 9", "c.tolist() == [9, 2]"),
        ("c = ValueError('a')", "c.add_note('n'); c.args = ('b',); c.x = 1", "c.args == ('b',) and c.x == 1"),
        ("c = ValueError('a')", "c.add_note('n')", "c.__notes__ == ['n']"),
        ("class E(Exception):\n  def __init__(s, a, b): s.a = a\nc = E(1, 2)", "c.a = 3", "c.a == 3"),
        ("class T(tuple): pass\nc = T([1, []]); c.n = 1", "c.n = 2; c[1].append(1)", "c.n == 2 and c[1] == [1]"),
        ("class T(frozenset): pass\nc = T([1]); c.n = 1", "c.n = 2", "c.n == 2 and 1 in c"),
        ("class T(str): pass\nc = T('a'); c.n = 1", "c.n = 2", "c.n == 2 and c == 'a'"),
        ("class T(int): pass\nc = T(1); c.n = 1", "c.n = 2", "c.n == 2 and c == 1"),
        ("class T(set): pass\nc = T([1]); c.n = 1", "c.n = 2; c.add(2)", "c.n == 2 and c == {1, 2}"),
        (
            "import collections\nclass T(collections.deque): pass\nc = T([1], 2); c.n = 1",
            "c.n = 2; c.extend([2, 3])",
            "c.n == 2 and list(c) == [2, 3]",
        ),
    ],
)
def test_object_is_updated_in_place(notebook: CellHarness, before: str, cell: str, after: str) -> None:
    notebook.local(before + "\ncs = [c]")
    assert notebook.sky(cell) == []
    assert notebook["cs"][0] is notebook["c"]
    assert eval(after, notebook.names)


def test_object_that_cannot_be_updated_is_replaced(notebook: CellHarness) -> None:
    notebook.local("from itertools import count\nc = count(); d = c; cs = [c]; t = (c, 1); deep = {'t': t}")
    assert notebook.sky("next(c); cs.append(1); deep['n'] = 1") == []
    c = notebook["c"]
    assert notebook["d"] is c is notebook["cs"][0] is notebook["t"][0]
    assert notebook["deep"]["t"] is notebook["t"]
    assert next(c) == 1


def test_replacement_is_bound_to_all_names_of_the_original(notebook: CellHarness) -> None:
    notebook.local("from itertools import count\nc = count()")
    assert notebook.sky("next(c)", meanwhile="d = c; c = e = [1]") == []
    assert notebook["c"] is notebook["e"] == [1]
    assert next(notebook["d"]) == 1


def test_remaining_reference_to_a_replaced_object_is_reported(notebook: CellHarness) -> None:
    notebook.local("from itertools import count\nc = count(); cs = [c]")
    assert notebook.sky("next(c)") == [
        "c is now a new count with the changes of the cell; a list here still refers to the old one. "
        "Use that in the cell too."
    ]
    notebook.local("c = count()")
    assert notebook.sky("next(c)") == []


def test_history_of_the_notebook_is_unchanged(notebook: CellHarness) -> None:
    it = itertools.count()
    notebook.names |= {"it": it, "other": it, "_": it, "__": it, "_3": it}
    assert notebook.sky("next(it)") == []
    assert notebook["it"] is notebook["other"] is not it
    assert notebook["_"] is notebook["__"] is notebook["_3"] is it


def test_displayed_error_keeps_no_value_alive(notebook: CellHarness) -> None:
    class Value:
        def __reduce__(self) -> Any:
            raise TypeError("not this one")

    notebook.names["held"] = Value()
    value = weakref.ref(notebook["held"])
    try:
        with short_errors():
            notebook.take("held")
    except Exception as error:
        caught = error
    assert any(frame.f_globals["__name__"].startswith("skyward.") for frame in _frames(caught))
    del notebook.names["held"]
    for frame in _frames(caught):
        if frame.f_code.co_name == "__reduce__":
            frame.clear()  # of the user, for the debugger
    gc.collect()
    assert value() is None


def _frames(error: BaseException | None) -> Iterator[Any]:
    while error is not None:
        step = error.__traceback__
        while step is not None:
            yield step.tb_frame
            step = step.tb_next
        error = error.__cause__


@pytest.mark.skipif(sys.version_info < (3, 13), reason="a second map of a file would keep a descriptor")
def test_changes_to_elements_of_a_large_mapped_array_are_merged(notebook: CellHarness) -> None:
    store = BlobStore()

    def mapped(value: Any) -> Any:
        sent = encode(value)

        def fetch(blob: Blob) -> memoryview:
            room = store.reserve(blob.size)
            room.write(sent.blobs[blob.key], 0)
            return room.read()

        return decode(sent.payload, fetch)

    notebook.names |= {"a": np.zeros(2_000_000), "part": None}
    notebook.names["part"] = notebook["a"][1::2]
    cell = notebook.take("a[:1000] = 1; part[-1] = 2")
    result = travel(cell.pending.fn(*mapped(cell.pending.args)))
    notebook["a"][1000:2000] = 3
    assert apply_result(result, notebook.names, cell.originals).notices == []
    assert np.flatnonzero(notebook["a"]).tolist() == [*range(2000), 1_999_999]
    assert notebook["part"][-1] == 2


@pytest.mark.parametrize(
    "kind",
    [
        # Its state differs on the node from the start.
        "class C:\n"
        "    def __init__(self): self.cache, self.log = [5], []\n"
        "    def __getstate__(self): return dict(self.__dict__)\n"
        "    def __setstate__(self, state): self.__dict__.update(state, cache=None)",
        # Its state differs each time it is pickled.
        "import time\n"
        "class C:\n"
        "    def __init__(self): self.log = []\n"
        "    def __getstate__(self): return {'log': self.log, 'at': time.perf_counter()}\n"
        "    def __setstate__(self, state): self.__dict__.update(state)",
    ],
)
def test_object_with_custom_pickling_counts_as_unchanged_here(notebook: CellHarness, kind: str) -> None:
    notebook.local(f"{kind}\nc = C(); cs = [c]")
    assert notebook.sky("c.log.append(1); c.new = 2") == []
    notebook.local("found = cs[0] is c, c.log")
    assert notebook["found"] == (True, [1])
