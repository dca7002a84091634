"""Objects with special behaviour: containers with methods, finalizers, sentinels, unusual classes."""

import gc
import linecache
from collections.abc import Callable
from pathlib import Path

import pytest

from skyward.errors import NotPicklableError, PayloadError
from skyward_jupyter.running.results import apply_result
from tests.unit.jupyter.cells.conftest import CellHarness, travel

pytestmark = pytest.mark.unit

CONTAINERS = """
from collections import Counter, OrderedDict, defaultdict, deque
class Doubling(dict):
    def __setitem__(self, key, value): super().__setitem__(key, value * 2)
class Ordered(OrderedDict):
    def __init__(self, start): super().__init__(start)
    def __setitem__(self, key, value): super().__setitem__(key, value * 2)
class Groups(defaultdict):
    def __init__(self, name): super().__init__(list); self.name = name
class Votes(Counter):
    def __init__(self, name): super().__init__(); self.name = name
    def __setitem__(self, key, value): super().__setitem__(key, value * 2)
class Logged(list):
    def append(self, value): super().append((len(self), value))
    def extend(self, values): [self.append(value) for value in values]
class Tags(set):
    def __init__(self, name, tags=()): self.name = name; super().__init__(tags)
    def add(self, tag): super().add(tag.upper())
    def update(self, tags): [self.add(tag) for tag in tags]
class Recent(deque):
    def __init__(self, size): super().__init__(maxlen=size); self.seen = 0
    def append(self, value): self.seen += 1; super().append(value * 2)
class Attributes(dict):
    def __init__(self, **values): super().__init__(**values); self.__dict__ = self
doubling = Doubling(a=1); doubling.note = ['n']
ordered = Ordered({'x': 1, 'y': 2}); ordered.move_to_end('x')
groups = Groups('g'); groups['a'].append(1)
votes = Votes('v'); votes['yes'] = 1
logged = Logged(); logged.append('one')
tags = Tags('t', ['a', 'b'])
recent = Recent(2); recent.append(1)
attributes = Attributes(lr=1)
everything = {'doubling': doubling, 'tags': tags, 'recent': recent}
def show():
    return repr([dict(doubling), doubling.note, list(ordered.items()), type(groups).__name__, groups.name, dict(groups),
                 votes.name, dict(votes), list(logged), tags.name, sorted(tags), list(recent), recent.seen,
                 recent.maxlen, dict(attributes), attributes.lr])
"""

CHANGE = """
doubling['z'] = 1; doubling.note.append('m')
ordered['z'] = 3; ordered.move_to_end('y', last=False)
groups['b'].append(2)
votes['no'] = 2
logged.append('two')
tags.add('c'); tags.discard('a')
recent.append(2); recent.append(3)
attributes.lr = 2; attributes.new = 3
"""


def test_containers_with_overridden_methods_arrive_unchanged(notebook: CellHarness) -> None:
    notebook.local(CONTAINERS + "here = show()")
    assert notebook.sky("there = show()") == []
    assert notebook["there"] == notebook["here"]


def test_containers_with_overridden_methods_are_returned_unchanged(notebook: CellHarness) -> None:
    notebook.local(CONTAINERS)
    plain = CellHarness()
    plain.local(CONTAINERS + CHANGE + "there = show()")
    before = {name: notebook[name] for name in notebook["everything"]}

    assert notebook.sky(CHANGE + "there = show()") == []

    assert notebook["there"] == plain["there"]
    notebook.local("here = show()")
    assert notebook["here"] == plain["there"]
    assert {name: notebook[name] for name in before} == before
    assert all(notebook["everything"][name] is notebook[name] is before[name] for name in before)
    notebook.local("attributes.later = 4")
    assert notebook["attributes"]["later"] == 4


def test_container_created_by_the_cell_is_returned_unchanged(notebook: CellHarness) -> None:
    assert notebook.sky(CONTAINERS) == []
    plain = CellHarness()
    plain.local(CONTAINERS)
    assert notebook["show"]() == plain["show"]()


def test_container_with_custom_reduce_is_pickled_by_it(notebook: CellHarness) -> None:
    notebook.local("""
class Own(dict):
    def __setitem__(self, key, value): super().__setitem__(key, value * 2)
    def __reduce__(self): return (Own, (), None, None, iter([('made', 1)]))
own = Own(a=1)
""")
    notebook.sky("there = dict(own)")
    assert notebook["there"] == {"made": 2}


ENUMS = """
from enum import Enum, Flag, IntEnum, StrEnum, auto
class Planet(Enum):
    EARTH = (5.9, 6.3)
    MARS = (0.6, 3.3)
    def __init__(self, mass, radius): self.mass, self.radius = mass, [radius]
    @property
    def density(self): return self.mass / self.radius[0]
class Coordinate(bytes, Enum):
    def __new__(cls, value, label):
        made = bytes.__new__(cls, [value])
        made._value_, made.label = value, label
        return made
    X = (0, 'P.X')
    Y = (1, 'P.Y')
class Level(IntEnum):
    LOW, HIGH = 1, 2
    TOP = 2
class Name(StrEnum):
    A = auto()
    B = auto()
class Permission(Flag):
    R, W = 4, 2
    RW = 6
class Base(Enum):
    def __init__(self, *_): self.order = len(type(self).__members__)
class Derived(Base):
    ONE, TWO = 'a', 'b'
earth = Planet.EARTH
def show():
    return repr([earth.mass, Planet.MARS.density, bytes(Coordinate.Y), Coordinate.Y.label, Coordinate(1).name,
                 Level.TOP, Level.HIGH + 1, Level(2), Name.A + '!', Name('b'), Permission.RW,
                 Permission.R | Permission.W,
                 list(Permission), Derived.TWO.order, Derived('a'), sorted(Level.__members__), list(Planet)])
"""


def test_members_of_an_enum_keep_state_set_by_its_methods(notebook: CellHarness) -> None:
    notebook.local(ENUMS + "here = show()")
    assert notebook.sky("there = show()\nfound = earth is Planet.EARTH, Permission.RW is Permission(6)") == []
    assert notebook["there"] == notebook["here"]
    assert notebook["found"] == (True, True)
    other = CellHarness()
    assert other.sky(ENUMS) == []
    assert other["show"]() == notebook["here"]


def test_changes_of_an_enum_are_applied(notebook: CellHarness) -> None:
    notebook.local(ENUMS + "kept = [Planet.EARTH]\nPlanet.MARS.moons = 2")
    source = "Planet.note = 5\nearth.mass = 7\nearth.radius.append(1)\nearth.extra = 'hi'\ndel Planet.MARS.moons\n"
    assert notebook.sky(source + "def area(self): return 3\nPlanet.area = area") == []
    planet = notebook["Planet"]
    assert notebook["kept"][0] is notebook["earth"] is planet.EARTH
    assert (planet.note, planet.EARTH.mass, planet.EARTH.extra, planet.MARS.area()) == (5, 7, "hi", 3)
    assert planet.EARTH.radius == [6.3, 1]
    assert not hasattr(planet.MARS, "moons")


def test_abc_registration_is_returned(notebook: CellHarness) -> None:
    notebook.local("import abc\nclass Shape(abc.ABC): pass\nclass Square: pass\nsquare = Square()")
    assert notebook.sky("Shape.register(Square)\nShape.register(list)\nfound = isinstance(square, Shape)") == []
    assert notebook["found"] is True
    assert isinstance(notebook["square"], notebook["Shape"])
    assert issubclass(list, notebook["Shape"])
    assert notebook.sky("again = isinstance(square, Shape), isinstance({}, Shape)") == []
    assert notebook["again"] == (True, False)


def test_renamed_class_and_new_annotations_are_returned(notebook: CellHarness) -> None:
    notebook.local("class A:\n    x: int = 1\nclass B: pass\nb = B()\nannotations = A.__annotations__")
    assert notebook.sky("A.__name__ = A.__qualname__ = 'C'\nA.__annotations__['y'] = str\nB.__name__ = 'D'") == []
    assert (notebook["A"].__name__, notebook["A"].__qualname__) == ("C", "C")
    assert notebook["A"].__annotations__ is notebook["annotations"]
    assert notebook["annotations"] == {"x": int, "y": str}
    assert type(notebook["b"]).__name__ == "D"


def test_new_bases_of_a_class_are_returned(notebook: CellHarness) -> None:
    notebook.local("class One: x = 1\nclass Two: x = 2\nclass Child(One): pass\nchild = Child()")
    assert notebook.sky("Child.__bases__ = (Two,)\nthere = child.x") == []
    assert notebook["there"] == notebook["child"].x == 2
    assert notebook["Child"].__bases__ == (notebook["Two"],)


FINALIZED = """
import gc, os, weakref
gone = []
class Temporary:
    def __init__(self, name): self.name, self.n, self.more = name, 0, []
    def __del__(self): log(self.name)
class Slotted:
    __slots__ = ('name',)
    def __init__(self, name): self.name = name
    def __del__(self): log(self.name)
class Derived(Temporary, list): pass
class Watched:
    def __init__(self, name): self.name = name; weakref.finalize(self, log, name)
def log(name):
    with open(path, 'a') as file: file.write(name + ' ')
"""


def _finalized(path: Path) -> list[str]:
    gc.collect()
    names = sorted(path.read_text().split()) if path.exists() else []
    path.unlink(missing_ok=True)
    return names


@pytest.fixture
def finalized(notebook: CellHarness, tmp_path: Path) -> Callable[[], list[str]]:
    """Define classes with finalizers; return a function that returns the names finalized since its last call."""
    path = tmp_path / "finalized"
    notebook.names["path"] = str(path)
    notebook.local(FINALIZED)

    def look() -> list[str]:
        notebook.take("pass")  # drop the captured values of the last cell
        return _finalized(path)

    return look


def test_copies_of_captured_objects_are_not_finalized_on_the_node(
    notebook: CellHarness, finalized: Callable[[], list[str]]
) -> None:
    notebook.local("t, s, d, w = Temporary('t'), Slotted('s'), Derived('d'), Watched('w')\nheld = [t, s, d, w]")
    assert notebook.sky("t.n += 1\nd.append(1)\nn = len(held), s.name, w.name") == []
    assert finalized() == []
    assert notebook.sky("n = held") == []
    assert finalized() == []
    with pytest.raises(ZeroDivisionError):
        notebook.sky("t.n += 1\n1 / 0")
    assert finalized() == []
    notebook.sky("x = t.n", nodes=2)
    assert finalized() == []
    assert notebook["t"].n == 2
    assert "__del__" in vars(notebook["Temporary"])
    notebook.names.update(dict.fromkeys(("t", "s", "d", "w", "held", "n")))
    assert finalized() == ["d", "s", "t", "w"]


def test_returned_objects_are_not_finalized_on_the_node(
    notebook: CellHarness, finalized: Callable[[], list[str]]
) -> None:
    notebook.local("held = [Temporary('old')]")
    source = (
        "new, other = Temporary('new'), Slotted('other')\nheld[0].more.append(Temporary('inside'))\nw = Watched('w')"
    )
    assert notebook.sky(source) == []
    assert finalized() == []
    assert [notebook["new"].name, notebook["held"][0].more[0].name] == ["new", "inside"]
    notebook.names.update(dict.fromkeys(("held", "new")))
    assert finalized() == ["inside", "new", "old"]


def test_yielded_elements_are_not_finalized_on_the_node(
    notebook: CellHarness, finalized: Callable[[], list[str]]
) -> None:
    elements = list(notebook.stream("for i in range(2):\n    yield Temporary(f'e{i}')\ndel i\nTemporary('dropped')"))
    assert finalized() == ["dropped"]
    elements.clear()
    assert finalized() == ["e0", "e1"]


def test_temporary_objects_of_a_cell_are_finalized_on_the_node(
    notebook: CellHarness, finalized: Callable[[], list[str]]
) -> None:
    notebook.local("t = Temporary('t')")
    assert notebook.sky("t.n += 1\nTemporary('dropped')\nx = Temporary('x')\ndel x\nWatched('w')\nt.n += 1") == []
    assert finalized() == ["dropped", "w", "x"]


def test_captured_object_dropped_by_the_cell_is_finalized_in_the_notebook(
    notebook: CellHarness, finalized: Callable[[], list[str]]
) -> None:
    notebook.local("held = [Temporary('t'), Temporary('u')]")
    assert notebook.sky("held.pop()\ngc.collect()") == []
    assert finalized() == ["u"]


def test_guarded_finalizer_does_not_change_its_class(notebook: CellHarness, finalized: Callable[[], list[str]]) -> None:
    notebook.local("t = Temporary('t')\nkind = Temporary\nbefore = Temporary.__del__")
    assert notebook.sky("t.n += 1") == []
    assert notebook.sky("Temporary.note = 1\nclass Other(Temporary): pass\no = Other('o')\no.n = t.n") == []
    assert notebook["Temporary"].__del__ is notebook["before"]
    assert notebook["Temporary"] is notebook["kind"]
    assert finalized() == []


def test_value_that_cannot_be_unpickled_on_the_node_finalizes_nothing(
    notebook: CellHarness, finalized: Callable[[], list[str]]
) -> None:
    notebook.local(
        "class Broken:\n    def __setstate__(self, state): raise OSError('not there')\n"
        "t = Temporary('t')\nbroken = Broken()\nbroken.x = 1"
    )
    with pytest.raises(PayloadError, match=r"broken cannot be read on node 0 .*; Broken.__setstate__ raised it"):
        notebook.sky("t, broken")
    assert finalized() == []


def test_returned_temporary_folder_still_exists(notebook: CellHarness) -> None:
    assert notebook.sky("import tempfile\nfolder = tempfile.TemporaryDirectory()\npath = folder.name") == []
    gc.collect()
    assert Path(notebook["path"]).is_dir()
    Path(notebook["path"]).rmdir()


def test_nan_keeps_its_identity(notebook: CellHarness) -> None:
    notebook.local(
        "import math\nimport numpy as np\nlabels = {np.nan: 'missing', math.nan: 'm'}\nxs = [1.0, np.nan]\n"
        "own = float('nan')\nby_own = {own: 1}\ninside = [own]\nmixed = np.array(['a', np.nan], dtype=object)"
    )
    source = (
        "r = [np.nan in xs, labels.get(np.nan), labels.get(math.nan), by_own.get(own), own in inside]\n"
        "r.append(mixed[1] is np.nan)\ncodes = {np.nan: 0}\nlater = {own: 2}\nnew = float('nan')\nheld = [new, new]"
    )
    assert notebook.sky(source) == []
    assert notebook["r"] == [True, "missing", "m", 1, True, True]
    assert notebook["codes"].get(notebook["np"].nan) == 0
    assert notebook["later"].get(notebook["own"]) == 2
    assert notebook["held"][0] is notebook["held"][1]
    assert notebook["new"] is notebook["held"][0]
    assert notebook["own"] is notebook["inside"][0]


def test_very_many_nan_lose_their_identities(notebook: CellHarness) -> None:
    notebook.local("xs = [float('nan') for _ in range(1000)]\nnan = float('nan')\nxs.append(1.0)")
    assert notebook.sky("n = sum(x != x for x in xs)\nxs[-1] = 2.0\nfound = nan") == []
    assert (notebook["n"], notebook["xs"][-1]) == (1000, 2.0)


def test_sentinels_of_modules_keep_their_identity(notebook: CellHarness) -> None:
    notebook.local(
        "import dataclasses, functools\nmissing = dataclasses.MISSING\nbare = functools._initial_missing\n"
        "mine = object()\nplaces = [mine, missing, bare]\n"
        "def f(x=missing): return x is dataclasses.MISSING\n"
    )
    source = (
        "r = missing is dataclasses.MISSING, bare is functools._initial_missing, places[0] is mine, f()\n"
        "home = [dataclasses.MISSING, functools._initial_missing, mine]"
    )
    assert notebook.sky(source) == []
    assert notebook["r"] == (True, True, True, True)
    assert all(
        one is other
        for one, other in zip(notebook["home"], [notebook["missing"], notebook["bare"], notebook["mine"]], strict=True)
    )


TYPED = """
from typing import Callable, Generic, NewType, ParamSpec, TypeVar, TypeVarTuple
type V = list[int]
type Pair[A] = tuple[A, A]
type Tree = list[Tree] | int
UserId = NewType('UserId', int)
T = TypeVar('T', bound='Item', covariant=True)
N = TypeVar('N', int, str)
P = ParamSpec('P')
Ts = TypeVarTuple('Ts')
class Stack[S]:
    def push(self, x: S) -> S: return x
class Box(Generic[T]): pass
def read(x: V) -> Pair[UserId]: return UserId(x[0]), UserId(x[1])
def wrap(f: Callable[P, N]) -> Callable[P, N]: return f
def rest(*xs: *Ts) -> Tree: return list(xs)
def same[X](x: X) -> X: return x
stack = Stack[int]()
def show():
    return repr([read([1, 2]), wrap(len)('ab'), rest(1), same(3), stack.push(4), V.__value__, Pair.__value__,
                 Tree.__value__, Tree.__value__.__args__[0].__args__[0] is Tree, UserId.__supertype__, UserId, T,
                 T.__bound__, N.__constraints__, P, Ts, Stack.__type_params__, Box[int], read.__annotations__,
                 Pair.__type_params__[0] is Pair.__value__.__args__[0], V.__module__, T.__module__])
everything = [V, Pair, Tree, UserId, T, N, P, Ts, Stack, Box]
"""


def test_aliases_and_type_variables_are_sent(notebook: CellHarness) -> None:
    notebook.local(TYPED + "here = show()")
    source = (
        "there = show()\nmine = [V, Pair, Tree, UserId, T, N, P, Ts, Stack, Box]\npair = Pair[int]\n"
        "same_there = all(one is other for one, other in zip(mine, everything))\n"
        "of_read = read.__annotations__['x'] is V"
    )
    assert notebook.sky(source) == []
    assert notebook["there"] == notebook["here"]
    assert notebook["same_there"]
    assert notebook["of_read"]
    assert all(one is other for one, other in zip(notebook["mine"], notebook["everything"], strict=True))
    assert notebook["pair"].__origin__ is notebook["Pair"]


def test_aliases_and_type_variables_are_returned(notebook: CellHarness) -> None:
    assert notebook.sky(TYPED + "there = show()") == []
    assert notebook["show"]() == notebook["there"]
    assert notebook["everything"][0] is notebook["V"]
    assert notebook["everything"][3] is notebook["UserId"]


def test_recursive_generic_alias_is_refused(notebook: CellHarness) -> None:
    notebook.local("type Tree[T] = list[Tree[T]] | T\ntype J = list[J] | int")
    with pytest.raises(NotPicklableError, match="a generic type alias that refers to itself cannot be pickled"):
        notebook.sky("Tree")
    assert notebook.sky("x = J.__value__.__args__[1]") == []


def test_source_of_a_function_is_available_on_the_node(notebook: CellHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def f(x):\n    return x + 1\nclass A:\n    def g(self): return 2\n"
    file = "<cell with sources>"
    monkeypatch.setitem(linecache.cache, file, (len(source), None, source.splitlines(keepends=True), file))
    exec(compile(source, file, "exec"), notebook.names)
    sent = notebook.take("import inspect\nr = inspect.getsource(f), inspect.getsource(A().g)")
    assert sent.request.texts == {file: source}
    monkeypatch.delitem(linecache.cache, file)
    result = travel(sent.pending.fn(*travel(sent.pending.args)))
    assert apply_result(result, notebook.names, sent.originals).notices == []
    assert notebook["r"] == ("def f(x):\n    return x + 1\n", "    def g(self): return 2\n")


def test_very_long_sources_are_not_sent(notebook: CellHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = "def f(): return 1\n", "def g(): return 2\n" + "# more\n" * 50_000
    for file, source in (("<short>", short), ("<long>", long)):
        monkeypatch.setitem(linecache.cache, file, (len(source), None, source.splitlines(keepends=True), file))
        exec(compile(source, file, "exec"), notebook.names)
    assert notebook.take("f(), g()").request.texts == {"<short>": short}


def test_sources_of_installed_packages_are_not_sent(notebook: CellHarness) -> None:
    notebook.local("import contextlib\n@contextlib.contextmanager\ndef f(): yield 1")
    assert notebook.take("f()").request.texts == {}


GREEDY = """
class Wrapper:
    def __init__(self, inner): self._inner = inner
    def __getattr__(self, name): return getattr(self._inner, name)
class Anything:
    def __init__(self): self.x = 1
    def __getattr__(self, name): return lambda *given: name
class Record:
    def __init__(self): self.data = {'a': 1}
    def __getattr__(self, name): return self.data[name]
class Slotted:
    __slots__ = ('data',)
    def __init__(self): self.data = {'a': 1}
    def __getattr__(self, name): return self.data[name]
class Items(dict):
    def __getattr__(self, name): return self[name]
    def __setattr__(self, name, value): self[name] = value
class Calls(dict):
    def __getattr__(self, name): return lambda *given: name
wrapper, anything, record, slotted, items = Wrapper([1]), Anything(), Record(), Slotted(), Items(a=1)
calls = Calls(a=1)
kept = [wrapper, anything, record, slotted, items, calls]
def show():
    return repr([wrapper._inner, vars(wrapper), anything.x, anything.any(), record.data, slotted.data, items, calls])
"""


def test_objects_with_any_attribute_are_copied(notebook: CellHarness) -> None:
    notebook.local(GREEDY)
    change = (
        "wrapper.append(2); anything.x = 2; record.data['b'] = 2; slotted.data['b'] = 2; items.b = 2; calls['b'] = 2\n"
    )
    plain = CellHarness()
    plain.local(GREEDY + "before = show()\n" + change + "there = show()")

    assert notebook.sky("before = show()\n" + change + "there = show()\nnew = [Wrapper([3]), Items(c=1)]") == []

    assert (notebook["before"], notebook["there"]) == (plain["before"], plain["there"])
    assert notebook["show"]() == plain["there"]
    assert notebook["kept"][0] is notebook["wrapper"]
    assert notebook["new"][0].count(3) == 1
    assert notebook["new"][1].c == 1


def test_getattr_that_fails_on_a_blank_copy_is_named(notebook: CellHarness) -> None:
    notebook.local("class A:\n    def __setstate__(self, state): self.missing\na = A()\na.x = 1")
    with pytest.raises(PayloadError, match=r"^a cannot be read on node 0 \(AttributeError.*A.__setstate__ raised it"):
        notebook.sky("a")
