"""Futures as arguments, and `.after`, on real nodes: values of other tasks, and propagated errors and cancels."""

import concurrent.futures
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import skyward as sky
from skyward import events as ev
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local


class Pair(NamedTuple):
    first: Any
    second: Any


@sky.function
def same(*args: Any, **kwargs: Any) -> Any:
    return (args, kwargs) if kwargs else args[0] if len(args) == 1 else args


@sky.function
def array(size: int, fill: float = 1.0) -> Any:
    return np.full(size, fill)


@sky.function
def total(values: Any) -> float:
    return float(sum(part.sum() for part in values) if isinstance(values, list) else values.sum())


@sky.function
def change(values: Any) -> float:
    values[0] = 100.0
    return float(values[0])


@sky.function
def identical(one: Any, other: Any) -> bool:
    return one is other


@sky.function
def wait_and_give(path: str, value: Any) -> Any:
    tasks.wait_for_file.fn(path)
    return value


def test_future_is_replaced_by_its_value(each_executor: sky.Compute) -> None:
    a = tasks.add(1, 2) > each_executor
    b = tasks.add(a, b=a) > each_executor  # type: ignore[arg-type]  # the value of a future
    assert tasks.add(b, 4) >> each_executor == 10  # type: ignore[arg-type]  # see above
    assert (a.result(), b.result()) == (3, 6)


def test_task_waits_for_its_dependency_without_a_thread(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with sky.Compute(nodes=2) as pool:
        before = {thread.name for thread in threading.enumerate()}
        a = wait_and_give(str(go), 5) > pool
        futures = [tasks.add(a, i) > pool for i in range(50)]  # type: ignore[arg-type]  # the value of a future
        wait_for(a.running, "the first to run")
        assert not any(future.done() or future.running() for future in futures)
        assert pool.snapshot().queued == 50
        assert tasks.add(1, 1) >> pool == 2, "the other node is free"
        assert {thread.name for thread in threading.enumerate()} <= before | {"skyward-io_0", "skyward-io_1"}
        go.touch()
        assert [future.result(30) for future in futures] == [5 + i for i in range(50)]


def test_futures_in_containers_are_replaced_too(pool: sky.Compute) -> None:
    a, b = (tasks.add(i, 0) > pool for i in (1, 2))
    assert same([a, (b, 3)], key={"a": [a]}) >> pool == (([1, (2, 3)],), {"key": {"a": [1]}})
    assert same(Pair(a, [b])) >> pool == Pair(1, [2])
    many = [tasks.add(i, 0) > pool for i in range(300)]
    assert same([0] * 500 + many) >> pool == [0] * 500 + list(range(300))


def test_one_future_is_one_object(pool: sky.Compute) -> None:
    a = same([1]) > pool
    assert identical(a, a) >> pool


def test_futures_of_groups_are_tuples(pool: sky.Compute) -> None:
    group = (tasks.add(1, 1) & tasks.add(2, 2)) > pool
    assert same(group) >> pool == (2, 4)
    group.result()
    assert same(group, 5) >> pool == ((2, 4), 5)
    everywhere = pool.start(tasks.add(3, 3), on="all").future
    assert same(everywhere) >> pool == [6, 6]


def test_futures_of_other_pools_and_executors_are_values(pool: sky.Compute) -> None:
    with sky.Compute(nodes=1) as other, concurrent.futures.ThreadPoolExecutor(1) as threads:
        remote = array(1_000_000) > other
        assert total(remote) >> pool == 1_000_000
        assert tasks.add(threads.submit(lambda: 4), threads.submit(lambda: 5)) >> pool == 9  # type: ignore[arg-type]


def test_every_node_of_a_broadcast_has_the_value(pool: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"
    a = wait_and_give(str(go), 5) > pool
    run = pool.start(tasks.add(a, 1), on="all")  # type: ignore[arg-type]  # the value of a future
    assert run.state == "queued"
    go.touch()
    assert run.future.result(30) == [6, 6]


def test_groups_and_maps_take_futures(pool: sky.Compute) -> None:
    futures: list[Any] = [tasks.add(i, 0) > pool for i in range(5)]
    assert pool.map(lambda x: x * 10, futures) == [0, 10, 20, 30, 40]
    calls = [tasks.add(future, 1) for future in futures]
    assert sky.gather(*calls) >> pool == (1, 2, 3, 4, 5)


def test_generator_functions_take_futures_and_a_future_list_can_be_iterated(pool: sky.Compute) -> None:
    assert list(tasks.count(tasks.add(1, 2) > pool) >> pool) == [0, 1, 2]  # type: ignore[arg-type]
    assert tasks.total(same([1, 2, 3]) > pool) >> pool == 6  # type: ignore[arg-type]


def test_large_values_are_passed_and_each_task_has_its_own(each_executor: sky.Compute) -> None:
    a = array(2_000_000) > each_executor
    assert change(a) >> each_executor == 100.0
    assert total(a) >> each_executor == 2_000_000
    a.result()[0] = 50.0
    assert total([a, a]) >> each_executor == 4_000_000, "not the value that the task returned"
    assert a.result()[0] == 50.0
    b = array(2_000_000) > each_executor
    b.result()[0] = 50.0
    assert total(b) >> each_executor == 2_000_049, "a fetched result must be sent as it is"


def test_error_propagates_with_its_type_and_names_the_dependency(pool: sky.Compute) -> None:
    with pool.events(ev.TaskFailed) as events:
        a = tasks.fail("bad") > pool
        b = same(a) > pool
        c = same([b]) > pool
        with pytest.raises(ValueError, match="^bad") as caught:
            c.result(30)
        assert caught.value.__notes__ == [
            "same() did not run: it takes the result of fail(), which failed.",
            "same() did not run: it takes the result of same(), which failed.",
        ]
        assert isinstance(caught.value.__cause__, sky.RemoteTraceback)
        with pytest.raises(ValueError, match="^bad") as original:
            a.result(30)
        assert not hasattr(original.value, "__notes__")
        failed = [events.get(30) for _ in range(3)]
    assert [(event.name, event.error) for event in failed if isinstance(event, ev.TaskFailed)] == [
        *(("fail", "ValueError"), ("same", "ValueError"), ("same", "ValueError"))
    ]


def test_task_fails_at_once_when_one_dependency_failed(pool: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"
    slow = wait_and_give(str(go), 1) > pool
    with pytest.raises(ValueError, match="^bad"):
        same(slow, tasks.fail("bad") > pool) >> pool
    go.touch()
    assert slow.result(30) == 1


def test_failed_future_fails_a_later_call(pool: sky.Compute) -> None:
    a = tasks.fail("bad") > pool
    with pytest.raises(ValueError, match="^bad"):
        a.result(30)
    with pytest.raises(ValueError, match="^bad"):
        same(a) >> pool
    run = pool.start(same(a), on="all")
    with pytest.raises(ValueError, match="^bad"):
        run.future.result(30)


def test_cancel_propagates(pool: sky.Compute, tmp_path: Path) -> None:
    a = wait_and_give(str(tmp_path / "never"), 1) > pool
    b = same(a) > pool
    everywhere = pool.start(same(a), on="all").future
    c = tasks.add(1, 1).after(b) > pool
    wait_for(a.running, "the first to run")
    assert a.cancel()
    with pytest.raises(
        sky.TaskCancelledError, match=r"^same\(\) was cancelled: it takes the result of wait_and_give\(\), which was "
    ):
        b.result(30)
    with pytest.raises(sky.TaskCancelledError, match=r"it was to run after same\(\), which was cancelled\.$"):
        c.result(30)
    with pytest.raises(sky.TaskCancelledError, match=r"^same\(\) was cancelled: it takes the result of"):
        everywhere.result(30)


def test_waiting_task_can_be_cancelled_alone(pool: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"
    a = wait_and_give(str(go), 1) > pool
    b = same(a) > pool
    run = pool.start(same(a), on="all")
    assert b.cancel()
    assert run.cancel()
    with pytest.raises(sky.TaskCancelledError, match=r"^same\(\) was cancelled before it started\.$"):
        b.result(30)
    with pytest.raises(sky.TaskCancelledError, match=r"^same\(\) was cancelled before it started\.$"):
        run.future.result(30)
    go.touch()
    assert a.result(30) == 1
    assert tasks.add(1, 1) >> pool == 2


def test_waiting_task_is_listed_and_can_be_cancelled_by_number(pool: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"
    a = wait_and_give(str(go), 1) > pool
    run = pool.start(same(a))
    run.future.running()
    (view,) = [view for view in pool.report().tasks if view.number in run.tasks]
    assert view.state == "queued"
    assert pool.cancel(run.tasks) == 1
    with pytest.raises(sky.TaskCancelledError):
        run.future.result(30)
    go.touch()
    a.result(30)


def test_group_timeout_counts_while_it_waits(pool: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"
    a = wait_and_give(str(go), 1) > pool
    with pytest.raises(sky.TaskTimeoutError, match=r"^same\(\) was stopped before it started, because its group"):
        sky.gather(same(a)).with_timeout(0.2) >> pool
    go.touch()
    a.result(30)


def test_closing_the_pool_ends_waiting_tasks(tmp_path: Path) -> None:
    with sky.Compute(nodes=1) as pool:
        a = wait_and_give(str(tmp_path / "never"), 1) > pool
        b = same(a) > pool
        run = pool.start(same(a), on="all")
    for future in (b, run.future):
        with pytest.raises(sky.PoolClosedError):
            future.result(30)


def test_waiting_task_for_a_removed_node_fails_with_the_reason(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with sky.Compute(nodes=2) as pool:
        a = pool.start(wait_and_give(str(go), 1), on=0).future
        b = pool.start(same(a), on=1).future
        pool.resize(1)
        wait_for(lambda: len(pool.snapshot().nodes) == 1, "node 1 to go")
        go.touch()
        with pytest.raises(sky.UsageError, match=r"has no node 1; its only node is 0\.$"):
            b.result(30)


def test_value_is_available_to_a_retried_task(pool: sky.Compute, tmp_path: Path) -> None:
    @sky.function
    def total_once(values: Any, path: str) -> float:
        tasks.die_once.fn(path)
        return total.fn(values)

    a = array(1_000_000) > pool
    assert total_once(a, str(tmp_path / "marker")) >> pool == 1_000_000


def test_after_waits_for_the_end_without_the_value(pool: sky.Compute, tmp_path: Path) -> None:
    go, log = tmp_path / "go", tmp_path / "log"
    a = wait_and_give(str(go), 1) > pool
    b = tasks.append(str(log), "b").after(a) > pool
    both = (tasks.append(str(log), "c") & tasks.append(str(log), "c")).after(a, b) > pool
    wait_for(a.running, "the first to run")
    assert not log.exists()
    go.touch()
    both.result(30)
    assert log.read_text() == "bcc"


def test_after_fails_with_the_error_of_its_dependency(pool: sky.Compute) -> None:
    a = tasks.fail("bad") > pool
    with pytest.raises(ValueError, match="^bad") as caught:
        tasks.add(1, 1).after(a) >> pool
    assert caught.value.__notes__ == ["add() did not run: it was to run after fail(), which failed."]


def test_after_takes_futures_only() -> None:
    with pytest.raises(
        sky.SpecError, match=r"^`\.after` takes futures, but got `add\(\.\.\.\)`: write `add\(\.\.\.\)\.after"
    ):
        tasks.add(1, 1).after(tasks.add(2, 2))  # type: ignore[arg-type]  # intended


def test_future_of_a_stream_is_refused(pool: sky.Compute) -> None:
    stream = tasks.count(3) > pool
    with pytest.raises(sky.SpecError, match="^A future of a stream has no value to pass"):
        same(stream) >> pool
    assert list(stream.result()) == [0, 1, 2]


def test_instance_of_a_script_class_keeps_its_class_in_the_next_task(each_executor: sky.Compute) -> None:
    class Model:
        def __init__(self, rate: float) -> None:
            self.rate = rate

    @sky.function
    def fit() -> Any:
        return Model(0.5)

    @sky.function
    def rate(model: Any) -> tuple[bool, float]:
        return isinstance(model, Model), model.rate

    a = fit() > each_executor
    assert rate(a) >> each_executor == (True, 0.5)
    assert isinstance(a.result(), Model)


def test_values_pass_through_a_pipeline_of_streams(pool: sky.Compute) -> None:
    @sky.function
    def scaled(numbers: Iterator[int], by: int) -> Iterator[int]:
        for number in numbers:
            yield number * by

    assert list(scaled(iter([1, 2, 3]), tasks.add(4, 6) > pool) >> pool) == [10, 20, 30]  # type: ignore[arg-type]
