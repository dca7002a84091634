"""Maps with many short calls: several run in one task, and each has its own outcome, as if it had run alone."""

import functools
import importlib
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skyward as sky
from skyward.pool.series import MapSender
from tests.local import tasks
from tests.local.pools import wait_until_idle
from tests.local.test_stopping import stands_still
from tests.waiting import interrupt_when, wait_for

pytestmark = pytest.mark.local

MANY = 400


@pytest.fixture
def of_20(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make series of 20 calls, however long they take."""
    monkeypatch.setattr(MapSender, "_size", lambda self: 20)


def square(number: int) -> int:
    return number * number


def inverse(number: int) -> float:
    return 1 / number


def own_task() -> int:
    from skyward.worker.events.context import current_task_number

    return current_task_number()


def test_short_calls_run_several_in_a_task(pool: sky.Compute) -> None:
    before = pool.snapshot().done
    assert pool.map(square, range(5000)) == [n * n for n in range(5000)]
    with pool.executor() as executor:
        assert list(executor.map(square, range(5000))) == [n * n for n in range(5000)]
    assert pool.snapshot().done - before < 10_000


@pytest.mark.parametrize("calls", [20, MANY])
def test_calls_are_single_tasks_if_they_are_few_or_the_caller_says_so(pool: sky.Compute, calls: int) -> None:
    before = pool.snapshot().done
    with pool.executor() as executor:
        chunksize = None if calls < MANY else 1
        assert list(executor.map(square, range(calls), chunksize=chunksize)) == [n * n for n in range(calls)]
        assert pool.map(square, range(calls), chunksize=chunksize) == [n * n for n in range(calls)]
    assert pool.snapshot().done - before == 2 * calls


@pytest.mark.parametrize("settings", [{"timeout": 60}, {"retries": 1}])
def test_calls_with_a_timeout_or_retries_are_single_tasks(pool: sky.Compute, settings: Any, of_20: None) -> None:
    before = pool.snapshot().done
    assert pool.map(sky.function(**settings)(square), range(MANY)) == [n * n for n in range(MANY)]
    assert pool.snapshot().done - before == MANY


def test_call_does_not_see_what_another_one_has_changed(pool: sky.Compute, of_20: None) -> None:
    seen: list[int] = []
    counted = 0

    def append(number: int) -> int:
        seen.append(number)
        return len(seen)

    def count(_: int) -> int:
        nonlocal counted
        counted += 1
        return counted

    for function in (append, count):
        assert set(pool.map(function, range(MANY))) == {1}
        assert set(pool.executor().map(function, range(MANY))) == {1}


def test_call_does_not_see_what_another_one_has_changed_in_a_local_module(
    pool: sky.Compute, of_20: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "count = 0\n\n\ndef bump(_):\n    global count\n    count += 1\n    return count\n"
    (tmp_path / "module_with_a_counter.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("module_with_a_counter")
    try:
        assert set(pool.map(module.bump, range(MANY))) == {1}
        assert set(pool.map(lambda number: module.bump(number), range(MANY))) == {1}
    finally:
        del sys.modules["module_with_a_counter"]


def test_call_does_not_see_what_another_one_has_changed_in_the_class_of_its_item(
    pool: sky.Compute, of_20: None
) -> None:
    class Counted:
        count = 0

        def increment(self) -> int:
            type(self).count += 1
            return self.count

    def increment(counted: Counted) -> int:
        return counted.increment()

    assert set(pool.map(increment, [Counted() for _ in range(MANY)])) == {1}


def test_result_is_that_of_its_call_though_the_next_one_overwrites_its_memory(pool: sky.Compute, of_20: None) -> None:
    @functools.cache
    def workspace() -> np.ndarray:
        return np.zeros(4)

    def fill(number: int) -> np.ndarray:
        workspace()[:] = number
        return workspace()

    assert [array.tolist() for array in pool.map(fill, range(MANY))] == [[n] * 4 for n in range(MANY)]


def test_kept_values_that_calls_return_stay(pool: sky.Compute, of_20: None) -> None:
    def keep(number: int) -> Any:
        return {"kept": sky.keep([number])}

    handles = [found["kept"] for found in pool.map(keep, range(MANY))]
    assert [handles[place].fetch() for place in (0, 150, MANY - 1)] == [[0], [150], [MANY - 1]]


def test_async_functions_are_single_tasks(pool: sky.Compute, of_20: None) -> None:
    async def double(number: int) -> int:
        return 2 * number

    class Doubler:
        async def __call__(self, number: int) -> int:
            return 2 * number

    assert pool.map(double, range(MANY)) == [2 * n for n in range(MANY)]
    assert pool.map(Doubler(), range(MANY)) == [2 * n for n in range(MANY)]


def test_coroutines_that_some_calls_return_are_awaited(pool: sky.Compute, of_20: None) -> None:
    async def double(number: int) -> int:
        return 2 * number

    def maybe(number: int) -> Coroutine[Any, Any, int] | int:
        return double(number) if number % 7 == 3 else 2 * number

    found: Any = pool.map(maybe, range(MANY))
    assert found == [2 * n for n in range(MANY)]


# Arguments and results.


def test_arguments_and_results_of_each_kind_arrive(pool: sky.Compute, of_20: None) -> None:
    items: list[Any] = [None, "text", b"bytes", 1.5, [1, [2]], {"a": (1,)}, np.arange(5), np.zeros((3, 2)), Path("/x")]
    found = pool.map(lambda item: item, items * 50)
    for got, given in zip(found, items * 50, strict=True):
        np.testing.assert_equal(got, given)
        assert type(got) is type(given)


def test_arrays_are_writable_on_both_sides(pool: sky.Compute, of_20: None) -> None:
    def add_one(array: np.ndarray) -> np.ndarray:
        array += 1
        return array

    for number, got in enumerate(pool.map(add_one, [np.full(100, n) for n in range(MANY)])):
        got += 1
        assert got.tolist() == [number + 2] * 100


def test_large_arguments_and_results_are_sent(pool: sky.Compute, of_20: None) -> None:
    def sized(data: bytes, size: int) -> bytes:
        return data[:1] * size

    sizes = [(200_000 if n % 50 == 5 else 10, 200_000 if n % 50 == 7 else 10) for n in range(MANY)]
    found = pool.map(sized, [b"x" * size for size, _ in sizes], [size for _, size in sizes])
    assert [len(each) for each in found] == [size for _, size in sizes]


def test_futures_among_the_items_are_taken(pool: sky.Compute, of_20: None) -> None:
    items: list[Any] = [tasks.add(n, 0) > pool if n % 40 == 9 else n for n in range(MANY)]
    assert pool.map(lambda item: item + 1, items) == [n + 1 for n in range(MANY)]


def test_arguments_are_those_of_the_time_of_the_call(pool: sky.Compute, of_20: None) -> None:
    items = [[n] for n in range(MANY)]
    with pool.executor() as executor:
        results: Iterator[list[int]] = executor.map(list, items)
        for item in items:
            item.append(-1)
        assert list(results) == [[n] for n in range(MANY)]


# Errors.


@pytest.mark.parametrize("executor", [False, True])
def test_error_comes_after_the_results_before_it_and_names_its_item(
    pool: sky.Compute, of_20: None, executor: bool
) -> None:
    items = [*range(1, 60), 0, *range(1, MANY)]
    found: list[float] = []
    failed = pool.snapshot().failed
    with pytest.raises(ZeroDivisionError) as caught:
        if executor:
            with pool.executor() as mapping:
                for result in mapping.map(inverse, items):
                    found.append(result)
        else:
            pool.map(inverse, items)
    assert found == ([1 / n for n in range(1, 60)] if executor else [])
    assert caught.value.__notes__ == ["It was raised for item 59: 0."]
    shown = str(caught.value.__cause__)
    assert "in inverse" in shown
    assert "map.py" not in shown
    assert pool.snapshot().failed > failed


def test_calls_after_a_failed_one_run(pool: sky.Compute, of_20: None, tmp_path: Path) -> None:
    """Nobody takes the results, so nobody meets the error."""

    def touch(number: int, folder: str) -> None:
        if number % 10 == 3:
            raise ValueError(number)
        Path(folder, str(number)).touch()

    with pool.executor() as executor:
        executor.map(touch, range(MANY), [str(tmp_path)] * MANY)
    assert len(list(tmp_path.iterdir())) == MANY * 9 // 10


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        (lambda: sys.exit(3), sky.TaskExitError, r"called sys.exit\(3\)"),
        (lambda: __import__("a_module_that_nobody_has"), sky.MissingModuleError, "a_module_that_nobody_has"),
        (lambda: (yield), sky.NotPicklableError, "the result of"),
        (lambda: next(iter(())), sky.RemoteError, "the end of an iterator"),
    ],
    ids=["exit", "missing", "unpicklable", "stop"],
)
def test_each_kind_of_error_is_the_one_of_a_single_task(
    pool: sky.Compute, of_20: None, bad: Callable[[], Any], error: type[Exception], words: str
) -> None:
    def work(number: int) -> Any:
        return bad() if number == 30 else number

    for chunksize in (None, 1):
        with pool.executor() as executor:
            results = executor.map(work, range(MANY), chunksize=chunksize)
            assert [next(results) for _ in range(30)] == list(range(30))
            with pytest.raises(error, match=words):
                next(results)


def test_result_that_cannot_be_unpickled_here_is_an_error_of_its_call(pool: sky.Compute, of_20: None) -> None:
    def work(number: int) -> Any:
        class OnlyThere:
            def __reduce__(self) -> tuple[object, tuple[int, str]]:
                return os.kill, (1, "not a number")

        return OnlyThere() if number == 30 else number

    with pool.executor() as executor:
        results = executor.map(work, range(MANY))
        assert [next(results) for _ in range(30)] == list(range(30))
        with pytest.raises(sky.RemoteError, match="cannot be unpickled here") as caught:
            next(results)
        assert caught.value.__notes__ == ["It was raised for item 30: 30."]


def test_call_that_cannot_be_pickled_stops_the_others(pool: sky.Compute, of_20: None) -> None:
    items: list[Any] = [*range(200), (number for number in range(3)), *range(200)]
    with pytest.raises(sky.NotPicklableError):
        pool.map(repr, items)
    with pool.executor() as executor, pytest.raises(sky.NotPicklableError):
        executor.map(repr, items)
    wait_for(lambda: not pool.snapshot().running and not pool.snapshot().queued, "the others to stop")


def test_call_that_cannot_be_pickled_stops_those_that_a_series_left_over(
    pool: sky.Compute, of_20: None, tmp_path: Path
) -> None:
    gate = str(tmp_path / "gate")

    class Refused:
        def __reduce__(self) -> Any:
            wait_for(lambda: pool.snapshot().running == 2, "calls that a series has left to run")
            raise TypeError("it cannot be pickled")

    def wait_at(number: object, gate: str) -> None:
        time.sleep(0.06)
        while number and not os.path.exists(gate):
            time.sleep(0.01)

    items: list[object] = [*([0, *[1] * 19] * 5), Refused(), *range(MANY)]
    with pytest.raises(sky.NotPicklableError):
        pool.map(wait_at, items, [gate] * len(items))
    wait_for(lambda: not pool.snapshot().running and not pool.snapshot().queued, "the others to stop")


# Calls that take longer than those before, and stopping.


def test_long_calls_after_short_ones_are_tasks_of_their_own(pool: sky.Compute, of_20: None) -> None:
    def task_of(number: int) -> int:
        if number >= MANY - 10:
            time.sleep(0.1)
        return own_task()

    found = pool.map(task_of, range(MANY))
    assert len(set(found[: MANY - 20])) < MANY / 4
    assert len(set(found[MANY - 10 :])) == 10


def test_closing_the_results_stops_all_calls(pool: sky.Compute, of_20: None, tmp_path: Path) -> None:
    beat = tmp_path / "beat"

    def beat_shortly(path: str) -> None:
        tasks.heartbeat.fn(path, 0.02)

    with pool.executor() as executor:
        results = executor.map(beat_shortly, [str(beat)] * 100_000)
        next(results)
        results.close()  # type: ignore[attr-defined]  # as that of the standard library has
    wait_for(lambda: stands_still(beat), "the calls to stop")


def test_closing_the_results_before_the_first_one_stops_all_calls(
    pool: sky.Compute, of_20: None, tmp_path: Path
) -> None:
    beat = tmp_path / "beat"
    with pool.executor() as executor:
        results = executor.map(tasks.heartbeat.fn, [str(beat)] * MANY, [600] * MANY)
        wait_for(beat.exists, "a call to run")
        results.close()  # type: ignore[attr-defined]  # as above
    assert stands_still(beat)


def test_interrupt_stops_all_calls(pool: sky.Compute, of_20: None, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    with pytest.raises(KeyboardInterrupt), interrupt_when(beat.exists, "a call to run"):
        pool.map(tasks.heartbeat.fn, [str(beat)] * MANY, [600] * MANY)
    wait_for(lambda: stands_still(beat), "the calls to stop")


def test_timeout_of_a_map_stops_all_calls(pool: sky.Compute, of_20: None, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    with pool.executor() as executor, pytest.raises(TimeoutError):
        list(executor.map(tasks.heartbeat.fn, [str(beat)] * MANY, [600] * MANY, timeout=1))
    wait_until_idle(pool)
    assert not beat.exists() or stands_still(beat), "a call may not have begun in time"


def test_shutdown_that_cancels_sends_no_call_again(of_20: None, tmp_path: Path) -> None:
    """Two series run when the executor is shut down; each has calls left when its first one has ended."""
    gate = tmp_path / "gate"

    def pass_gate(number: int, gate: str) -> int:
        open(f"{os.path.dirname(gate)}/{number} began", "x").close()
        while not os.path.exists(gate):
            time.sleep(0.01)
        time.sleep(0.06)
        return number

    with sky.Compute(nodes=2) as pool:
        executor = pool.executor()
        results = executor.map(pass_gate, range(MANY), [str(gate)] * MANY)
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2, "two series to run")
        executor.shutdown(wait=False, cancel_futures=True)
        gate.touch()
        executor.shutdown()
        assert next(results) == 0
        with pytest.raises(sky.TaskCancelledError):
            next(results)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["0 began", "20 began", "gate"]


def test_series_of_a_killed_node_runs_again(pool: sky.Compute, of_20: None, tmp_path: Path) -> None:
    died = str(tmp_path / "died")

    def die_or_square(number: int) -> int:
        if number == 250:
            tasks.die_once.fn(died)
        return number * number

    assert pool.map(die_or_square, range(MANY)) == [n * n for n in range(MANY)]


@pytest.fixture(scope="module")
def limited() -> Iterator[sky.Compute]:
    """A pool whose tasks may run for two seconds."""
    with sky.Compute(provider="local", default_compute_timeout=2) as pool:
        yield pool


def test_limit_of_the_pool_ends_a_call_and_not_a_series(limited: sky.Compute, of_20: None) -> None:
    assert limited.map(time.sleep, [*[0.12] * 20, *[0.0] * 40]) == [None] * 60
    with pytest.raises(sky.TaskTimeoutError) as caught:
        limited.map(time.sleep, [*[0.0] * 50, 60.0, *[0.0] * 50])
    assert caught.value.__notes__ in (
        ["It was raised for one of the items 40 to 59, which ran in one task."],
        ["It was raised for item 50: 60.0."],  # if the first calls of its series took long
    )


def test_limit_of_the_pool_is_for_each_call_of_a_chunk(limited: sky.Compute) -> None:
    assert limited.map(time.sleep, [0.25] * 10, chunksize=10) == [None] * 10
    assert list(limited.executor().map(time.sleep, [0.25] * 10, chunksize=10)) == [None] * 10
