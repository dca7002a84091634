"""Invalid arguments of an open pool: one sentence, and nothing is sent."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import skyward as sky
from tests.local import tasks

pytestmark = pytest.mark.local

NO_CALL = r"^A pool runs a call of a `@sky.function`, such as `train\(10\)`, but got "


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda pool: pool.run(5), sky.OperatorError, NO_CALL + r"5 \(int\)\.$"),
        (lambda pool: pool.submit(tasks.add), sky.OperatorError, NO_CALL + "a SkyFunction"),
        (lambda pool: pool.broadcast(None), sky.OperatorError, NO_CALL + "None"),
        (lambda pool: pool.run_group([tasks.add(1, 2)]), sky.OperatorError, "^A group is made with .* but got a list"),
        (
            lambda pool: pool.start(tasks.add(1, 2), on="bogus"),
            sky.UsageError,
            "^on must be 'one', 'all', 'head', a rank",
        ),
        (lambda pool: pool.start(tasks.add(1, 2), on=True), sky.UsageError, "^on must be .* but got True"),
        (lambda pool: pool.start(tasks.add(1, 2), on=np.array([0.5])), sky.UsageError, "^on must be .* but got array"),
        (lambda pool: pool.cancel(None), sky.UsageError, r"^cancel takes task numbers, .* but got None\.$"),
        (lambda pool: pool.cancel(["a"]), sky.UsageError, r"^cancel takes task numbers, .* but got \['a'\]"),
        (lambda pool: pool.logs(stream="bogus"), sky.UsageError, "^stream must be 'stdout' or 'stderr', but got 'bo"),
        (lambda pool: pool.follow(stream="bogus"), sky.UsageError, "^stream must be 'stdout' or 'stderr'"),
        (lambda pool: pool.request_resources([{"CPU": 1}]), sky.SpecError, "^A bundle must be amounts by name"),
    ],
)
def test_invalid_pool_arguments_are_refused(
    pool: sky.Compute, use: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    before = pool.snapshot().done
    with pytest.raises(error, match=message):
        use(pool)
    assert pool.snapshot().done == before


def test_pool_that_failed_to_open_can_be_inspected() -> None:
    pool = sky.Compute(nodes=1, image=sky.Image(includes=["./nowhere"]))
    with pytest.raises(sky.SkywardError) as caught:
        pool.open()
    assert "nowhere" in str(caught.value)
    now = pool.snapshot()
    assert (now.state, now.nodes, now.max) == ("closed", (), 1)
    assert pool.report().snapshot == now
    assert repr(pool) == f"<Compute {pool.name!r}: closed>"


def test_tasks_are_cancelled_by_one_number_or_several(pool: sky.Compute) -> None:
    run = pool.start(tasks.sleep(60))
    while not run.tasks:
        pool.snapshot()  # which waits until the library's loop has taken the task
    assert pool.cancel(np.int64(run.tasks[0])) == 1  # type: ignore[arg-type]  # it acts as an int
    with pytest.raises(sky.TaskCancelledError):
        run.future.result(20)
    assert pool.cancel(iter(run.tasks)) == 0


def test_callback_of_a_future_may_use_the_pool(pool: sky.Compute) -> None:
    """It runs on the library's loop, which must not wait for itself."""
    seen: list[object] = []
    number: Any = Future()  # so that the task ends after the callback is added
    future = tasks.add(1, number) > pool

    def use(_: object) -> None:
        pool.set_budget(None)
        seen.extend((pool.snapshot().state, pool.cancel(0)))

    future.add_done_callback(use)
    number.set_result(2)
    assert future.result(20) == 3
    assert tasks.add(1, 2) >> pool == 3
    assert seen == ["ready", 0]


def test_numpy_integer_is_a_rank(pool: sky.Compute) -> None:
    assert pool.start(tasks.add(1, 2), on=np.int64(0)).future.result(20) == 3  # type: ignore[arg-type]


def test_pool_reserves_capacity_as_the_module_function_does(pool: sky.Compute) -> None:
    pool.request_resources({"CPU": 1}, bundles=None)
    with pytest.raises(sky.NoGroupFitsError, match="^request_resources asks for 100000 CPU"):
        pool.request_resources(({"CPU": 100_000}, 1))
    pool.request_resources()
