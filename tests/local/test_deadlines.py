"""Deadlines are enforced when C code holds the GIL of a node, which then can neither stop the task nor report it."""

import contextlib
import ctypes
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward import events
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local


@sky.function
def holds_gil(seconds: int, log: str = "") -> str:
    if log:
        with Path(log).open("a") as file:
            file.write("ran\n")
    ctypes.PyDLL(None).sleep(seconds)
    return "slept"


@sky.function
def backtracks(log: str) -> None:
    with Path(log).open("a") as file:
        file.write("ran\n")
    re.match(r"(a+)+$", "a" * 60 + "b")


@sky.function
def holds_gil_after_one(go: str) -> Iterator[int]:
    """Yield once, then hold the GIL as soon as the element was received."""
    yield 1
    while not Path(go).exists():
        time.sleep(0.01)
    ctypes.PyDLL(None).sleep(600)
    yield 2


@pytest.fixture
def node() -> Iterator[sky.Compute]:
    with sky.Compute(nodes=1, worker=sky.Worker(executor="thread")) as compute:
        yield compute


def test_task_that_holds_the_gil_ends_at_its_timeout_and_runs_once(node: sky.Compute, tmp_path: Path) -> None:
    log = tmp_path / "log"
    future = backtracks(str(log)).with_timeout(3) > node
    with pytest.raises(sky.TaskTimeoutError, match=r"^backtracks\(\) ran past its timeout of 3 s on node 0"):
        future.result(25)
    assert tasks.add(1, 2) >> node == 3
    assert log.read_text() == "ran\n"


def test_result_that_arrives_after_the_deadline_is_a_timeout(node: sky.Compute) -> None:
    """The node is still connected: it answers before it counts as unresponsive."""
    before = tasks.pid() >> node
    future = holds_gil(1).with_timeout(0.5) > node
    with pytest.raises(sky.TaskTimeoutError):
        future.result(25)
    assert holds_gil(1).with_timeout(60) >> node == "slept"
    assert tasks.pid() >> node == before


def test_cancel_ends_a_task_that_holds_the_gil(node: sky.Compute, tmp_path: Path) -> None:
    log = tmp_path / "log"
    future = holds_gil(600, str(log)) > node
    wait_for(log.exists, "the task to run")
    future.cancel()
    with pytest.raises(sky.TaskCancelledError):
        future.result(25)
    assert tasks.add(1, 2) >> node == 3


def test_closing_the_stream_of_a_generator_that_holds_the_gil_frees_its_node(node: sky.Compute, tmp_path: Path) -> None:
    stream = iter(holds_gil_after_one(str(tmp_path / "go")) >> node)
    assert next(stream) == 1
    (tmp_path / "go").touch()
    del stream
    assert (tasks.add(1, 2) > node).result(25) == 3


def test_timeout_of_a_stream_that_holds_the_gil_reaches_its_reader(node: sky.Compute, tmp_path: Path) -> None:
    stream = holds_gil_after_one(str(tmp_path / "go")).with_timeout(1.5) >> node
    assert next(stream) == 1
    (tmp_path / "go").touch()
    with pytest.raises(sky.TaskTimeoutError):
        next(stream)


def test_task_beside_one_that_holds_the_gil_runs_again(tmp_path: Path) -> None:
    log = tmp_path / "log"

    @sky.function
    def neighbour(log: str) -> int:
        with Path(log).open("a") as file:
            file.write("ran\n")
        lines = len(Path(log).read_text().splitlines())
        time.sleep(0 if lines > 1 else 600)
        return lines

    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=2, executor="thread")) as pool:
        beside = neighbour(str(log)) > pool
        wait_for(lambda: log.exists() and log.read_text(), "the other task to run")
        late = holds_gil(600).with_timeout(3) > pool
        with pytest.raises(sky.TaskTimeoutError):
            late.result(25)
        assert beside.result(25) == 2


def test_broadcast_that_holds_the_gil_ends_and_runs_once_on_each_node(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with sky.Compute(nodes=2, worker=sky.Worker(executor="thread")) as pool:
        with pytest.raises(sky.TaskTimeoutError):
            holds_gil(600, str(log)).with_timeout(3) @ pool
        wait_for(lambda: [node.state for node in pool.snapshot().nodes] == ["active"] * 2, "the new nodes")
        assert log.read_text() == "ran\nran\n"
        assert tasks.add(1, 2) @ pool == [3, 3]


def test_process_slot_that_holds_the_gil_is_killed_and_its_node_stays() -> None:
    with sky.Compute(nodes=1, worker=sky.Worker(executor="process")) as pool:
        before = pool.snapshot().nodes
        with pytest.raises(sky.TaskTimeoutError):
            (holds_gil(600).with_timeout(0.5) > pool).result(25)
        assert tasks.add(1, 2) >> pool == 3
        assert [node.machine for node in pool.snapshot().nodes] == [node.machine for node in before]


def test_inputs_of_a_task_that_holds_the_gil_do_not_block_its_node() -> None:
    """It is fed more than the buffer between node and slot process holds; both still end."""

    @sky.function
    def deaf(blocks: Iterator[bytes]) -> int:
        next(blocks)
        ctypes.PyDLL(None).sleep(600)
        return 0

    with sky.Compute(nodes=1, worker=sky.Worker(executor="process", concurrency=2)) as pool:
        future = deaf(bytes(60_000) for _ in range(1000)).with_timeout(1) > pool
        assert [tasks.add(number, 1) >> pool for number in range(3)] == [1, 2, 3]
        with pytest.raises(sky.TaskTimeoutError):
            future.result(25)


def test_timeout_of_a_group_includes_the_time_in_the_queue(tmp_path: Path) -> None:
    with sky.Compute(nodes=1) as pool:
        assert (tasks.add(1, 1) & tasks.add(2, 2)).with_timeout(60) >> pool == (2, 4)
        paths = [tmp_path / str(number) for number in range(9)]
        group = sky.gather(tasks.sleep(0.4), *(tasks.append(str(path), "x") for path in paths), tasks.sleep(600))
        with pytest.raises(
            sky.TaskTimeoutError, match=r"^sleep\(\) was stopped.*, because its group ran past its timeout of 3 s\. "
        ):
            group.with_timeout(3) >> pool
        waiting = sky.gather(tasks.sleep(600), tasks.append(str(tmp_path / "never"), "x")).with_timeout(0.3)
        with pytest.raises(sky.TaskTimeoutError):
            (waiting > pool).result(25)
        assert tasks.add(1, 2) >> pool == 3
        assert not (tmp_path / "never").exists()


def test_node_ended_for_a_task_that_did_not_stop_says_so_and_so_do_its_kept_values() -> None:
    @sky.function
    def keeps() -> sky.Kept[list[int]]:
        return sky.keep([1], "numbers")

    @sky.function
    def goes_on() -> None:
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(600)

    why = "Skyward ended its process, since a task on it did not stop"
    with sky.Compute(nodes=1, worker=sky.Worker(executor="thread")) as pool, pool.events(events.NodeLost) as lost:
        kept = pool.start(keeps()).future.result(30)
        with pytest.raises(sky.TaskTimeoutError):
            (goes_on().with_timeout(0.5) > pool).result(60)
        event = lost.get(60)
        assert isinstance(event, events.NodeLost)
        assert event.reason == why
        with pytest.raises(sky.KeptLostError, match=f"node 0 is gone: {why}"):
            kept.fetch()
