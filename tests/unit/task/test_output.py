"""`stdout`, `stderr` and `silent`: the streams that are muted while a task runs, in either order of decorators."""

import asyncio
import pickle
import re
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import cloudpickle
import pytest

import skyward
from skyward import InstanceInfo, SpecError, silent, stderr, stdout
from skyward.functions.decorator import SkyFunction
from skyward.functions.signature import is_generator, stream_parameters
from skyward.task.instance import set_instance_info
from skyward.task.output import muted

pytestmark = pytest.mark.unit

OUT, ERR = frozenset({"stdout"}), frozenset({"stderr"})


@pytest.fixture
def node() -> Iterator[Callable[[int], None]]:
    yield lambda rank: set_instance_info(InstanceInfo(node=rank, total_nodes=3))
    set_instance_info(None)


@stdout(only="head")
@skyward.function(timeout=9)
def above(extra: int = 0) -> frozenset[str]:
    """Return the muted streams."""
    return muted.get()


@skyward.function
@stdout(only="head")
def below(extra: int = 0) -> frozenset[str]:
    """Return the muted streams."""
    return muted.get()


@stdout(only="head")
def undecorated() -> frozenset[str]:
    return muted.get()


@silent
@skyward.function
def quiet() -> frozenset[str]:
    return muted.get()


@stderr(only=lambda info: info.node == 2)
@stdout(only="head")
@skyward.function
def both() -> frozenset[str]:
    return muted.get()


@pytest.mark.parametrize("fn", [above, below])
def test_rule_applies_in_either_decorator_order(node: Callable[[int], None], fn: Any) -> None:
    assert isinstance(fn, SkyFunction)
    node(0)
    assert fn(3).local() == frozenset()
    node(1)
    assert fn(3).local() == OUT
    assert muted.get() == frozenset()


def test_decorated_function_keeps_its_metadata(node: Callable[[int], None]) -> None:
    assert (above.timeout, above.__name__, above.__doc__) == (9, "above", "Return the muted streams.")
    node(1)
    assert undecorated() == OUT


def test_rules_combine(node: Callable[[int], None]) -> None:
    seen = []
    for rank in range(3):
        node(rank)
        seen.append(both.local())
    assert seen == [ERR, OUT | ERR, OUT]


def test_silent_mutes_all_nodes(node: Callable[[int], None]) -> None:
    node(0)
    assert quiet.local() == OUT | ERR


def test_off_a_node_nothing_is_filtered() -> None:
    assert above.local() == frozenset()


def test_streams_are_unmuted_after_an_error(node: Callable[[int], None]) -> None:
    @silent
    def fail() -> None:
        raise LookupError

    node(1)
    with pytest.raises(LookupError):
        fail()
    assert muted.get() == frozenset()


def test_tasks_in_other_threads_are_not_muted(node: Callable[[int], None]) -> None:
    node(1)
    together = Barrier(2)

    @stdout(only="head")
    def filtered() -> frozenset[str]:
        together.wait(10)
        return muted.get()

    def free() -> frozenset[str]:
        together.wait(10)
        return muted.get()

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(filtered), threads.submit(free)
    assert (first.result(), second.result()) == (OUT, frozenset())


def steps() -> Generator[Any, Any, str]:
    try:
        sent = yield muted.get()
        try:
            yield sent
        except LookupError:
            yield "caught"
    finally:
        steps.closed = muted.get()  # type: ignore[attr-defined]
    return "end"


@pytest.mark.parametrize(
    "decorated",
    [stdout(only="head")(skyward.function(steps)), skyward.function(stdout(only="head")(steps))],
    ids=["above", "below"],
)
def test_generators_are_muted_only_while_they_run(node: Callable[[int], None], decorated: Any) -> None:
    node(1)
    assert is_generator(decorated.fn)
    stream = decorated.local()
    assert next(stream) == OUT
    assert muted.get() == frozenset()
    assert stream.send(5) == 5
    assert stream.throw(LookupError) == "caught"
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value == "end"
    assert muted.get() == frozenset()


def test_early_close_of_generator_runs_cleanup_muted(node: Callable[[int], None]) -> None:
    node(1)
    stream = silent(steps)()
    next(stream)
    stream.close()
    assert steps.closed == OUT | ERR  # type: ignore[attr-defined]
    assert muted.get() == frozenset()


def test_iterator_parameters_are_still_detected() -> None:
    @silent
    def consume(data: Iterator[int]) -> int:
        return sum(data)

    assert stream_parameters(consume) == ("data",)


def test_filtered_functions_can_be_pickled(node: Callable[[int], None]) -> None:
    assert pickle.loads(pickle.dumps(above)) is above
    limit = 1

    @stdout(only=lambda info: info.node < limit)
    @skyward.function
    def local() -> int:
        return len(sys.modules["skyward.task.output"].muted.get())

    copy = cloudpickle.loads(cloudpickle.dumps(local()))
    node(1)
    assert copy.local() == 1
    node(0)
    assert copy.local() == 0


@pytest.mark.parametrize("only", ["all", 3, None])
def test_invalid_only_is_refused(only: Any) -> None:
    expected = f'`sky.stdout(only=...)` takes "head" or a function from InstanceInfo to bool, but got {only!r}.'
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        stdout(only=only)
    with pytest.raises(SpecError, match=r"^`sky\.stderr\(only=\.\.\.\)` takes"):
        stderr(only=only)


def test_decorating_a_non_function_is_refused() -> None:
    with pytest.raises(SpecError, match=r"^`sky\.silent` decorates a function, but got 3\.$"):
        silent(3)  # type: ignore[type-var]


async def asked() -> tuple[frozenset[str], frozenset[str]]:
    before = muted.get()
    await asyncio.sleep(0)
    return before, muted.get()


async def async_steps() -> AsyncIterator[frozenset[str]]:
    try:
        yield muted.get()
        await asyncio.sleep(0)
        yield muted.get()
    finally:
        async_steps.closed = muted.get()  # type: ignore[attr-defined]


@pytest.mark.parametrize("above", [True, False])
def test_async_functions_are_muted_while_they_run(node: Callable[[int], None], above: bool) -> None:
    node(1)
    rule = stdout(only="head")
    called: Any = rule(skyward.function(asked)) if above else skyward.function(rule(asked))
    stepped: Any = rule(skyward.function(async_steps)) if above else skyward.function(rule(async_steps))
    assert called.local() == (OUT, OUT)
    assert is_generator(stepped.fn)
    stream = stepped.local()
    assert next(stream) == OUT
    assert muted.get() == frozenset()
    assert next(stream) == OUT
    stream.close()
    assert async_steps.closed == OUT  # type: ignore[attr-defined]
