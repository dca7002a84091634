"""The comparison detects differences: each program leaves a different state than its neighbour."""

from pathlib import Path

import pytest

from tests.corpus.compare import Names, compare
from tests.corpus.harness import findings, run
from tests.corpus.scenario import Scenario

pytestmark = pytest.mark.local

_NP = "import numpy as np\n"
_PAIR = "def pair():\n    n = 0\n    def add():\n        nonlocal n\n        n += 1\n    return add, lambda: n\n"

DIFFERENT = [
    ("x = 1", "x = 2", "x is 1 in the notebook and 2 under %%sky"),
    ("x = 1", "x = 1.0", "x is 1 in the notebook and 1.0 under %%sky"),
    ("x = 1", "x = True", "x is 1 in the notebook and True under %%sky"),
    ("x = 1", "", "x is bound in the notebook, and not under %%sky"),
    ("", "x = 1", "x is bound under %%sky, and not in the notebook"),
    ("x = [1, [2]]", "x = [1, [3]]", "x[1][0] is 2 in the notebook and 3 under %%sky"),
    ("x = y = []", "x, y = [], []", "y is x in the notebook, and another object under %%sky"),
    ("x, y = [], []", "x = y = []", "y and x are one object under %%sky, and two in the notebook"),
    ("x = []\ny = {'k': (0, [x])}", "y = {'k': (0, [[]])}\nx = []", "y['k'][1][0] is x in the notebook"),
    ("x = [1]\nx.append(x)", "x = [1, [1]]\nx[1].append(x)", "x[1] is x in the notebook"),
    ("d = {'a': 1, 'b': 2}", "d = {'b': 2, 'a': 1}", "d is {'a': 1"),
    (
        "import collections as c\no = c.OrderedDict(a=1, b=2)\no.move_to_end('a')",
        "import collections as c\no = c.OrderedDict(a=1, b=2)",
        "o is OrderedDict({'b': 2, 'a': 1})",
    ),
    ("s = {1, 2}", "s = {1, 3}", "s is {1, 2}"),
    ("class A: x = 1", "class A: x = 2", "A.x is 1"),
    ("class A: x = 1", "class A: pass", "A.x is there in the notebook"),
    ("class A: pass\na = A()\na.x = 1", "class A: pass\na = A()", "a.x is there in the notebook"),
    ("class A: __slots__ = ('x',)\na = A()\na.x = 1", "class A: __slots__ = ('x',)\na = A()\na.x = 2", "a.x is 1"),
    (
        "class A: pass\na = A()",
        "class A: pass\nB = A\nclass A: pass\na = B()\ndel B",
        "a.__class__ is A in the notebook",
    ),
    ("class A(list): pass\na = A([1])", "class A(list): pass\na = A([2])", "a[0] is 1"),
    ("def f(): return 1", "def f(): return 2", "f is another function"),
    ("def f(x=[]): pass", "def f(x=[1]): pass", "f.__defaults__[0] is []"),
    ("def f(): pass\nf.n = 1", "def f(): pass\nf.n = 2", "f.n is 1"),
    ("def f(): pass", "exec('def f(): pass', n := {'__name__': '__main__'})\nf = n['f']\ndel n", "f has other globals"),
    (_PAIR + "add, get = pair()\nadd()", _PAIR + "add, get = pair()", "add.<n> is 1"),
    (
        _PAIR + "add, get = pair()",
        _PAIR + "add, _ = pair()\n_, get = pair()\n_ = ''",
        "get.<n> is add.<n> in the notebook",
    ),
    ("x = iter([1, 2])\nnext(x)", "x = iter([1, 2])", "x![2] is 1"),
    ("g = (i for i in range(3))\nnext(g)", "g = (i for i in range(3))", "g stands elsewhere"),
    ("import itertools as it\nc = it.count(1)", "import itertools as it\nc = it.count(2)", "c.next()[0] is 1"),
    ("import threading as t\nk = t.Lock()\nk.acquire()", "import threading as t\nk = t.Lock()\nTrue", "k is <locked"),
    ("import collections as c\nd = c.deque([1], 2)", "import collections as c\nd = c.deque([1], 3)", "d.maxlen is 2"),
    (
        "import collections as c\nd = c.defaultdict(int)",
        "import collections as c\nd = c.defaultdict(list)",
        "d.default_factory is",
    ),
    (
        "b = bytearray(b'a')\nm = memoryview(b)",
        "b = bytearray(b'a')\nm = memoryview(bytearray(b'a'))",
        "m.obj is b in the notebook",
    ),
    ("e = ValueError(1)\ne.__cause__ = KeyError(2)", "e = ValueError(1)", "e.__cause__ is KeyError(2)"),
    (_NP + "a = np.arange(3)", _NP + "a = np.array([0, 1, 3])", "a is array([0, 1, 2])"),
    (_NP + "a = np.arange(3)", _NP + "a = np.arange(3.0)", "a (by its dtype) is"),
    (
        _NP + "a = np.arange(3)",
        _NP + "a = np.arange(3)\na.flags.writeable = False",
        "a can be written to in the notebook",
    ),
    (
        _NP + "a = np.arange(3)\nb = a[1:]",
        _NP + "a = np.arange(3)\nb = a[1:].copy()",
        "a and b share memory, 8 bytes apart",
    ),
    (_NP + "a = np.zeros(3)\nb = a[1:]", _NP + "a = np.zeros(3)\nb = a[:2]", "a and b share memory, 8 bytes apart"),
    (_NP + "a = np.ma.array([1, 2], mask=[0, 1])", _NP + "a = np.ma.array([1, 2], mask=[0, 0])", "a.mask is"),
    (_NP + "x = []\na = np.array([x, None])", _NP + "x = []\na = np.array([[], None], dtype=object)", "a"),
    (
        "import pandas as pd\nd = pd.DataFrame({'a': [1]})",
        "import pandas as pd\nd = pd.DataFrame({'a': [2]})",
        "d differs",
    ),
    ("import random\nrandom.seed(1)", "import random\nrandom.seed(2)", "random is"),
    ("import sys\nsys.path.append('/x')", "import sys", "sys.path is"),
    ("open('{place}/f', 'w').close()", "open('{place}/g', 'w').close()", "files is"),
    ("3", "4", "_ is 3"),
]


@pytest.mark.parametrize(("here", "there", "expected"), DIFFERENT, ids=[str(i) for i in range(len(DIFFERENT))])
def test_differences_are_found(here: str, there: str, expected: str, tmp_path: Path) -> None:
    runs = [run(Scenario("", source, "0;"), None, str(tmp_path)) for source in (there, here)]
    found = [difference.text for difference in compare(runs[0].names, runs[1].names)]
    assert any(text.startswith(expected) for text in found), found


@pytest.mark.parametrize("source", [source for different in DIFFERENT for source in different[:2]])
def test_equal_states_have_no_differences(source: str, tmp_path: Path) -> None:
    one, two = (run(Scenario("", source, "0;"), None, str(tmp_path)).names for _ in range(2))
    assert compare(one, two) == []


def test_shared_object_is_not_a_difference() -> None:
    value: list[int] = []
    names = Names({"x": value, "y": value}, {}, (), {})
    assert compare(names, names) == []


TOLD: list[tuple[tuple[str, ...], list[str]]] = [
    ((), ["x is 1 in the notebook and 2 under %%sky", "needless notice: x stayed there"]),
    (("x",), []),
    (("z",), ["x is 1 in the notebook and 2 under %%sky", "needless notice: x stayed there"]),
    (("stay",), ["x is 1 in the notebook and 2 under %%sky", "needless notice: x stayed there"]),
]


def findings_of(scenario: Scenario, here: str, there: str, tmp_path: Path) -> list[str]:
    """Return the findings for two cells in a scenario."""
    runs = [run(Scenario("", "", source), None, str(tmp_path)) for source in (here, there)]
    return findings(scenario, runs[0].outputs, runs[1].outputs, compare(runs[1].names, runs[0].names), [])


@pytest.mark.parametrize(("names", "expected"), TOLD)
def test_reported_difference_is_allowed(names: tuple[str, ...], expected: list[str], tmp_path: Path) -> None:
    there = "x = 2\nimport sys as _sys\n_sys.stderr.write('x stayed there\\n');del _sys"
    assert findings_of(Scenario("", "", "x = 1", reported=names), "x = 1", there, tmp_path) == expected


def test_unreported_difference_is_found(tmp_path: Path) -> None:
    found = findings_of(Scenario("", "", "x = 1", reported=("x",)), "x = 1", "x = 2", tmp_path)
    assert found == ["not reported: x is 1 in the notebook and 2 under %%sky"]


_OUTPUT = "print('a')\nimport sys\nsys.stderr.write('e');del sys"


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (_OUTPUT, []),
        (_OUTPUT.replace("'a'", "'b'"), ["cell 1: prints 'a\\n' in the notebook and 'b\\n'"]),
        (_OUTPUT.replace("'e'", "''"), ["cell 1: writes ['e'] to stderr in the notebook, and not under %%sky"]),
        (_OUTPUT + "\n2", ["cell 1: shows [] in the notebook and [{'text/plain': '2'}]"]),
        (_OUTPUT + "\n1 / 0", ["cell 1: raises None in the notebook and ('ZeroDivisionError', 'division by zero')"]),
    ],
)
def test_different_outputs_are_found(there: str, expected: list[str], tmp_path: Path) -> None:
    found = [text for text in findings_of(Scenario("", "", "1"), _OUTPUT, there, tmp_path) if text.startswith("cell")]
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected
