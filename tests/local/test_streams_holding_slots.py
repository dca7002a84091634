"""Streams that hold the slots which their reader waits for: refused quickly, and no false positives."""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.control.act.tasks import deadlock
from skyward.control.act.tasks.streams import RemoteIterator
from skyward.wire.protocol.flow import WINDOW
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local

MANY = 5000
"""More elements than the window: the generator pauses until they are read."""


@pytest.fixture(autouse=True)
def _fast_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(deadlock, "_EVERY", 0.1)
    gc.disable()  # a stream is closed when the error leaves the loop, and not at garbage collection
    yield
    gc.enable()


@pytest.fixture(scope="module", params=["thread", "process"])
def one_slot(request: pytest.FixtureRequest) -> Iterator[sky.Compute]:
    deadlock._EVERY, before = 0.1, deadlock._EVERY
    with sky.Compute(nodes=1, worker=sky.Worker(executor=request.param)) as pool:
        yield pool
    deadlock._EVERY = before


def in_a_loop(pool: sky.Compute, body: Callable[[int], object]) -> None:
    for number in tasks.count(MANY) >> pool:
        body(number)


def alternately(pool: sky.Compute) -> None:
    for _ in zip(tasks.count(MANY) >> pool, tasks.count(MANY) >> pool, strict=True):
        pass


def mixed_sizes(pool: sky.Compute) -> None:
    for _ in tasks.small_then_large(WINDOW - 96) >> pool:
        tasks.add(1, 1) >> pool


SHAPES: dict[str, Callable[[sky.Compute], object]] = {
    "a call": lambda pool: in_a_loop(pool, lambda x: tasks.add(x, 1) >> pool),
    "a future": lambda pool: in_a_loop(pool, lambda x: (tasks.add(x, 1) > pool).result()),
    "a task that takes the result of another": lambda pool: in_a_loop(
        pool,
        lambda x: tasks.add(tasks.add(x, 1) > pool, 1) >> pool,  # type: ignore[arg-type]  # the value of a future
    ),
    "a broadcast": lambda pool: in_a_loop(pool, lambda x: tasks.add(x, 1) @ pool),
    "a group": lambda pool: in_a_loop(pool, lambda x: (tasks.add(x, 1) & tasks.add(x, 2)) >> pool),
    "a future of a group": lambda pool: in_a_loop(pool, lambda x: (sky.gather(tasks.add(x, 1)) > pool).result()),
    "a gather that streams": lambda pool: in_a_loop(
        pool, lambda x: list(sky.gather(tasks.add(x, 1), tasks.add(x, 2), stream=True, ordered=False) >> pool)
    ),
    "two streams": alternately,
    "a pipeline": lambda pool: tasks.total(tasks.count(MANY) >> pool) >> pool,
    "a pipeline of a broadcast": lambda pool: tasks.total(x for _, x in tasks.count(MANY) @ pool) >> pool,
    "a large element after small ones": mixed_sizes,
    "a chain of pipelines": lambda pool: tasks.total(tasks.plus_one(tasks.count(MANY) >> pool) >> pool) >> pool,
    "a pipeline behind a generator": lambda pool: tasks.total(x + 1 for x in tasks.count(MANY) >> pool) >> pool,
    "a mapped pipeline": lambda pool: tasks.total(map(abs, tasks.count(MANY) >> pool)) >> pool,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_task_that_cannot_start_because_of_its_own_streams_is_refused(one_slot: sky.Compute, shape: str) -> None:
    with pytest.raises(sky.SlotsHeldError, match=r"\(\) can never start: the slots of pool '.*' are held by streams"):
        SHAPES[shape](one_slot)
    assert tasks.add(1, 1) >> one_slot == 2, "the stream was not closed when the error left the loop"


def with_calls(pool: sky.Compute) -> int:
    """Return the sum of a stream, and send every thousandth element to a task."""
    return sum(number if number % 1000 else tasks.add(number, 0) >> pool for number in tasks.count(MANY) >> pool)


def test_stream_with_another_free_slot_continues(pool: sky.Compute) -> None:
    assert with_calls(pool) == sum(range(MANY))


def test_streams_that_hold_every_slot_are_detected_also_for_pinned_tasks() -> None:
    with sky.Compute(nodes=2) as pool:
        with pytest.raises(sky.SlotsHeldError):
            for one, two in zip(tasks.count(MANY) >> pool, tasks.count(MANY) >> pool, strict=True):
                tasks.add(one, two) >> pool
        with pytest.raises(sky.SlotsHeldError):
            in_a_loop(pool, lambda x: tasks.add(x, 1) @ pool)


def test_advice_names_a_number_of_slots_that_is_enough() -> None:
    def three_at_a_time(pool: sky.Compute) -> None:
        for one, two in zip(tasks.count(MANY) >> pool, tasks.count(MANY) >> pool, strict=True):
            assert tasks.add(one, two) @ pool == [one + two]
            if one == 3:
                return

    advice = r"`worker=sky.Worker\(concurrency=3\)` or `--concurrency 3`"
    with (
        sky.Compute(nodes=1, worker=sky.Worker(concurrency=2)) as pool,
        pytest.raises(sky.SlotsHeldError, match=advice),
    ):
        three_at_a_time(pool)
    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=3)) as pool:
        three_at_a_time(pool)


def test_gang_that_needs_the_slot_of_a_stream_is_refused() -> None:
    with sky.Compute(nodes=2) as pool:
        with pytest.raises(sky.SlotsHeldError):
            in_a_loop(pool, lambda x: sky.gang(tasks.add(x, 1), tasks.add(x, 2)) >> pool)
        assert sky.gang(tasks.add(1, 1), tasks.add(1, 2)) >> pool == (2, 3)


def updating(pool: sky.Compute, number: int) -> None:
    """Begin to replace the only node of a pool at the fifth element of a stream."""
    if number == 5:
        pool.update(image=sky.Image(env={"VERSION": "2"}))


def is_updated(pool: sky.Compute) -> bool:
    nodes = pool.snapshot().nodes
    return bool(nodes) and all(node.state == "active" and not node.outdated for node in nodes)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda pool, x: tasks.add(x, 1) >> pool, id="a call"),
        pytest.param(lambda pool, x: (tasks.add(x, 1) @ pool)[0], id="a broadcast"),
        pytest.param(lambda pool, x: (sky.gang(tasks.add(x, 1)) >> pool)[0], id="a gang"),
    ],
)
def test_stream_of_a_node_that_is_replaced_gets_the_tasks_that_its_reader_waits_for(
    call: Callable[[sky.Compute, int], int],
) -> None:
    """Regression: the task waited for the next node, that for the stream, and the stream for its reader."""
    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=2)) as pool:
        for number in tasks.count(MANY) >> pool:
            updating(pool, number)
            if number < 20:
                assert call(pool, number) == number + 1
        wait_for(lambda: is_updated(pool), "the node to be replaced")


def test_coroutine_that_reads_a_stream_of_a_node_that_is_replaced_gets_its_tasks() -> None:
    async def read(pool: sky.Compute) -> int:
        count = 0
        async for number in tasks.count(MANY) >> pool:
            updating(pool, number)
            if number < 20:
                assert await (tasks.add(number, 1) > pool) == number + 1
            count += 1
        return count

    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=2)) as pool:
        assert asyncio.run(read(pool)) == MANY


def test_stream_that_holds_the_only_slot_of_a_node_that_is_replaced_is_refused() -> None:
    with sky.Compute(nodes=1) as pool:
        with pytest.raises(sky.SlotsHeldError):
            in_a_loop(pool, lambda x: updating(pool, x) if x < 6 else tasks.add(x, 1) >> pool)
        wait_for(lambda: is_updated(pool), "the node to be replaced")
        assert tasks.add(1, 1) >> pool == 2


@sky.function(resources={"H100": 1})
def on_h100() -> int:
    return 1


@pytest.mark.parametrize("first", [False, True])
def test_reader_that_waits_for_the_successor_of_the_node_of_its_stream_is_refused(first: bool) -> None:
    """Without another node, the successor starts only once the stream has ended."""

    def update_and_call(pool: sky.Compute, number: int) -> None:
        if number == 5:
            pool.update(resources={"H100": 1})
            if first:
                tasks.add(number, 1) >> pool  # the node takes tasks again
            on_h100() >> pool

    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=2)) as pool:
        with pytest.raises(sky.SlotsHeldError):
            in_a_loop(pool, lambda number: update_and_call(pool, number))
        assert on_h100() >> pool == 1
    with sky.Compute(nodes=(1, 2), worker=sky.Worker(concurrency=2)) as pool:
        in_a_loop(pool, lambda number: update_and_call(pool, number))


def test_short_stream_ends_by_itself(one_slot: sky.Compute) -> None:
    assert [tasks.add(number, 0) >> one_slot for number in tasks.count(20) >> one_slot] == list(range(20))


def test_slow_reader_on_another_thread_is_waited_for(one_slot: sky.Compute) -> None:
    go_on = threading.Event()
    stream = iter(tasks.count(MANY) >> one_slot)
    first: list[int] = []
    rest: list[int] = []

    def read() -> None:
        first.append(next(stream))
        go_on.wait(30)
        rest.extend(stream)

    reader = threading.Thread(target=read)
    reader.start()
    waiting = tasks.add(1, 1) > one_slot
    with pytest.raises(TimeoutError):
        waiting.result(1)
    answers: list[Any] = []
    blocked = threading.Thread(target=lambda: answers.append(waiting.result()))
    blocked.start()
    blocked.join(0.5)
    assert blocked.is_alive()
    go_on.set()
    blocked.join(30)
    reader.join(30)
    assert (answers, first + rest) == ([2], list(range(MANY)))


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, object]]:
    """Findings of each check; a task in two consecutive ones would be ended."""
    found: list[dict[int, object]] = []
    check = deadlock.DeadlockDetector.look

    def noted(self: deadlock.DeadlockDetector, plane: Any) -> dict[int, object]:
        found.append(result := check(self, plane))
        return result

    monkeypatch.setattr(deadlock.DeadlockDetector, "look", noted)
    return found


def test_unread_stream_handed_to_another_thread_is_only_warned_about(
    one_slot: sky.Compute, checks: list[dict[int, object]], caplog: pytest.LogCaptureFixture
) -> None:
    wait_for(lambda: checks, "a check after which a warning of an earlier test is given again")
    read = threading.Event()
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(2) as threads:
        handed: list[Iterator[int]] = []

        def start_and_call() -> int:
            handed.append(tasks.count(MANY) >> one_slot)
            return tasks.add(1, 1) >> one_slot

        called = threads.submit(start_and_call)
        total = threads.submit(lambda: read.wait(30) and sum(handed[0]))
        try:
            wait_for(lambda: called.done() or "streams that wait to be read hold all slots" in caplog.text, "a warning")
            before = len(checks)
            wait_for(lambda: called.done() or len(checks) >= before + 4, "four more checks")
            assert not any(checks)
        finally:
            read.set()
        assert (called.result(30), total.result(30)) == (2, sum(range(MANY)))


def test_generator_that_filled_the_window_and_continues_is_waited_for(
    one_slot: sky.Compute, checks: list[dict[int, object]], tmp_path: Path
) -> None:
    marker = tmp_path / "go on"
    arrived = threading.Event()

    def read_and_call() -> tuple[int, int]:
        stream = tasks.count_then_wait(WINDOW, str(marker)) >> one_slot
        assert isinstance(stream, RemoteIterator)
        first = next(stream)
        wait_for(lambda: stream.buffer.received == WINDOW, "the whole window")
        arrived.set()
        answer = tasks.add(1, 1) >> one_slot
        return answer, first + sum(stream)

    with ThreadPoolExecutor(1) as threads:
        called = threads.submit(read_and_call)
        try:
            assert arrived.wait(30)
            before = len(checks)
            wait_for(lambda: called.done() or len(checks) >= before + 4, "four checks")
            assert not any(checks)
        finally:
            marker.touch()
        assert called.result(30) == (2, sum(range(WINDOW)))


def test_reader_of_a_broadcast_that_waits_for_its_input_hides_no_deadlock(
    checks: list[dict[int, object]], tmp_path: Path
) -> None:
    go = tmp_path / "go"

    @sky.function
    def three_after(path: str) -> int:
        while not Path(path).exists():
            time.sleep(0.01)
        return 3

    with (
        sky.Compute(nodes=1, worker=sky.Worker(concurrency=2)) as pool,
        ThreadPoolExecutor(1) as threads,
        tasks.count(MANY) >> pool as one,
    ):
        next(one)
        future = three_after(str(go)) > pool
        read = threads.submit(list[Any], tasks.count(future) @ pool)  # type: ignore[arg-type]  # its value
        queued = tasks.add(1, 1) > pool
        before = len(checks)
        wait_for(lambda: len(checks) >= before + 3, "three checks")
        go.touch()
        assert queued.result(30) == 2
        assert read.result(30) == [(0, 0), (0, 1), (0, 2)]
        with tasks.count(MANY) >> pool as two, pytest.raises(sky.SlotsHeldError):
            tasks.add(next(one), next(two)) >> pool


def test_pool_that_can_grow_does_so() -> None:
    with sky.Compute(nodes=(1, 2)) as pool:
        assert with_calls(pool) == sum(range(MANY))


def test_default_timeout_does_not_limit_a_stream_and_its_own_does() -> None:
    with sky.Compute(nodes=1, default_compute_timeout=0.3) as pool:
        with pytest.raises(sky.TaskTimeoutError):
            tasks.sleep(20) >> pool
        stream = tasks.count(MANY) >> pool
        assert next(stream) == 0
        threading.Event().wait(0.6)
        assert sum(stream) == sum(range(MANY))
        limited = tasks.count(MANY).with_timeout(3) >> pool
        with pytest.raises(sky.TaskTimeoutError):
            next(limited)
            threading.Event().wait(3.5)
            list(limited)
