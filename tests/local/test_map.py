"""`pool.map` on real nodes: order, chunks, and errors that name their item."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import pytest

import skyward as sky
from tests.local import tasks
from tests.local.test_stopping import stands_still
from tests.waiting import wait_for

pytestmark = pytest.mark.local

SIZES = pytest.mark.parametrize("chunksize", [1, 3, 100])


def inverse(number: int) -> float:
    return 1 / number


class Scale:
    def __init__(self, by: int) -> None:
        self.by = by

    @sky.function
    def apply(self, number: int) -> int:
        return number * self.by


@SIZES
def test_results_are_in_the_order_of_the_items(each_executor: sky.Compute, chunksize: int) -> None:
    assert each_executor.map(lambda x: x * x, range(20), chunksize=chunksize) == [x * x for x in range(20)]
    assert each_executor.map(Scale(3).apply, (1, 2, 3, 4), chunksize=chunksize) == [3, 6, 9, 12]
    assert each_executor.map(inverse, [], chunksize=chunksize) == []


@SIZES
def test_async_functions_are_mapped(pool: sky.Compute, chunksize: int) -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    assert pool.map(double, range(5), chunksize=chunksize) == [0, 2, 4, 6, 8]


@SIZES
def test_coroutines_that_a_function_returns_are_awaited(pool: sky.Compute, chunksize: int) -> None:
    async def halve(number: int) -> float:
        await asyncio.sleep(0)
        return 6 / number

    assert pool.map(lambda number: halve(number) if number % 2 else number, range(5), chunksize=chunksize) == [
        *(0, 6.0, 2, 2.0, 4)
    ]
    with pytest.raises(ZeroDivisionError) as caught:
        pool.map(lambda number: halve(number), [3, 0, 1], chunksize=chunksize)
    assert caught.value.__notes__ == ["It was raised for item 1: 0."]


@SIZES
@pytest.mark.parametrize(
    "function",
    [lambda x: tasks.add(x, 1), lambda x: tasks.add(x, 1) & tasks.add(x, 2), partial(tasks.add, 1)],
    ids=["call", "group", "partial"],
)
def test_calls_that_have_not_run_are_no_results(pool: sky.Compute, chunksize: int, function: Any) -> None:
    message = r"has not run, `.*add\(\.\.\.\).*`, and a node has no pool.* `\.local\(\.\.\.\)` of its function"
    with pytest.raises(sky.NotPicklableError, match=message):
        pool.map(function, range(7), chunksize=chunksize)
    with pytest.raises(sky.NotPicklableError, match=message), joblib.parallel_config("skyward", pool=pool):
        joblib.Parallel()(joblib.delayed(function)(number) for number in range(7))
    with pytest.raises(sky.NotPicklableError, match=message):
        pool.executor().submit(function, 1).result()


@SIZES
def test_calls_that_have_not_run_are_no_parts_of_items_or_results(pool: sky.Compute, chunksize: int) -> None:
    items = [[tasks.add(number, 1)] for number in range(7)]
    with pytest.raises(sky.NotPicklableError, match=r"has a call that has not run, `add.*pass its future"):
        pool.map(len, items, chunksize=chunksize)
    with pytest.raises(sky.NotPicklableError, match=r"has a call that has not run, `.*, and a node has no pool"):
        pool.map(lambda number: {"sum": tasks.add(number, 1)}, range(7), chunksize=chunksize)
    call = tasks.add(1, 1)
    assert pool.map(lambda number: number + call.local(), range(7), chunksize=chunksize) == list(range(2, 9))


@SIZES
def test_futures_are_mapped(pool: sky.Compute, chunksize: int) -> None:
    futures: list[Any] = [tasks.add(i, 0) > pool for i in range(7)]
    assert pool.map(lambda x: x * 10, futures, chunksize=chunksize) == [0, 10, 20, 30, 40, 50, 60]


def test_chunk_is_one_task(pool: sky.Compute) -> None:
    def task(_: int) -> int:
        return tasks.pid.fn()

    before = pool.snapshot().done
    assert len(pool.map(task, range(10), chunksize=4)) == 10
    assert pool.snapshot().done == before + 3


@SIZES
def test_error_names_its_item(pool: sky.Compute, chunksize: int) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        pool.map(inverse, [1, 2, 4, 5, 0, 8], chunksize=chunksize)
    assert caught.value.__notes__ == ["It was raised for item 4: 0."]
    shown = str(caught.value.__cause__)
    assert "in inverse" in shown
    assert "mapping.py" not in shown


@pytest.mark.parametrize(
    ("chunksize", "note"),
    [
        (1, "It was raised for item 1: 60."),
        (2, "It was raised for one of the items 0 to 1, which ran in one task."),
    ],
)
def test_timeout_names_the_items_of_its_task(pool: sky.Compute, chunksize: int, note: str) -> None:
    """The timeout applies to each call, so a chunk has as much for each of its items."""
    sleep = sky.function(timeout=1.0)(tasks.sleep.fn)
    assert pool.map(sleep, [0.4, 0.4, 0.4], chunksize=3) == ["slept"] * 3
    with pytest.raises(sky.TaskTimeoutError) as caught:
        pool.map(sleep, [0, 60], chunksize=chunksize)
    assert caught.value.__notes__ == [note]


def test_first_error_stops_the_others(pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"

    def work(which: int) -> None:
        if which:
            tasks.wait_for_file.fn(str(beat))
            raise ValueError("bad")
        tasks.heartbeat.fn(str(beat), 60)

    with pytest.raises(ValueError, match="^bad"):
        pool.map(lambda which: work(1 - which), [0, 1])
    wait_for(lambda: stands_still(beat), "the other to stop")


def test_retries_run_a_chunk_again(pool: sky.Compute, tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    @sky.function(retries=1)
    def once(number: int) -> int:
        if number == 2 and not marker.exists():
            marker.touch()
            raise OSError("not yet")
        return number

    assert pool.map(once, range(6), chunksize=3) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("chunksize", [0, -1, 1.5, True])
def test_invalid_chunksize_is_refused(pool: sky.Compute, chunksize: Any) -> None:
    with pytest.raises(sky.SpecError, match="^chunksize must be a whole number of at least 1, but got"):
        pool.map(inverse, [1], chunksize=chunksize)


def test_streaming_functions_are_refused(pool: sky.Compute) -> None:
    def total(numbers: Iterator[int]) -> int:
        return sum(numbers)

    with pytest.raises(
        sky.OperatorError, match=r"^`pool.map` takes a function that returns its result, and `count` yie"
    ):
        pool.map(tasks.count, [1])
    assert pool.map(total, [[1, 2], [3]]) == [3, 3]  # type: ignore[arg-type]  # a list streams as well
    with pytest.raises(
        sky.SpecError, match=r"^`total` takes an iterator, which streams to one call: leave `chunksize=`"
    ):
        pool.map(total, [[1, 2], [3]], chunksize=2)  # type: ignore[arg-type]  # see above
