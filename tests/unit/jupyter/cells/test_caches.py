"""Cached functions and other functools objects in cells."""

import pytest

from skyward.wire.objects.mutability import is_fixed
from tests.unit.jupyter.cells.conftest import CellHarness

pytestmark = pytest.mark.unit

FIB = """
from functools import cache, lru_cache
@lru_cache(maxsize=64, typed=True)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
fib.unit = 'rabbits'
fib.seen = []
seen = fib.seen
"""

TABLE = """
from functools import cache, cached_property, lru_cache, partialmethod
class Table:
    def __init__(self, rows): self.rows, self.log = rows, []
    @lru_cache
    def total(self, scale=1):
        self.log.append(scale)
        return scale * sum(self.rows)
    @staticmethod
    @cache
    def square(x): return x * x
    @classmethod
    @cache
    def named(cls, name): return cls.__name__ + name
    @cached_property
    def size(self): return len(self.rows)
    def put(self, where, what): self.log.append((where, what))
    top = partialmethod(put, 'top')
table = Table([1, 2])
kept = [table]
"""

DISPATCH = """
from functools import singledispatch, singledispatchmethod
class A: pass
class B(A): pass
@singledispatch
def show(x): return 'any'
@show.register
def of_a(x: A): return 'A'
class Shown:
    @singledispatchmethod
    def show(self, x): return 'any'
    @show.register
    def of_int(self, x: int): return 'int'
shown = Shown()
show(B())
"""


def test_cache_of_the_notebook_is_unchanged(notebook: CellHarness) -> None:
    notebook.local(FIB + "fib(10)")
    fib = notebook["fib"]
    before = fib.cache_info()
    assert notebook.sky("x = fib(30)\nsame = fib\nheld = [fib]") == []
    assert notebook["x"] == 832040
    assert notebook["fib"] is notebook["same"] is notebook["held"][0] is fib
    assert fib.cache_info() == before
    assert fib.cache_parameters() == {"maxsize": 64, "typed": True}


def test_attributes_set_on_a_cached_function_are_returned(notebook: CellHarness) -> None:
    notebook.local(FIB)
    fib, wrapped = notebook["fib"], notebook["fib"].__wrapped__
    assert notebook.sky("fib.seen.append(fib(4))\nfib.limit = fib.seen\ndel fib.unit") == []
    assert notebook["fib"] is fib
    assert not hasattr(fib, "unit")
    assert fib.__wrapped__ is wrapped
    assert fib.seen is fib.limit is notebook["seen"]
    assert fib.seen == [3]


def test_cached_function_runs_on_several_nodes(notebook: CellHarness) -> None:
    notebook.local(FIB)
    fib = notebook["fib"]
    assert notebook.sky("x = fib(10)", nodes=2) == []
    assert notebook["x"] == [55, 55]
    assert notebook["fib"] is fib
    assert fib.cache_info().currsize == 0


def test_cached_function_of_a_module_is_not_replaced(notebook: CellHarness) -> None:
    notebook.local(FIB + "import fnmatch\ncompiled = fnmatch._compile_pattern")
    assert is_fixed(notebook["compiled"])
    assert not is_fixed(notebook["fib"])


def test_cached_methods_work_in_a_cell(notebook: CellHarness) -> None:
    notebook.local(TABLE)
    table, kind = notebook["table"], notebook["Table"]
    methods = dict(vars(kind))
    notices = notebook.sky(
        "t = table.total(3), Table.square(3), table.square(3), Table.named('!')\n"
        "n = table.size\ntable.top('a')\ntable.rows.append(4)\nnew = Table([5])\nu = new.total()"
    )
    assert notices == []
    assert (notebook["t"], notebook["n"], notebook["u"]) == ((9, 9, 9, "Table!"), 2, 5)
    assert notebook["kept"][0] is table
    assert (table.rows, table.log, vars(table)["size"]) == ([1, 2, 4], [3, ("top", "a")], 2)
    assert type(notebook["new"]) is kind
    assert {name: value for name, value in vars(kind).items() if name != "__slotnames__"} == methods
    assert table.total(2) == 14


def test_class_with_cached_methods_is_returned(notebook: CellHarness) -> None:
    notebook.local("pass")
    assert notebook.sky(TABLE + "n = table.total(2), table.size, Table.square(2), Table.named('?')") == []
    assert notebook["n"] == (6, 2, 4, "Table?")
    assert notebook["kept"][0] is notebook["table"]
    assert notebook["table"].total(3) == 9
    assert notebook["Table"]([7]).total() == 7


def test_singledispatch_works_in_a_cell(notebook: CellHarness) -> None:
    notebook.local(DISPATCH)
    show, dispatch = notebook["show"], notebook["show"].dispatch
    assert notebook.sky("out = show(B()), show(1), shown.show(1), shown.show('s')\nagain = show") == []
    assert notebook["out"] == ("A", "any", "int", "any")
    assert notebook["again"] is notebook["show"] is show
    assert dispatch(notebook["B"]) is notebook["of_a"]


def test_singledispatch_registration_is_returned(notebook: CellHarness) -> None:
    notebook.local(DISPATCH + "before = show([1])")
    show = notebook["show"]
    assert notebook.sky("@show.register(list)\ndef of_list(x): return [show(each) for each in x]\nx = show([1])") == []
    assert (notebook["before"], notebook["x"], show([notebook["A"]()])) == ("any", ["any"], ["A"])
    assert show.registry[list] is show.dispatch(list) is notebook["of_list"]
    notebook.local("@show.register\ndef of_str(x: str): return 'str'")
    assert show.registry[str] is notebook["of_str"]


def test_weak_collections_are_updated(notebook: CellHarness) -> None:
    notebook.local(
        "import weakref\nclass A: pass\na, b = A(), A()\nby_key = weakref.WeakKeyDictionary({a: 1})\n"
        "by_value = weakref.WeakValueDictionary(a=a)\nall_of = weakref.WeakSet([a])\n"
        "held = [by_key, by_value, all_of]"
    )
    held = list(notebook["held"])
    assert notebook.sky("by_key[b] = by_key[a] + 1\nby_value['b'] = b\nall_of.add(b)\nnew = weakref.WeakSet([b])") == []
    a, b = notebook["a"], notebook["b"]
    assert held == notebook["held"] == [notebook["by_key"], notebook["by_value"], notebook["all_of"]]
    assert all(one is other for one, other in zip(held, notebook["held"], strict=True))
    assert dict(held[0]) == {a: 1, b: 2}
    assert dict(held[1]) == {"a": a, "b": b}
    assert set(held[2]) == {a, b}
    assert set(notebook["new"]) == {b}


def test_mapping_proxy_reflects_changes_of_its_mapping(notebook: CellHarness) -> None:
    notebook.local("import types\nd = {'a': 1}\nview = types.MappingProxyType(d)\nheld = [view]")
    view = notebook["view"]
    assert notebook.sky("d['b'] = 2\nn = len(view)\nother = types.MappingProxyType(d)") == []
    assert notebook["n"] == 2
    assert notebook["held"][0] is notebook["view"] is view
    notebook["d"]["c"] = 3
    assert view == notebook["other"] == {"a": 1, "b": 2, "c": 3}


def test_vars_of_a_class_reflect_its_changes(notebook: CellHarness) -> None:
    notebook.local("class A:\n    __slots__ = ()\n    n = 1\nview = vars(A)\nxs = []")
    assert notebook.sky("xs.append(view['n'])\nA.n = 5") == []
    assert (notebook["xs"], notebook["A"].n) == ([1], 5)


def test_cache_cleared_by_a_cell_is_cleared_in_the_notebook(notebook: CellHarness) -> None:
    notebook.local(
        "from functools import cache, lru_cache\nrate = 1\n"
        "@lru_cache\ndef price(x): return x * rate\n"
        "@cache\ndef other(x): return x * rate\n"
        "class Shop:\n    @staticmethod\n    @cache\n    def tax(x): return x * rate\n"
        "tables = {'price': price}\nprice(10), other(10), Shop.tax(10)"
    )
    assert notebook.sky("rate = 2\ntables['price'].cache_clear()\nShop.tax.cache_clear()\nthere = price(10)") == []
    assert notebook["there"] == notebook["price"](10) == 20
    assert notebook["Shop"].tax(10) == 20
    assert notebook["other"](10) == 10


def test_cached_function_defined_and_cleared_by_a_cell_is_returned(notebook: CellHarness) -> None:
    source = "from functools import cache\n@cache\ndef price(x): return x\nprice(1)\nprice.cache_clear()\nprice(2)"
    assert notebook.sky(source) == []
    assert notebook.sky("price.cache_clear()\nheld = [price]") == []
    assert notebook["held"][0] is notebook["price"]
    assert "cache_clear" not in vars(notebook["price"])
