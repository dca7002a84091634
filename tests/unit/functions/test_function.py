"""`@sky.function` on everything that can be decorated, and pickling of decorated functions."""

import asyncio
import functools
import gc
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
from skyward import SpecError, UsageError
from skyward.functions.decorator import find_decorated
from skyward.functions.signature import is_generator
from skyward.values.needs import NOTHING, Needs

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

    @skyward.function(resources={"GPU": 1}, capabilities={"gpu"})
    def heavy(self, number: int) -> int:
        return self.factor * number

    @classmethod
    @skyward.function
    def made(cls, number: int) -> str:
        return f"{cls.__name__}{number}"


def test_decorator_works_bare_and_with_options() -> None:
    assert area(2, height=3).timeout is None
    assert (area(2, height=3).args, area(2, height=3).kwargs) == ((2,), {"height": 3})
    assert skyward.function(timeout=4)(area.fn)(1).timeout == 4
    assert skyward.function(area, timeout=2)(1).timeout == 2
    again: Any = skyward.function(area)
    assert again.fn is area.fn


def test_every_name_can_be_a_keyword_argument() -> None:
    named = skyward.function(lambda **names: names)
    assert named.local(self=1, fn=2) == {"self": 1, "fn": 2}
    assert named(self=1, fn=2).kwargs == {"self": 1, "fn": 2}


def test_decorator_sets_the_needs_of_calls() -> None:
    assert area(2).needs is NOTHING
    assert skyward.function(area.fn, resources={}, capabilities=())(1).needs is NOTHING
    both = skyward.function(timeout=4, resources={"GPU": 1, "CPU": 2.5}, capabilities=["GPU"])(area.fn)
    assert both.needs == both(1).needs == Needs({"CPU": 2.5, "GPU": 1}, {"gpu"})
    assert both(1).timeout == 4
    assert skyward.function(area.fn, resources={"GPU": 1})(1).needs == Needs({"GPU": 1})
    assert skyward.function(capabilities={"gpu"})(area.fn)(1).needs == Needs({}, {"gpu"})


def test_needs_of_methods_groups_and_wrapped_functions() -> None:
    model, wanted = Model(3), Needs({"GPU": 1}, {"gpu"})
    assert model.heavy(2).needs == Model.heavy(model, 2).needs == wanted
    assert [call.needs for call in model.heavy(2) & model.scale(2)] == [wanted, NOTHING]
    assert [call.needs for call in skyward.gather(model.heavy(1), model.scale(2))] == [wanted, NOTHING]
    assert skyward.silent(skyward.function(resources={"GPU": 2})(area.fn))(1).needs == Needs({"GPU": 2})


def test_needs_survive_pickling() -> None:
    @skyward.function(resources={"GPU": 1})
    def local(number: int) -> int:
        return number

    assert cloudpickle.loads(cloudpickle.dumps(local))(1).needs == Needs({"GPU": 1})
    copy = cloudpickle.loads(cloudpickle.dumps(Model(3).heavy(2)))
    assert (copy.needs, copy.local()) == (Needs({"GPU": 1}, {"gpu"}), 6)


def test_with_resources_changes_a_copy() -> None:
    pending = Model(3).heavy(2).with_timeout(3)
    more = pending.with_resources(GPU=2, memory=16)
    assert more.needs == Needs({"GPU": 2, "memory": 16}, {"gpu"})
    assert (more.timeout, more.args, pending.needs) == (3, pending.args, Needs({"GPU": 1}, {"gpu"}))
    assert more.with_resources(GPU=0, memory=0).needs == Needs({}, {"gpu"})
    with pytest.raises(SpecError, match=r"^resources\['GPU'\] must be a number of at least 0, but got -1.$"):
        pending.with_resources(GPU=-1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"resources": ["GPU"]}, "resources must be amounts by name, as in `resources={'GPU': 1}`, but got ['GPU']."),
        ({"resources": {"GPU": "1"}}, "resources['GPU'] must be a number of at least 0, but got '1'."),
        ({"resources": {"GPU": -1}}, "resources['GPU'] must be a number of at least 0, but got -1."),
        ({"resources": {"GPU": math.inf}}, "resources['GPU'] must be a finite number of at least 0, but got inf."),
        ({"resources": {1: 1}}, "a name in resources must be str, as in `resources={'GPU': 1}`, but got 1."),
        (
            {"resources": {" ": 1}},
            "resources must not have an empty name, as in `resources={'GPU': 1}`, but got ' '.",
        ),
        (
            {"capabilities": "gpu"},
            "capabilities must be a set of names, as in `capabilities={'gpu'}`, but got 'gpu'.",
        ),
        (
            {"capabilities": {3}},
            "an entry of capabilities must be str, as in `capabilities={'gpu'}`, but got 3.",
        ),
        (
            {"capabilities": [""]},
            "capabilities must not have an empty name, as in `capabilities={'gpu'}`, but got ''.",
        ),
    ],
)
def test_invalid_needs_are_refused(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        skyward.function(**given)


def test_metadata_of_the_function_is_kept() -> None:
    assert (area.__name__, area.__doc__, area.__module__) == ("area", "Width times height.", __name__)
    assert list(inspect.signature(area).parameters) == ["width", "height"]
    assert repr(area) == "<sky.function area>"


def test_local_runs_in_this_thread() -> None:
    assert area.local(2, height=3) == 6


def test_decorated_methods_are_bound() -> None:
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


def test_bound_method_survives_pickling() -> None:
    assert cloudpickle.loads(cloudpickle.dumps(Model(3).scale(2))).local() == 6


def test_callable_without_a_name_can_be_decorated() -> None:
    assert skyward.function(functools.partial(area.fn, 2))(3).local() == 6
    assert skyward.function(functools.partial(area.fn, 2)).__name__ == "partial"
    assert skyward.function(math.sqrt)(4).local() == 2


def test_module_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(area)) is area
    assert cloudpickle.loads(cloudpickle.dumps(area)) is area
    assert pickle.loads(pickle.dumps(Model.scale)) is Model.scale
    assert find_decorated(area.fn) is area
    assert find_decorated(area) is None
    assert find_decorated(len) is None


def test_local_functions_are_pickled_by_value() -> None:
    @skyward.function
    def fact(number: int) -> int:
        return 1 if number == 0 else number * fact.local(number - 1)

    assert find_decorated(fact.fn) is None
    copy = cloudpickle.loads(cloudpickle.dumps(fact))
    assert copy is not fact
    assert copy(4).local() == 24


def test_module_registered_by_value_is_pickled_by_value() -> None:
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        copy = cloudpickle.loads(cloudpickle.dumps(area))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert copy is not area
    assert copy(2, 3).local() == 6


@skyward.function
async def fetch(number: int) -> int:
    await asyncio.sleep(0)
    return number


@skyward.function
async def feed(count: int, closed: list[str]) -> AsyncIterator[int]:
    try:
        for number in range(count):
            await asyncio.sleep(0)
            yield number
    finally:
        closed.append("closed")


def plain(owner: Any) -> None: ...


REFUSED: dict[str, tuple[Any, str]] = {
    "a number": (
        3,
        "`@sky.function` decorates a function, but got 3; it takes `timeout=`, `resources=`, `capabilities=`, "
        "`retries=` and `retry_on=` by keyword.",
    ),
    "classmethod below": (classmethod(plain), "Put `@classmethod` above `@sky.function`, not below it."),
    "property below": (property(plain), "Put `@property` above `@sky.function`, not below it."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_functions_are_refused(case: str) -> None:
    value, expected = REFUSED[case]
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        skyward.function(value)


def test_generator_function_runs_locally() -> None:
    @skyward.function
    def count(number: int) -> Iterator[int]:
        yield from range(number)

    assert list(count.local(3)) == [0, 1, 2]


def test_async_function_runs_locally() -> None:
    assert fetch.local(3) == fetch(3).local() == 3


def test_async_generator_is_read_locally() -> None:
    closed: list[str] = []
    assert list(feed.local(3, closed)) == [0, 1, 2]
    assert closed == ["closed"]
    for number in feed(3, closed).local():
        assert number == 0
        break
    gc.collect()
    assert closed == ["closed", "closed"]


def test_local_call_of_async_function_in_a_running_loop_is_refused() -> None:
    async def call() -> None:
        with pytest.raises(UsageError, match=r"^An event loop runs on this thread, so write `await fetch\.fn\("):
            fetch.local(3)
        with pytest.raises(UsageError, match=r"so write `async for \.\.\. in feed\.fn\(\.\.\.\)` in place of `\.local"):
            feed(3, []).local()

    asyncio.run(call())


def test_async_generators_stream() -> None:
    assert is_generator(feed.fn)
    assert not is_generator(fetch.fn)


def test_main_marks_and_returns_the_function() -> None:
    def start() -> int:
        return 3

    assert skyward.main(start) is start
    assert start.__sky_main__ is True  # type: ignore[attr-defined]
