"""Libraries that take an executor, or something with `map`: their results on a pool are those that they have here.

`process_map` and `thread_map` of tqdm make their own executors, and anyio takes none: `to_thread` and `to_process` have
workers of their own. In both, an executor is used as it is in asyncio.
"""

import asyncio
import concurrent.futures
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Executor, as_completed, wait
from io import StringIO
from pathlib import Path
from typing import Any

import anyio
import dask
import dask.array
import emcee
import numpy as np
import pytest
from scipy.optimize import OptimizeResult, brute, differential_evolution
from tqdm import tqdm  # type: ignore[import-untyped]  # it has no types of its own
from tqdm.contrib.concurrent import process_map, thread_map  # type: ignore[import-untyped]  # as above

import skyward as sky
from tests.local import tasks
from tests.local.test_stopping import stands_still
from tests.waiting import wait_for, wait_for_async

pytestmark = pytest.mark.local


@pytest.fixture(autouse=True)
def _bars_need_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tqdm, "monitor_interval", 0)


@pytest.fixture
def executor(pool: sky.Compute) -> Iterator[Executor]:
    with pool.executor() as executor:
        yield executor


def rosenbrock(point: np.ndarray) -> float:
    return float(sum(100 * (point[1:] - point[:-1] ** 2) ** 2 + (1 - point[:-1]) ** 2))


def log_probability(point: np.ndarray, scale: float) -> float:
    return float(-0.5 * np.sum(point**2) / scale)


def square(number: int) -> int:
    return number * number


def slowly_or_fail(number: int, gate: str) -> int:
    if number == 0:
        raise ValueError("as intended")
    tasks.wait_for_file.fn(gate)
    return number


# concurrent.futures, asyncio and anyio.


def test_futures_of_wait_and_as_completed_are_those_that_were_given(executor: Executor, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    futures = {executor.submit(slowly_or_fail, number, str(gate)): number for number in range(6)}
    try:
        done, left = wait(futures, return_when=FIRST_EXCEPTION)
        assert {futures[future] for future in done} == {0}
        assert wait(futures, return_when=FIRST_COMPLETED).done == done
        assert next(as_completed(futures)) in done
        with pytest.raises(TimeoutError):
            list(as_completed(left, timeout=0.01))
    finally:
        gate.touch()
    assert sorted(future.result() for future in as_completed(left)) == [1, 2, 3, 4, 5]


def test_coroutines_gather_calls_in_it(executor: Executor) -> None:
    async def use() -> list[int]:
        loop = asyncio.get_running_loop()
        first = [loop.run_in_executor(executor, square, number) for number in range(10)]
        second = [asyncio.wrap_future(executor.submit(square, number)) for number in range(10, 20)]
        return await asyncio.gather(*first, *second)

    assert asyncio.run(use()) == [number * number for number in range(20)]


def test_default_executor_of_a_loop_is_no_pool(executor: Executor) -> None:
    """Asyncio takes threads only there: `asyncio.to_thread` runs what cannot be sent."""

    async def use() -> None:
        asyncio.get_running_loop().set_default_executor(executor)

    with pytest.raises(TypeError, match="ThreadPoolExecutor"):
        asyncio.run(use())


def test_timeout_of_a_coroutine_stops_the_call(executor: Executor, tmp_path: Path) -> None:
    beat = tmp_path / "beat"

    async def use() -> None:
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(executor, tasks.heartbeat.fn, str(beat), 600.0)
        await wait_for_async(beat.exists, "the call to run")
        await asyncio.wait_for(running, 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(use())
    wait_for(lambda: stands_still(beat), "the call to stop")


def test_scope_of_anyio_stops_the_calls_in_it(executor: Executor, tmp_path: Path) -> None:
    beat, results = tmp_path / "beat", []

    async def call(number: int) -> None:
        results.append(await asyncio.wrap_future(executor.submit(square, number)))

    async def use() -> None:
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(call, number)
        with anyio.CancelScope() as scope:
            running = executor.submit(tasks.heartbeat.fn, str(beat), 600)
            await wait_for_async(beat.exists, "the call to run")
            scope.cancel()
            await asyncio.wrap_future(running)
        assert scope.cancelled_caught

    anyio.run(use)
    assert sorted(results) == [0, 1, 4, 9, 16]
    wait_for(lambda: stands_still(beat), "the call to stop")


# tqdm.


def test_bar_of_tqdm_follows_the_results_of_a_map(executor: Executor) -> None:
    bar = tqdm(executor.map(square, range(30), chunksize=4), total=30, file=StringIO())
    assert list(bar) == list(map(square, range(30)))
    assert bar.n == 30


@pytest.mark.parametrize(("mapped", "made"), [(process_map, "ProcessPoolExecutor"), (thread_map, "ThreadPoolExecutor")])
def test_maps_of_tqdm_work_with_it_in_place_of_their_own(
    pool: sky.Compute, monkeypatch: pytest.MonkeyPatch, mapped: Callable[..., list[int]], made: str
) -> None:
    monkeypatch.setattr(concurrent.futures, made, lambda **_: pool.executor())
    assert mapped(square, range(20), chunksize=3, file=StringIO()) == list(map(square, range(20)))


# Dask.


def test_graph_of_dask_runs_in_it(pool: sky.Compute) -> None:
    @dask.delayed  # type: ignore[untyped-decorator]  # dask has no types
    def add(first: int, second: int) -> int:
        return first + second

    layer = [dask.delayed(square)(number) for number in range(16)]
    while len(layer) > 1:
        layer = [add(*pair) for pair in zip(layer[::2], layer[1::2], strict=True)]
    pids = [dask.delayed(os.getpid)() for _ in range(6)]
    with pool.executor() as executor:
        total, *found = dask.compute(*layer, *pids, scheduler=executor)
    assert total == sum(number * number for number in range(16))
    assert os.getpid() not in found


def test_arrays_of_dask_are_computed_in_it(pool: sky.Compute) -> None:
    array = dask.array.random.default_rng(0).random((400, 300), chunks=(100, 100))
    result = (array @ array.T).mean(axis=0) + array.std()
    with pool.executor() as executor:
        found = result.compute(scheduler=executor)
    np.testing.assert_allclose(found, result.compute(scheduler="sync"), rtol=1e-12)


def test_error_in_a_graph_of_dask_is_raised(pool: sky.Compute) -> None:
    failing = dask.delayed(square)(dask.delayed(divmod)(1, 0))
    with pool.executor() as executor, pytest.raises(ZeroDivisionError):
        failing.compute(scheduler=executor)


# SciPy and emcee.


def test_differential_evolution_is_the_same(pool: sky.Compute) -> None:
    def optimise(workers: Any) -> OptimizeResult:
        bounds = [(-2, 2)] * 3
        return differential_evolution(
            rosenbrock, bounds, workers=workers, updating="deferred", rng=1, maxiter=8, polish=False
        )

    found, expected = optimise(pool.map), optimise(1)
    np.testing.assert_array_equal(found.x, expected.x)
    assert (found.fun, found.nfev) == (expected.fun, expected.nfev)
    with pool.executor() as executor:
        np.testing.assert_array_equal(optimise(executor.map).x, expected.x)


def test_brute_force_is_the_same(pool: sky.Compute) -> None:
    ranges = (slice(-2, 2, 0.5), slice(-2, 2, 0.5))
    np.testing.assert_array_equal(
        brute(rosenbrock, ranges, workers=pool.map, finish=None), brute(rosenbrock, ranges, finish=None)
    )


def test_chain_of_emcee_is_the_same(pool: sky.Compute) -> None:
    def sample(with_map: Any) -> Any:
        start = np.random.default_rng(0).normal(size=(8, 2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampler = emcee.EnsembleSampler(8, 2, log_probability, args=[2.0], pool=with_map)
            np.random.seed(0)
            sampler.random_state = np.random.mtrand.RandomState(0).get_state()
            sampler.run_mcmc(start, 10)
        return sampler.get_chain()

    expected = sample(None)
    np.testing.assert_array_equal(sample(pool), expected)
    with pool.executor() as executor:
        np.testing.assert_array_equal(sample(executor), expected)
