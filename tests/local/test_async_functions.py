"""`async def` functions on real nodes: one event loop per call; a cancel or a timeout cancels the coroutine."""

import asyncio
import contextlib
import os
import threading
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import skyward as sky
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def write(path: str, text: str = "") -> None:
    Path(path).write_text(text)


async def doubled(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


double = sky.function(doubled)


@sky.function
async def both() -> tuple[bool, list[int], str]:
    """Return whether a coroutine and a thread overlap, the results of coroutines, and the name of an asyncio task."""
    loop, met, other = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def meet_in_thread() -> bool:
        loop.call_soon_threadsafe(met.set)
        return other.wait(30)

    async def meet() -> None:
        await met.wait()
        other.set()

    overlap, _ = await asyncio.gather(asyncio.to_thread(meet_in_thread), meet())
    task = asyncio.current_task()
    return overlap, [await each for each in (doubled(1), doubled(2))], type(task).__name__


@sky.function
async def fail() -> None:
    await asyncio.sleep(0)
    raise LookupError("not there")


@sky.function
async def count(number: int) -> AsyncIterator[int]:
    for each in range(number):
        await asyncio.sleep(0)
        yield each


@sky.function
async def blocks(number: int, size: int) -> AsyncIterator[bytes]:
    for _ in range(number):
        yield bytes(size)


@sky.function
async def wait_and_tell(started: str, outcome: str) -> None:
    """Wait without end, and write down how it ended, after a pause."""
    try:
        write(started)
        await asyncio.sleep(1000)
    except BaseException as error:
        await asyncio.sleep(0.05)
        write(outcome, type(error).__name__)
        raise


@sky.function
async def stream_and_tell(started: str, outcome: str) -> AsyncIterator[int]:
    try:
        yield 1
        write(started)
        await asyncio.sleep(1000)
    finally:
        write(outcome)


@sky.function
async def stubborn(started: str) -> None:
    """Ignore cancels and interrupts."""
    while True:
        with contextlib.suppress(BaseException):
            write(started)
            await asyncio.sleep(1000)


def test_coroutine_returns_its_result(each_executor: sky.Compute) -> None:
    assert double(21) >> each_executor == 42
    assert double(21) @ each_executor == [42, 42]
    assert sky.gather(*(double(i) for i in range(50))) >> each_executor == tuple(range(0, 100, 2))


def test_coroutine_has_an_event_loop(each_executor: sky.Compute) -> None:
    assert both() >> each_executor == (True, [2, 4], "Task")


def test_error_of_a_coroutine_has_only_its_own_frames(each_executor: sky.Compute) -> None:
    with pytest.raises(LookupError, match="^'?not there") as caught:
        fail() >> each_executor
    shown = str(caught.value.__cause__)
    assert "in fail" in shown
    assert "asyncio" not in shown


def test_async_generator_streams(each_executor: sky.Compute) -> None:
    assert list(count(1000) >> each_executor) == list(range(1000))


def test_stream_of_an_async_generator_waits_for_its_reader(each_executor: sky.Compute) -> None:
    """It yields more elements than the window."""
    stream = blocks(40, 4_000_000) >> each_executor
    assert [len(block) for block in stream] == [4_000_000] * 40


def test_plain_function_may_return_a_coroutine(pool: sky.Compute) -> None:
    @sky.function
    def call() -> object:
        return doubled(4)

    assert call() >> pool == 8


def test_output_of_a_coroutine_belongs_to_its_task(
    each_executor: sky.Compute, capfd: pytest.CaptureFixture[str]
) -> None:
    @sky.function
    async def say() -> None:
        print("said", flush=True)
        await asyncio.to_thread(print, "in a thread", flush=True)

    say() >> each_executor
    assert capfd.readouterr().out == "said\nin a thread\n"


def test_cancel_cancels_the_coroutine_which_may_clean_up(each_executor: sky.Compute, tmp_path: Path) -> None:
    started, outcome = tmp_path / "started", tmp_path / "told"
    future = wait_and_tell(str(started), str(outcome)) > each_executor
    wait_for(started.exists, "the coroutine to run")
    assert future.cancel()
    with pytest.raises(sky.TaskCancelledError):
        future.result(30)
    assert outcome.read_text() == "CancelledError"


def test_timeout_cancels_the_coroutine(each_executor: sky.Compute, tmp_path: Path) -> None:
    outcome = tmp_path / "told"
    with pytest.raises(sky.TaskTimeoutError):
        wait_and_tell(str(tmp_path / "started"), str(outcome)).with_timeout(0.2) >> each_executor
    assert outcome.read_text() == "CancelledError"


def test_closing_the_stream_ends_an_async_generator(each_executor: sky.Compute, tmp_path: Path) -> None:
    started, outcome = tmp_path / "started", tmp_path / "told"
    with stream_and_tell(str(started), str(outcome)) >> each_executor as stream:
        assert next(stream) == 1
        wait_for(started.exists, "the generator to wait")
    wait_for(outcome.exists, "the generator to end")
    assert tasks.add(1, 2) >> each_executor == 3


def test_coroutine_that_does_not_stop_is_ended_by_force(tmp_path: Path) -> None:
    started = tmp_path / "started"
    with sky.Compute(nodes=1, worker=sky.Worker(executor="process")) as pool:
        future = stubborn(str(started)) > pool
        wait_for(started.exists, "the coroutine to run")
        future.cancel()
        with pytest.raises(sky.TaskCancelledError):
            future.result(30)
        assert double(1) >> pool == 2


def test_cancelled_error_raised_by_the_coroutine_is_not_a_cancel(pool: sky.Compute) -> None:
    @sky.function
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(
        sky.RemoteError, match=r"^give_up\(\) raised CancelledError on node \d, which would be mistaken"
    ):
        give_up() >> pool


def test_event_loops_do_not_outlive_their_calls(pool: sky.Compute) -> None:
    @sky.function
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = pool.start(descriptors(), on=0).future.result(30)
    for _ in range(20):
        pool.start(double(1), on=0).future.result(30)
    assert pool.start(descriptors(), on=0).future.result(30) <= before


def test_slot_thread_has_no_event_loop_after_a_call(pool: sky.Compute) -> None:
    """Code that creates a loop if there is none works after it as before."""

    @sky.function
    def legacy() -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            loop = asyncio.get_event_loop_policy().get_event_loop()
        return loop.run_until_complete(doubled(4))

    for rank in (0, 1):
        assert pool.start(double(1), on=rank).future.result(30) == 2
        assert pool.start(legacy(), on=rank).future.result(30) == 8
