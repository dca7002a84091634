"""Future of a group of calls, without nodes."""

import threading
from functools import partial
from typing import Any, cast

from skyward.control.act.tasks.future import TaskFuture, end_cancelled, on_cancel
from skyward.control.act.tasks.run import Run
from skyward.pool.dispatch import Dispatcher
from skyward.process import background
from skyward.specs import Options


def group(size: int) -> tuple[list[TaskFuture[Any]], list[int], TaskFuture[tuple[Any, ...]]]:
    """Return futures of calls that end when stopped, a record of the stopped ones, and the group's future."""
    futures = [TaskFuture[Any]() for _ in range(size)]
    stopped: list[int] = []

    def stop(number: int) -> None:
        stopped.append(number)
        end_cancelled(futures[number], "")

    for number, future in enumerate(futures):
        on_cancel(future, partial(stop, number))
    runs = [Run(future, list, None) for future in futures]
    return futures, stopped, Dispatcher(cast("Any", None), Options()).gathered(runs)


def settled() -> None:
    """Wait until the library's loop has processed all callbacks."""
    told = threading.Event()
    background.call_soon(told.set)
    assert told.wait(30)


def test_cancelling_a_group_stops_all_calls_even_if_the_first_ends_at_once() -> None:
    _, stopped, future = group(3)
    future.cancel()
    settled()
    assert stopped == [0, 1, 2]
    assert future.cancelled()


def test_cancelling_one_call_stops_the_others() -> None:
    futures, stopped, future = group(3)
    futures[1].cancel()
    settled()
    assert sorted(stopped) == [0, 1, 2]
    assert future.cancelled()


def test_error_of_one_call_stops_the_others() -> None:
    futures, stopped, future = group(3)
    futures[2].set_exception(ValueError("broken"))
    settled()
    assert stopped == [0, 1]
    assert isinstance(future.exception(), ValueError)
