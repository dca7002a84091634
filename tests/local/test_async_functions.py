"""`async def` functions on real nodes: each call has an event loop, and a cancel or a timeout cancels its coroutine."""

import asyncio
import contextlib
import os
import time
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import skyward as sky
from tests.local import tasks
from tests.local.conftest import Wait

pytestmark = pytest.mark.local


def write(path: str, text: str = "") -> None:
    Path(path).write_text(text)


async def doubled(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


double = sky.function(doubled)


@sky.function
async def both() -> tuple[bool, list[int], str]:
    """Whether two sleeps pass at the same time, what coroutines give, and the name of a task of asyncio."""
    start = time.monotonic()
    await asyncio.gather(asyncio.sleep(0.3), asyncio.to_thread(time.sleep, 0.3))
    task = asyncio.current_task()
    return time.monotonic() - start < 0.55, [await each for each in (doubled(1), doubled(2))], type(task).__name__


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
async def wait_and_tell(started: str, told: str) -> None:
    """Wait for ever; write down how it ended, after a pause."""
    try:
        write(started)
        await asyncio.sleep(1000)
    except BaseException as error:
        await asyncio.sleep(0.05)
        write(told, type(error).__name__)
        raise


@sky.function
async def stream_and_tell(started: str, told: str) -> AsyncIterator[int]:
    try:
        yield 1
        write(started)
        await asyncio.sleep(1000)
    finally:
        write(told)


@sky.function
async def stubborn(started: str) -> None:
    """Be deaf to cancels, and to interrupts."""
    while True:
        with contextlib.suppress(BaseException):
            write(started)
            await asyncio.sleep(1000)


def test_a_coroutine_gives_its_result(each_executor: sky.Compute) -> None:
    assert double(21) >> each_executor == 42
    assert double(21) @ each_executor == [42, 42]
    assert sky.gather(*(double(i) for i in range(50))) >> each_executor == tuple(range(0, 100, 2))


def test_it_has_an_event_loop(each_executor: sky.Compute) -> None:
    assert both() >> each_executor == (True, [2, 4], "Task")


def test_its_error_arrives_with_its_own_frames_only(each_executor: sky.Compute) -> None:
    with pytest.raises(LookupError, match="^'?not there") as caught:
        fail() >> each_executor
    shown = str(caught.value.__cause__)
    assert "in fail" in shown
    assert "asyncio" not in shown


def test_an_async_generator_streams(each_executor: sky.Compute) -> None:
    assert list(count(1000) >> each_executor) == list(range(1000))


def test_the_stream_of_an_async_generator_waits_for_its_reader(each_executor: sky.Compute) -> None:
    """More than a window of it."""
    stream = blocks(40, 4_000_000) >> each_executor
    assert [len(block) for block in stream] == [4_000_000] * 40


def test_a_plain_function_may_return_a_coroutine(pool: sky.Compute) -> None:
    @sky.function
    def call() -> object:
        return doubled(4)

    assert call() >> pool == 8


def test_what_a_coroutine_prints_is_its_output(each_executor: sky.Compute, capfd: pytest.CaptureFixture[str]) -> None:
    @sky.function
    async def say() -> None:
        print("said", flush=True)
        await asyncio.to_thread(print, "in a thread", flush=True)

    say() >> each_executor
    assert capfd.readouterr().out == "said\nin a thread\n"


def test_a_cancel_cancels_the_coroutine_which_may_tidy_up(
    each_executor: sky.Compute, tmp_path: Path, wait_for: Wait
) -> None:
    started, told = tmp_path / "started", tmp_path / "told"
    future = wait_and_tell(str(started), str(told)) > each_executor
    wait_for(started.exists, "the coroutine to run")
    assert future.cancel()
    with pytest.raises(sky.TaskCancelledError):
        future.result(30)
    assert told.read_text() == "CancelledError"


def test_a_timeout_cancels_the_coroutine(each_executor: sky.Compute, tmp_path: Path) -> None:
    told = tmp_path / "told"
    with pytest.raises(sky.TaskTimeoutError):
        wait_and_tell(str(tmp_path / "started"), str(told)).with_timeout(0.2) >> each_executor
    assert told.read_text() == "CancelledError"


def test_closing_its_stream_ends_an_async_generator(each_executor: sky.Compute, tmp_path: Path, wait_for: Wait) -> None:
    started, told = tmp_path / "started", tmp_path / "told"
    with stream_and_tell(str(started), str(told)) >> each_executor as stream:
        assert next(stream) == 1
        wait_for(started.exists, "the generator to wait")
    wait_for(told.exists, "the generator to end")
    assert tasks.add(1, 2) >> each_executor == 3


def test_a_coroutine_that_does_not_stop_is_ended_by_force(tmp_path: Path, wait_for: Wait) -> None:
    started = tmp_path / "started"
    with sky.Compute(nodes=1, worker=sky.Worker(executor="process")) as pool:
        future = stubborn(str(started)) > pool
        wait_for(started.exists, "the coroutine to run")
        future.cancel()
        with pytest.raises(sky.TaskCancelledError):
            future.result(30)
        assert double(1) >> pool == 2


def test_a_cancelled_error_of_its_own_is_not_taken_for_a_cancel(pool: sky.Compute) -> None:
    @sky.function
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(sky.RemoteError, match=r"^give_up\(\) raised CancelledError on node \d, which would be taken"):
        give_up() >> pool


def test_loops_do_not_outlive_their_calls(pool: sky.Compute) -> None:
    @sky.function
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = pool.start(descriptors(), on=0).future.result(30)
    for _ in range(20):
        pool.start(double(1), on=0).future.result(30)
    assert pool.start(descriptors(), on=0).future.result(30) <= before


def test_the_thread_of_a_slot_has_no_event_loop_of_a_call_afterwards(pool: sky.Compute) -> None:
    """Code that makes itself one where there is none works after it as before."""

    @sky.function
    def legacy() -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            loop = asyncio.get_event_loop_policy().get_event_loop()
        return loop.run_until_complete(doubled(4))

    for rank in (0, 1):
        assert pool.start(double(1), on=rank).future.result(30) == 2
        assert pool.start(legacy(), on=rank).future.result(30) == 8
