"""`pool.executor()` on real nodes: what takes an executor of `concurrent.futures` takes a pool."""

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, as_completed, wait
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from tests.local import tasks
from tests.local.test_stopping import stands_still
from tests.waiting import interrupt_when, wait_for

pytestmark = pytest.mark.local


@pytest.fixture
def executor(pool: sky.Compute) -> Iterator[Executor]:
    with pool.executor() as executor:
        yield executor


def test_futures_work_in_wait_and_as_completed(executor: Executor) -> None:
    futures = [executor.submit(pow, base, 2) for base in range(8)]
    done, left = wait(futures)
    assert not left
    assert done == set(futures)
    assert sorted(future.result() for future in as_completed(futures)) == [0, 1, 4, 9, 16, 25, 36, 49]


def test_coroutines_run_calls_in_it(executor: Executor) -> None:
    async def use() -> tuple[int, int]:
        wrapped = asyncio.wrap_future(executor.submit(pow, 2, 3))
        return await asyncio.get_running_loop().run_in_executor(executor, pow, 2, 8), await wrapped

    assert asyncio.run(use()) == (256, 8)


def test_cancelling_a_coroutine_stops_its_call(executor: Executor, tmp_path: Path) -> None:
    beat = tmp_path / "beat"

    async def use() -> None:
        running = asyncio.get_running_loop().run_in_executor(executor, tasks.heartbeat.fn, str(beat), 60)
        await asyncio.to_thread(wait_for, beat.exists, "the task to run")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(use())
    wait_for(lambda: stands_still(beat), "the task to stop")


def test_decorated_functions_keep_their_settings(executor: Executor, tmp_path: Path) -> None:
    attempts = tmp_path / "attempts"

    @sky.function(retries=2)
    def fails_twice(path: str) -> int:
        with open(path, "a+") as file:
            file.write("x")
            file.seek(0)
            if len(count := file.read()) < 3:
                raise OSError(count)
            return len(count)

    tries: Any = executor.submit(fails_twice, str(attempts)).result()
    assert tries == 3


@pytest.mark.parametrize("chunksize", [1, 3])
@pytest.mark.parametrize("buffersize", [None, 1, 4, 100])
def test_map_takes_several_iterables(pool: sky.Compute, chunksize: int, buffersize: int | None) -> None:
    with pool.executor() as executor:
        results = executor.map(pow, range(10), [2] * 12, chunksize=chunksize, buffersize=buffersize)
        assert list(results) == [base**2 for base in range(10)]
        assert list(executor.map(pow, [], [], chunksize=chunksize, buffersize=buffersize)) == []


def test_map_without_a_buffer_reads_everything_at_once(pool: sky.Compute) -> None:
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(50):
            read.append(number)
            yield number

    with pool.executor() as executor:
        results = executor.map(abs, numbers())
        assert len(read) == 50
        assert list(results) == list(range(50))


@pytest.mark.parametrize("chunksize", [1, 2])
def test_map_with_a_buffer_reads_no_further_than_it(pool: sky.Compute, chunksize: int) -> None:
    def numbers() -> Iterator[int]:
        number = 0
        while True:
            read.append(number)
            yield number
            number += 1

    read: list[int] = []
    with pool.executor() as executor:
        results = executor.map(abs, numbers(), buffersize=3, chunksize=chunksize)
        assert len(read) == 3 * chunksize
        assert [next(results) for _ in range(10)] == list(range(10))
        assert len(read) <= 10 + 4 * chunksize
        results.close()  # type: ignore[attr-defined]  # as that of the standard library has


def test_closing_the_results_of_a_map_stops_the_calls_that_are_left(pool: sky.Compute, tmp_path: Path) -> None:
    with pool.executor() as executor:
        results = executor.map(tasks.heartbeat.fn, [str(tmp_path / "beat")] * 20, [0.01, *[600.0] * 19])
        next(results)
        results.close()  # type: ignore[attr-defined]  # as above


@pytest.mark.parametrize("settings", [{}, {"chunksize": 2}, {"buffersize": 4}])
def test_closing_the_results_of_a_map_before_the_first_one_stops_its_calls(
    pool: sky.Compute, tmp_path: Path, settings: Any
) -> None:
    beat = tmp_path / "beat"
    with pool.executor() as executor:
        results = executor.map(tasks.heartbeat.fn, [str(beat)] * 20, [600.0] * 20, **settings)
        wait_for(beat.exists, "a call to run")
        results.close()  # type: ignore[attr-defined]  # as above
        assert list(results) == []
    assert stands_still(beat)


def test_map_whose_results_are_not_wanted_runs_its_calls(pool: sky.Compute, tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(10)]
    with pool.executor() as executor:
        executor.map(Path.touch, paths)
    assert all(path.exists() for path in paths)


def test_map_raises_the_first_error_with_its_item_and_stops_the_others(pool: sky.Compute) -> None:
    with pool.executor() as executor:
        results = executor.map(divmod, [1, 1, 1, 1], [2, 3, 0, 5])
        assert [next(results), next(results)] == [(0, 1), (0, 1)]
        with pytest.raises(ZeroDivisionError) as caught:
            next(results)
    assert caught.value.__notes__ == ["It was raised for item 2: (1, 0)."]


def test_map_raises_when_its_time_is_over(pool: sky.Compute) -> None:
    with pool.executor() as executor:
        assert list(executor.map(time.sleep, [0, 0], timeout=60)) == [None, None]
        results = executor.map(time.sleep, [600], timeout=0.5)
        with pytest.raises(TimeoutError):
            next(results)


def test_shutdown_waits_for_the_calls_and_leaves_the_pool_open(pool: sky.Compute) -> None:
    executor = pool.executor()
    futures = [executor.submit(time.sleep, 0.1) for _ in range(4)]
    executor.shutdown()
    assert all(future.done() for future in futures)
    assert pool.is_open
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(pow, 2, 2)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.map(pow, [2], [2])


def test_shutdown_cancels_what_has_not_begun(pool: sky.Compute, tmp_path: Path) -> None:
    started, go = tmp_path / "started", tmp_path / "go"

    def until(started: str, go: str) -> str:
        Path(started).touch()
        while not Path(go).exists():
            time.sleep(0.01)
        return "done"

    executor = pool.executor()
    running = executor.submit(until, str(started), str(go))
    wait_for(started.exists, "the first call to run")
    waiting = [executor.submit(until, str(started), str(go)) for _ in range(20)]
    executor.shutdown(wait=False, cancel_futures=True)
    go.touch()
    assert running.result(60) == "done"
    executor.shutdown()
    assert any(future.cancelled() for future in waiting)


def test_interrupt_in_a_block_stops_its_calls(pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    with pytest.raises(KeyboardInterrupt), interrupt_when(beat.exists, "the task to run"), pool.executor() as executor:
        executor.submit(tasks.heartbeat.fn, str(beat), 600)
        threading.Event().wait()
    wait_for(lambda: stands_still(beat), "the task to stop")


def test_call_that_would_be_sent_after_an_interrupt_is_cancelled(pool: sky.Compute) -> None:
    """Calls of a map that a series has not run are sent again as it ends."""
    executor = pool.executor()
    executor.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    future: sky.TaskFuture[Any] = sky.TaskFuture()
    executor._track_unsent(future)
    assert future.cancelled()


def test_call_that_is_being_sent_at_a_shutdown_is_cancelled(pool: sky.Compute) -> None:
    own = pool.executor()

    class ShutsDown:
        def __reduce__(self) -> tuple[Any, ...]:
            own.shutdown(wait=False, cancel_futures=True)
            return int, ("600",)

    future = own.submit(time.sleep, ShutsDown())  # type: ignore[arg-type]  # it arrives as a number
    own.shutdown()
    assert future.cancelled()


def test_call_that_cannot_be_pickled_fails_in_its_future(executor: Executor) -> None:
    future = executor.submit(len, [threading.Lock()])
    with pytest.raises(sky.NotPicklableError):
        future.result()
    assert future.done()


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda executor: executor.submit(tasks.count.fn, 3), sky.OperatorError, r"`count` yields: stream it"),
        (lambda executor: executor.map(tasks.count, [3]), sky.OperatorError, r"`count` yields: stream it"),
        (lambda executor: executor.submit(3), sky.SpecError, "decorates a function"),
        (lambda executor: executor.map(abs, [3], chunksize=0), ValueError, "chunksize must be a whole number"),
        (lambda executor: executor.map(abs, [3], buffersize=0), ValueError, "buffersize must be a whole number"),
        (lambda executor: executor.map(abs, [3], timeout="1"), ValueError, "timeout must be"),
    ],
)
def test_wrong_arguments_are_refused(
    pool: sky.Compute, use: Callable[[Any], object], error: type[Exception], words: str
) -> None:
    with pool.executor() as executor, pytest.raises(error, match=words):
        use(executor)


def test_executor_of_a_closed_pool_is_refused() -> None:
    pool = sky.Compute(provider="local")
    executor = pool.executor()
    with pytest.raises(sky.PoolClosedError):
        executor.submit(pow, 2, 2)


def test_number_of_workers_is_the_most_that_the_pool_may_have() -> None:
    pool = sky.Compute(nodes=(1, 5), provider="local", worker=sky.Worker(concurrency=3))
    assert pool.executor()._max_workers == 15
    assert isinstance(pool.executor(), concurrent.futures.Executor)
