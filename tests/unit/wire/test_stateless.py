"""Distinction of functions and classes whose copies calls may share from those they may change."""

import abc
import dataclasses
import enum
import functools
import math
import pickle
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle
import pytest

from skyward.wire.kinds.stateless import survey
from skyward.wire.kinds.versions import version_of

pytestmark = pytest.mark.unit

LIMIT = 3
TABLE = {"a": 1}
PAIR = (1, ("x", None))
cells: list[int] = []


@pytest.fixture(autouse=True)
def by_value() -> Any:
    """Pickle what this module defines by value, as for a script."""
    module = __import__(__name__, fromlist=["_"])
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def adds(x: int) -> int:
    return x + LIMIT


def uses_helper(x: int) -> float:
    return math.sqrt(adds(x))


def recursive(n: int) -> int:
    return recursive(n - 1) if n else PAIR[0]


@functools.cache
def cached(n: int) -> int:
    return cached(n - 1) if n else LIMIT


def uses_cached() -> int:
    return cached(3)


def counts_attribute() -> int:
    counts_attribute.count = getattr(counts_attribute, "count", 0) + 1  # type: ignore[attr-defined]
    return counts_attribute.count  # type: ignore[attr-defined,no-any-return]


def sets_on_helper() -> None:
    adds.count = 1  # type: ignore[attr-defined]


def sets_by_method() -> None:
    adds.__setattr__("x", 1)


def sets_by_method_of_object() -> None:
    object.__setattr__(adds, "x", 1)


def sets_by_method_named(function: Any) -> None:
    getattr(function, "__setattr__")("x", adds)  # noqa: B009  # that is the trap


def deletes_by_method() -> None:
    object.__delattr__(adds, "x")


def imports_main() -> Any:
    import __main__

    return __main__


def finds_main() -> Any:
    return sys.modules["__main__"]


def sets_on_argument(thing: Any) -> None:
    thing.count = 1


def sets_global() -> None:
    global LIMIT
    LIMIT = 4


def sets_global_inside() -> None:
    def inner() -> None:
        global LIMIT
        LIMIT = 4

    inner()


def reads_table() -> int:
    return TABLE["a"]


def has_list(into: list[int] = []) -> None:  # noqa: B006  # that is the point
    into.append(1)


def has_keyword_list(*, into: list[int] = []) -> None:  # noqa: B006  # that is the point
    into.append(1)


def reaches_globals() -> Any:
    return globals()["TABLE"]


def bound_method() -> Callable[[int], None]:
    return cells.append


def counter() -> Callable[[], int]:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return count

    return step


def scaler(factor: float) -> Callable[[float], float]:
    return lambda x: x * factor


def collector(into: list[int]) -> Callable[[int], None]:
    return lambda x: into.append(x)


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = dataclasses.field(default_factory=list)

    def moved(self, by: int) -> "Point":
        return Point(self.x + by, self.y)

    def grow(self) -> None:
        self.x += 1
        self.y, self.tags = 2, []


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: int


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    def next(self) -> "Color":
        return Color.BLUE


class Row(NamedTuple):
    a: int
    b: str = "x"


class Slotted:
    __slots__ = ("a",)

    def __init__(self) -> None:
        self.a = 1


class Box[T]:
    @property
    def first(self) -> int:
        return LIMIT

    @staticmethod
    def plain(x: int) -> int:
        return adds(x)

    @classmethod
    def make(cls) -> "Box[T]":
        return cls()

    @functools.cached_property
    def slow(self) -> int:
        return 3


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...


class Registry:
    known: list[int] = []  # noqa: RUF012  # that is the point


class SetsItself:
    def __init__(self) -> None:
        object.__setattr__(self, "a", 1)
        super().__setattr__("b", 2)
        object.__delattr__(self, "a")


class CountedByMethod:
    made = 0

    def __init__(self) -> None:
        type.__setattr__(type(self), "made", 1)


class CountedByMethodOfClass:
    made = 0

    @classmethod
    def make(cls) -> None:
        type.__setattr__(cls, "made", 1)


class Counted:
    made = 0

    def __init__(self) -> None:
        Counted.made += 1


class CountedByClass:
    made = 0

    @classmethod
    def make(cls) -> None:
        cls.made += 1


class CountedByType:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1


class CountedByAlias:
    made = 0

    def __init__(self) -> None:
        self = type(self)  # type: ignore[assignment]  # that is the trap
        self.made = 1


class CountedByNew:
    made = 0

    def __new__(cls) -> "CountedByNew":
        cls.made += 1
        return super().__new__(cls)


class CountedByWalrus:
    made = 0

    def __init__(self) -> None:
        CountedByWalrus.made += (other := self).made
        self.other = other


class Meta(type):
    pass


class WithMeta(metaclass=Meta):
    pass


def uses_point() -> Point:
    return Point(1)


def sets_class_attribute() -> None:
    Point.z = 3  # type: ignore[attr-defined]


def sets_class_attribute_by_name(name: str) -> None:
    setattr(Point, name, 3)


FIXED: list[Any] = [
    *(adds, uses_helper, recursive, cached, uses_cached, scaler(2.0), sets_on_argument, len, math.sqrt, dict),
    *(Point, Frozen, SetsItself, Color, Row, Slotted, Box, Shape, uses_point, lambda: Color.RED, lambda x=Color.RED: x),
    functools.partial(adds, 1),
]
CHANGEABLE: list[Any] = [
    *(counts_attribute, sets_on_helper, sets_global, sets_global_inside, reads_table, has_list, has_keyword_list),
    *(sets_by_method, sets_by_method_of_object, sets_by_method_named, deletes_by_method, imports_main, finds_main),
    *(CountedByMethod, CountedByMethodOfClass, reaches_globals, bound_method, counter(), collector([])),
    *(Registry, Counted, CountedByClass, CountedByType, CountedByAlias, CountedByNew, CountedByWalrus, WithMeta),
    *(lambda: Counted, sets_class_attribute, sets_class_attribute_by_name),
    functools.partial(has_list),
]


def name_of(value: object) -> str:
    """Return a name without an address, so that each test process collects the same tests."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))


@pytest.mark.parametrize("value", FIXED, ids=name_of)
def test_survey_accepts_value_that_no_call_can_change(value: Any) -> None:
    found = survey(value)
    assert found is not None
    assert found[0] is value


@pytest.mark.parametrize("value", CHANGEABLE, ids=name_of)
def test_survey_rejects_value_that_a_call_could_change(value: Any) -> None:
    assert survey(value) is None


def test_version_is_stable_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = version_of(uses_helper)
    assert first is not None
    assert version_of(uses_helper) == first
    monkeypatch.setitem(globals(), "LIMIT", 1000)
    assert version_of(uses_helper) not in (None, first)


def test_class_version_changes_with_its_attributes() -> None:
    class Local:
        rate = 1

    first = version_of(Local)
    Local.rate = 2
    assert version_of(Local) not in (None, first)


def test_equal_functions_have_different_versions() -> None:
    assert version_of(scaler(2.0)) != version_of(scaler(2.0))


def test_pickling_an_object_keeps_the_version_of_its_class() -> None:
    first = version_of(Point)
    pickle.dumps(Point(1))  # Python then caches the names of the slots in the class
    assert version_of(Point) == first is not None
