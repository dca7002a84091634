"""Variables of the notebook that a cell looks up by names in strings."""

import linecache

import pytest

from tests.unit.jupyter.cells.conftest import CellHarness

pytestmark = pytest.mark.unit

GIVEN = """
import pandas as pd
df = pd.DataFrame({"a": [1, 2, 3]})
gv, thr, alpha, text, name, names = 7, 1, "A", "gv + 1", "gv", ["gv", "thr"]
def g(): return gv
"""


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("globals().get('gv', 'missing')", 7),
        ("globals()['gv']", 7),
        ("ns = globals()\nv = ns['gv']\ndel ns\nv", 7),
        ("'gv' in globals()", True),
        ("'nothing' in globals()", False),
        ("'gv' in dir()", True),
        ("vars()['gv']", 7),
        ("locals().get('gv')", 7),
        ("[globals()[k] for k in ('gv', 'thr')]", [7, 1]),
        ("[globals()[k] for k in names]", [7, 1]),
        ("globals()[name]", 7),
        ("eval('gv + thr')", 8),
        ("eval(text)", 8),
        ("exec('x = gv + 1')\nx", 8),
        ("import textwrap\nexec(textwrap.dedent('  x = gv + 1'))\nx", 8),
        ("code = 'x = gv + 1'\nexec(compile(code, 'c', 'exec'))\nx", 8),
        ("eval('gv', globals())", 7),
        ("eval('gv + y', {**globals(), 'y': 1})", 8),
        ("eval('g() + 1')", 8),
        ("'{gv}'.format(**globals())", "7"),
        ("'%(gv)d' % globals()", "7"),
        ("get_ipython().user_ns.get('gv')", 7),
        ("len(df.query('a > @thr'))", 2),
        ("q = 'a > @thr'\nlen(df.query(q))", 2),
        ("int(df.eval('b = a + @gv').b[0])", 8),
        ("len(df.query(f'a > @thr and a < {3}'))", 1),
        ("%time y = eval('gv')\ny", 7),
        ("def f(): return globals()['gv']\nf()", 7),
        ("def f(k): return globals()[k]\nf('gv')", 7),
        ("(lambda: eval('gv'))()", 7),
        ("class C: v = eval('gv')\nC.v", 7),
    ],
)
def test_names_in_strings_are_captured(notebook: CellHarness, source: str, value: object) -> None:
    notebook.local(GIVEN)
    assert notebook.sky(source) == []
    assert notebook.value == value


@pytest.mark.parametrize(
    ("given", "source", "value"),
    [
        ("def f(): return globals().get('gv', 'missing')", "f()", 7),
        ("def f(): return eval('gv')", "f()", 7),
        ("def f(k): return globals()[k]", "f('gv')", 7),
        ("def f(k): return globals()[k]", "f(name)", 7),
        ("def f(k): return globals()[k]\ndef h(): return f('gv')", "h()", 7),
        ("def f(): return len(df.query('a > @thr'))", "f()", 2),
        ("class C:\n    def get(self): return globals()['gv']\nc = C()", "c.get()", 7),
        ("f = lambda: globals()['g']()", "f()", 7),
        ("def f(): return [globals()[k] for k in ('gv', 'thr')]", "f()", [7, 1]),
    ],
)
def test_names_in_strings_of_functions_are_captured(
    notebook: CellHarness, given: str, source: str, value: object
) -> None:
    notebook.local(GIVEN + given)
    assert notebook.sky(source) == []
    assert notebook.value == value


def test_counter_stored_by_name_continues(notebook: CellHarness) -> None:
    for count in (1, 2):
        notebook.sky("counter = globals().get('counter', 0) + 1")
        assert notebook["counter"] == count
    notebook.sky("globals()['counter'] += 1")
    assert notebook["counter"] == 3
    notebook.sky("del globals()['counter']")
    assert "counter" not in notebook


def test_guard_by_name_in_globals_works(notebook: CellHarness) -> None:
    source = "if 'model' not in globals(): model = []\nmodel.append(1)"
    assert notebook.sky(source) == []
    first = notebook["model"]
    assert notebook.sky(source) == []
    assert notebook["model"] is first
    assert first == [1, 1]


def test_value_bound_to_a_computed_name_is_returned(notebook: CellHarness) -> None:
    assert notebook.sky("for i in range(2): globals()[f'part_{i}'] = i\nglobals().update(other=3)") == []
    assert (notebook["part_0"], notebook["part_1"], notebook["other"]) == (0, 1, 3)


@pytest.mark.parametrize(
    "source",
    [
        "print('gv')",
        "model.eval()\n'gv'",
        "f(1)\n'gv'",
        "vars(model)\ndir(model)\n'gv'",
        "eval('gv', {'gv': 1})",
        "def h(): return locals()\nh()\n'gv'",
        "globals()['new'] = 'gv'",
        "def h():\n    'gv of a docstring'\n    return globals()['thr']\nh()",
    ],
)
def test_strings_without_lookups_capture_nothing(notebook: CellHarness, source: str) -> None:
    notebook.local("class Model:\n    def eval(self): return self\nmodel = Model(); gv = 7; thr = 1")
    notebook.local("def f(a):\n    'gv'\n    return model.eval() and dict(gv=1)")
    assert "gv" not in notebook.take(source).captured


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("sorted(globals())", "line 1: globals()"),
        ("x = 1\n[k for k in dir() if k.startswith('d')]", "line 2: dir()"),
        ("for k, v in vars().items(): pass", "line 1: vars()"),
        ("list(locals())", "line 1: locals()"),
        ("globals()[f'g{1}']", "line 1: globals()"),
        ("eval('g' + 'v')", "line 1: eval()"),
        ("exec(open('/dev/null').read())", "line 1: exec()"),
        ("k = str(1)\nglobals().get(k)", "line 2: globals()"),
        ("globals().get(number)", "line 1: globals()"),
        ("def f(): return sorted(globals())\nf()", "line 1: globals()"),
    ],
)
def test_lookup_of_unknown_names_is_reported_once(notebook: CellHarness, source: str, what: str) -> None:
    notebook.local("number = 1; other = 2")
    code = f"try:\n    {source.replace(chr(10), chr(10) + '    ')}\nexcept NameError: pass"
    notebook.take(code)
    line, _, call = what.rpartition(" ")
    there = f"line {int(line.removeprefix('line ').rstrip(':')) + 1}: {call}"
    assert notebook.sent.notices == (
        f"{there} finds only those variables of the notebook that the cell reads or names in a string. List all the "
        "names that it needs with `-i NAMES`.",
    )


def test_lookup_is_not_reported_without_other_names_or_with_explicit_inputs(notebook: CellHarness) -> None:
    assert notebook.take("sorted(globals())").notices == ()
    notebook.local("a = b = 1")
    assert notebook.take("sorted(globals())", inputs=["a"]).notices == ()
    assert set(notebook.sent.captured) == {"a"}
    assert notebook.take("sorted(globals()), 'a'", capture=False).notices == ()
    assert notebook.sent.captured == {}


def test_lookup_in_a_function_of_the_notebook_is_reported(notebook: CellHarness) -> None:
    source = "def names(): return sorted(globals())\nother = 1\n"
    linecache.cache["<cell of names>"] = (len(source), None, source.splitlines(keepends=True), "<cell of names>")
    exec(compile(source, "<cell of names>", "exec"), notebook.names)
    (notice,) = notebook.take("names()").notices
    assert notice.startswith("names, line 1: globals() finds only those variables")


def test_name_in_a_string_that_cannot_be_sent_is_reported(notebook: CellHarness) -> None:
    notebook.local("import threading\nlock = threading.Lock()\ndef use(): return lock\nn = 1")
    assert notebook.sky("found = [k in globals() for k in ('lock', 'use', 'n')]") == []
    notices = notebook.sent.notices
    assert notebook["found"] == [False, False, True]
    assert [each.partition(":")[0] for each in notices] == [
        "lock, which is named in a string, was not sent to the node",
        "use, which is named in a string, was not sent to the node",
    ]
    assert "thread.lock" in notices[0]


def test_history_is_not_captured_by_lookups(notebook: CellHarness) -> None:
    notebook.local("In, _1, _ = [], 2, 3")
    assert notebook.sky("found = ['In' in globals(), '_1' in globals()]") == []
    assert notebook["found"] == [False, False]
