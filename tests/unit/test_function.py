"""`@sky.function` on everything that can be decorated, and how what it makes travels."""

import asyncio
import functools
import inspect
import math
import pickle
import re
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import cloudpickle
import pytest

import skyward
from skyward import SpecError
from skyward.function import find_decorated

pytestmark = pytest.mark.unit


@skyward.function
def area(width: float, height: float = 1) -> float:
    """Width times height."""
    return width * height


class Model:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    @skyward.function(timeout=5)
    def scale(self, number: int) -> int:
        return self.factor * number

    @staticmethod
    @skyward.function
    def fixed(number: int) -> int:
        return number

    @classmethod
    @skyward.function
    def made(cls, number: int) -> str:
        return f"{cls.__name__}{number}"


def test_bare_and_with_timeout() -> None:
    assert area(2, height=3).timeout is None
    assert (area(2, height=3).args, area(2, height=3).kwargs) == ((2,), {"height": 3})
    assert skyward.function(timeout=4)(area.fn)(1).timeout == 4
    assert skyward.function(area, timeout=2)(1).timeout == 2
    again: Any = skyward.function(area)
    assert again.fn is area.fn


def test_metadata() -> None:
    assert (area.__name__, area.__doc__, area.__module__) == ("area", "Width times height.", __name__)
    assert list(inspect.signature(area).parameters) == ["width", "height"]
    assert repr(area) == "<sky.function area>"


def test_local_runs_now() -> None:
    assert area.local(2, height=3) == 6


def test_methods() -> None:
    model = Model(3)
    pending = model.scale(2)
    assert (pending.local(), pending.timeout) == (6, 5)
    assert model.scale.local(4) == 12
    assert pending.args == (model, 2)
    assert list(inspect.signature(model.scale).parameters) == ["number"]
    assert Model.scale(model, 2).local() == 6
    assert Model.fixed(2).local() == 2
    made: Any = Model.made  # mypy does not bind a callable object under @classmethod
    assert made(2).local() == "Model2"


def test_bound_method_travels() -> None:
    assert cloudpickle.loads(cloudpickle.dumps(Model(3).scale(2))).local() == 6


def test_callables_without_a_name() -> None:
    assert skyward.function(functools.partial(area.fn, 2))(3).local() == 6
    assert skyward.function(functools.partial(area.fn, 2)).__name__ == "partial"
    assert skyward.function(math.sqrt)(4).local() == 2


def test_module_functions_travel_by_name() -> None:
    assert pickle.loads(pickle.dumps(area)) is area
    assert cloudpickle.loads(cloudpickle.dumps(area)) is area
    assert pickle.loads(pickle.dumps(Model.scale)) is Model.scale
    assert find_decorated(area.fn) is area
    assert find_decorated(area) is None
    assert find_decorated(len) is None


def test_local_functions_travel_by_value() -> None:
    @skyward.function
    def fact(number: int) -> int:
        return 1 if number == 0 else number * fact.local(number - 1)

    assert find_decorated(fact.fn) is None
    copy = cloudpickle.loads(cloudpickle.dumps(fact))
    assert copy is not fact
    assert copy(4).local() == 24


def test_module_registered_by_value() -> None:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        copy = cloudpickle.loads(cloudpickle.dumps(area))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert copy is not area
    assert copy(2, 3).local() == 6


async def fetch() -> None:
    await asyncio.sleep(0)


async def feed() -> AsyncIterator[int]:
    yield 1


def plain(owner: Any) -> None: ...


REFUSED: dict[str, tuple[Any, str]] = {
    "a number": (3, "`@sky.function` decorates a function, but got 3; it takes `timeout=` by keyword."),
    "async": (
        fetch,
        "`fetch` is `async`, and a node runs plain functions: make it a plain `def` that calls `asyncio.run(...)`.",
    ),
    "async generator": (
        feed,
        "`feed` is `async`, and a node runs plain functions: make it a plain `def` that calls `asyncio.run(...)`.",
    ),
    "classmethod below": (classmethod(plain), "Put `@classmethod` above `@sky.function`, not below it."),
    "property below": (property(plain), "Put `@property` above `@sky.function`, not below it."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    value, expected = REFUSED[case]
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        skyward.function(value)


def test_generator_function_runs_locally() -> None:
    @skyward.function
    def count(number: int) -> Iterator[int]:
        yield from range(number)

    assert list(count.local(3)) == [0, 1, 2]


def test_main_marks_and_keeps_the_function() -> None:
    def start() -> int:
        return 3

    assert skyward.main(start) is start
    assert start.__sky_main__ is True  # type: ignore[attr-defined]
