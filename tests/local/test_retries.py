"""`retries=` on real nodes: attempts are counted, visible in events and tasks, and limited."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward import events as ev
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def attempts(path: str) -> int:
    """Record another attempt; return the number of earlier ones."""
    file = Path(path)
    before = len(file.read_text()) if file.exists() else 0
    file.write_text("." * (before + 1))
    return before


@sky.function(retries=2, retry_on=(OSError,))
def flaky(path: str, failures: int) -> int:
    """Fail so many times, then return that number."""
    before = attempts(path)
    if before < failures:
        raise ConnectionError(f"attempt {before}\nof several")
    return before


def test_call_that_raises_runs_again(each_executor: sky.Compute, tmp_path: Path) -> None:
    assert flaky(str(tmp_path / "log"), 2) >> each_executor == 2


def test_caller_gets_the_last_error(each_executor: sky.Compute, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ConnectionError, match="^attempt 2") as caught:
        flaky(str(log), 9) >> each_executor
    assert caught.value.__notes__ == ["It was raised in the last of 3 attempts."]
    assert len(log.read_text()) == 3


def test_other_exceptions_are_raised_at_once(pool: sky.Compute, tmp_path: Path) -> None:
    log = tmp_path / "log"

    @sky.function(retries=5, retry_on=KeyError)
    def fail() -> None:
        attempts(str(log))
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="^wrong") as caught:
        fail() >> pool
    assert not hasattr(caught.value, "__notes__")
    assert len(log.read_text()) == 1


def test_every_attempt_is_an_event_and_the_task_counts_them(tmp_path: Path) -> None:
    with sky.Compute(nodes=1) as pool:
        events = pool.events(ev.TaskEvent)
        run = pool.start(flaky(str(tmp_path / "log"), 2))
        assert run.future.result(30) == 2
        (view,) = [task for task in pool.report().tasks if task.number in run.tasks]
    assert (view.state, view.retries) == ("done", 2)
    found = list(events)
    assert [type(event).__name__ for event in found] == [
        *("TaskQueued", "TaskAssigned", "TaskRetried", "TaskAssigned", "TaskRetried", "TaskAssigned", "TaskCompleted")
    ]
    retried = [event for event in found if isinstance(event, ev.TaskRetried)]
    assert [(event.retries, event.reason) for event in retried] == [
        (1, "it raised ConnectionError: attempt 0"),
        (2, "it raised ConnectionError: attempt 1"),
    ]


def test_every_node_of_a_broadcast_has_its_own_retries(pool: sky.Compute, tmp_path: Path) -> None:
    @sky.function(retries=1)
    def once() -> int:
        rank = sky.instance_info().node
        if attempts(f"{tmp_path}/{rank}") == 0:
            raise OSError("not yet")
        return rank

    assert once() @ pool == [0, 1]


def test_coroutine_that_raises_runs_again(pool: sky.Compute, tmp_path: Path) -> None:
    log = str(tmp_path / "log")

    @sky.function(retries=1)
    async def once() -> str:
        await asyncio.sleep(0)
        if attempts(log) == 0:
            raise OSError("not yet")
        return "done"

    assert once() >> pool == "done"


def test_stream_is_retried_until_its_first_element(each_executor: sky.Compute, tmp_path: Path) -> None:
    log = str(tmp_path / "log")

    @sky.function(retries=2)
    def numbers() -> Iterator[int]:
        if attempts(log) < 2:
            raise OSError("not yet")
        yield from range(3)

    assert list(numbers() >> each_executor) == [0, 1, 2]


def test_stream_that_fails_later_is_not_retried(each_executor: sky.Compute, tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"

    @sky.function(retries=2)
    def numbers() -> Iterator[int]:
        attempts(str(log))
        yield 1
        while not go.exists():
            time.sleep(0.01)
        raise OSError("broken")

    stream = numbers() >> each_executor
    assert next(stream) == 1
    go.touch()
    with pytest.raises(OSError, match="^broken") as caught:
        next(stream)
    assert caught.value.__notes__ == ["It was not run again: part of its stream had been delivered."]
    assert len(log.read_text()) == 1


def test_call_that_reads_an_iterator_is_refused(pool: sky.Compute) -> None:
    @sky.function(retries=1)
    def total(numbers: Iterator[int]) -> int:
        return sum(numbers)

    with pytest.raises(sky.SpecError, match=r"^total\(\) reads an iterator, which cannot be read again for `retries=`"):
        total(iter([1])) >> pool


def test_timeouts_cancels_and_lost_nodes_are_not_retried(tmp_path: Path) -> None:
    log = tmp_path / "log"

    @sky.function(retries=3)
    def wait(lose: bool) -> None:
        attempts(str(log))
        if lose:
            os._exit(3)
        time.sleep(60)

    with sky.Compute(nodes=1, retry_on_interruption=0) as pool:
        with pytest.raises(sky.TaskTimeoutError):
            wait(False).with_timeout(0.2) >> pool
        assert len(log.read_text()) == 1
        future = wait(False) > pool
        wait_for(lambda: len(log.read_text()) == 2, "it to run")
        future.cancel()
        with pytest.raises(sky.TaskCancelledError):
            future.result(30)
        assert len(log.read_text()) == 2
        with pytest.raises(sky.NodeLostError):
            wait(True) >> pool
        assert len(log.read_text()) == 3


def test_output_of_an_attempt_is_not_delivered_to_the_next(pool: sky.Compute, tmp_path: Path) -> None:
    tried, go = tmp_path / "tried", tmp_path / "go"

    @sky.function(retries=1)
    def fail_at_length() -> None:
        if not tried.exists():
            tried.touch()
            raise ValueError("x" * 3_000_000)
        while not go.exists():
            time.sleep(0.01)

    run = pool.start(fail_at_length())
    wait_for(lambda: run.retries and run.state == "running", "the second attempt")
    assert (run.is_leaving, run.bytes_in_transfer) == (False, 0)
    go.touch()
    assert run.future.result(30) is None
