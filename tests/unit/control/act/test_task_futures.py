"""Awaiting the future of a task: results, errors, cancellation, and functions of the standard library."""

import asyncio
import concurrent.futures
import threading

import pytest

import skyward as sky
from skyward.control.act.tasks.future import TaskFuture, end_cancelled, on_cancel, runs_while
from skyward.process import thread_events as waking
from skyward.process.thread_events import ThreadEvent

pytestmark = pytest.mark.unit


def later(call: object, *args: object) -> threading.Thread:
    """Call a function on another thread, as the library's loop does."""
    thread = threading.Thread(target=call, args=args)  # type: ignore[arg-type]  # it is callable
    thread.start()
    return thread


@pytest.fixture
def future() -> TaskFuture[int]:
    return TaskFuture()


def test_await_returns_the_result(future: TaskFuture[int]) -> None:
    async def ask() -> int:
        later(future.set_result, 5)
        return await future + await future

    assert asyncio.run(ask()) == 10


def test_await_raises_what_the_task_raised(future: TaskFuture[int]) -> None:
    async def ask() -> None:
        later(future.set_exception, ValueError("bad"))
        await future

    with pytest.raises(ValueError, match="^bad$"):
        asyncio.run(ask())


def test_work_cancelled_elsewhere_raises_an_error_in_the_coroutine_without_cancelling_it(
    future: TaskFuture[int],
) -> None:
    async def ask() -> str:
        later(end_cancelled, future, "train() was cancelled on node 0.")
        with pytest.raises(sky.TaskCancelledError, match=r"^train\(\) was cancelled on node 0\.$"):
            await future
        return "went on"

    assert asyncio.run(ask()) == "went on"


def test_cancelling_a_coroutine_stops_the_work(future: TaskFuture[int]) -> None:
    stopped = threading.Event()
    on_cancel(future, stopped.set)

    async def ask() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.01)

    asyncio.run(ask())
    assert stopped.is_set()


def test_shield_keeps_the_work_running(future: TaskFuture[int]) -> None:
    stopped = threading.Event()
    on_cancel(future, stopped.set)

    async def ask() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(future), 0.01)
        assert not stopped.is_set()
        later(future.set_result, 3)
        return await future

    assert asyncio.run(ask()) == 3


def test_wrap_future_gather_and_as_completed_work(future: TaskFuture[int]) -> None:
    async def ask() -> tuple[int, list[int], list[int]]:
        wrapped = asyncio.wrap_future(future)
        later(future.set_result, 7)
        done: TaskFuture[int] = TaskFuture()
        later(done.set_result, 8)
        each = [await each for each in asyncio.as_completed([future, done])]
        return await wrapped, sorted(each), list(await asyncio.gather(future, done))

    assert asyncio.run(ask()) == (7, [7, 8], [7, 8])


def test_closed_loop_is_not_woken(future: TaskFuture[int]) -> None:
    on_cancel(future, lambda: None)

    async def ask() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.01)

    asyncio.run(ask())
    future.set_result(1)
    assert future.result() == 1


def test_running_is_true_while_a_node_has_the_work(future: TaskFuture[int]) -> None:
    running = False
    runs_while(future, lambda: running)
    assert not future.running()
    running = True
    assert future.running()
    future.set_result(1)
    assert not future.running()
    assert concurrent.futures.wait([future]).done == {future}


def test_cancel_while_the_result_is_set_has_no_effect() -> None:
    class CancelledMeanwhile(TaskFuture[int]):
        def _forget(self) -> None:
            super()._forget()
            assert not self.cancel()

    future = CancelledMeanwhile()
    on_cancel(future, lambda: None)
    future.set_result(5)
    assert future.result() == 5


def test_thread_event_ends_a_wait_once_its_condition_is_true_and_leaves_no_waiter() -> None:
    notifier = ThreadEvent()
    seen: list[int] = []

    async def wait() -> None:
        await notifier.wait_for(lambda: True)
        asking = asyncio.create_task(notifier.wait_for(lambda: len(seen) == 2))
        for number in range(2):
            await asyncio.sleep(0)
            assert not asking.done()
            seen.append(number)
            later(notifier.notify).join()
        await asking

        asked = iter([False, True])
        await notifier.wait_for(lambda: next(asked))  # becomes true between the check and the wait
        await asyncio.sleep(0)
        assert waking._awake[asyncio.get_running_loop()]._timer is None

    asyncio.run(wait())
