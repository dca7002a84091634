"""Processes that tasks fork: they never report for their task, and do not hide the end of the task's process."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import skyward as sky
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


@pytest.fixture(scope="module", params=[("thread", 1), ("thread", 2), ("process", 2)], ids=str)
def pool(request: pytest.FixtureRequest) -> Iterator[sky.Compute]:
    """One node, with each executor, with one slot and with two."""
    executor, slots = request.param
    with sky.Compute(nodes=1, worker=sky.Worker(executor=executor, concurrency=slots)) as compute:
        yield compute


class Printed:
    """Return the output so far."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self._text = ""

    def now(self) -> str:
        self._text += self._capture.readouterr().out
        return self._text


@sky.function
def forked(how: str) -> tuple[str, int]:
    child = os.fork()
    if not child:
        print("forked")
        match how:
            case "return":
                return "forked", 0
            case "a large return":
                return "x" * 1_000_000, 0
            case "exit":
                sys.exit(3)
            case "raise":
                raise ValueError("of the forked process")
            case "_exit":
                os._exit(5)
    return "task", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("how", "status"), [("return", 0), ("a large return", 0), ("exit", 3), ("raise", 1), ("_exit", 5)]
)
def test_forked_child_never_reports_for_its_task(
    pool: sky.Compute, how: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert forked(how) >> pool == ("task", status)
    output = Printed(capfd)
    wait_for(lambda: "forked" in output.now(), "its output")
    assert tasks.add(1, 2) >> pool == 3
    assert output.now().count("forked") == 1


@sky.function
def forks_between() -> Iterator[object]:
    yield "first"
    child = os.fork()
    if not child:
        yield "forked"
    yield os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    yield "last"


def test_forked_child_of_a_generator_yields_nothing(pool: sky.Compute) -> None:
    assert list(forks_between() >> pool) == ["first", 0, "last"]


@sky.function
def reads_in_fork(numbers: Iterator[int]) -> tuple[int, int]:
    child = os.fork()
    if not child:
        try:
            next(numbers)
        except RuntimeError as error:
            os._exit(9 if "forked" in str(error) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sum(numbers)


def test_forked_child_is_refused_the_input_of_its_task(pool: sky.Compute) -> None:
    assert reads_in_fork(iter([1, 2, 3])) >> pool == (9, 6)


@sky.function
def mapped(method: str) -> list[int]:
    with multiprocessing.get_context(method).Pool(2) as workers:
        return workers.map(abs, range(-3, 3))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_in_a_task(pool: sky.Compute, method: str) -> None:
    assert mapped(method) >> pool == [3, 2, 1, 0, 1, 2]


@sky.function
def helped_then_dies(path: str) -> str:
    if Path(path).exists():
        return "ran again"
    helper = os.fork()
    if not helper:
        time.sleep(1000)
    Path(path).write_text(str(helper))
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def test_death_of_a_task_process_is_noticed_while_its_helper_lives(pool: sky.Compute, tmp_path: Path) -> None:
    path = tmp_path / "helper"
    assert (helped_then_dies(str(path)) > pool).result(60) == "ran again"
    helper = int(path.read_text())
    wait_for(lambda: not psutil.pid_exists(helper), "the helper to end")


@sky.function
def helped_and_deaf(path: str) -> None:
    helper = os.fork()
    if not helper:
        time.sleep(1000)
    while True:
        try:
            Path(path).write_text(str(helper))
            time.sleep(1000)
        except KeyboardInterrupt:
            continue


@pytest.mark.parametrize("cancelled", [False, True], ids=["timeout", "cancel"])
def test_task_that_ignores_interrupts_ends_with_its_helper(tmp_path: Path, cancelled: bool) -> None:
    path = tmp_path / "helper"
    with sky.Compute(nodes=1, worker=sky.Worker(executor="process")) as pool:
        future = helped_and_deaf(str(path)).with_timeout(60 if cancelled else 10) > pool
        wait_for(lambda: path.exists() and path.read_text(), "the helper")
        helper = int(path.read_text())
        if cancelled:
            future.cancel()
        with pytest.raises(sky.TaskCancelledError if cancelled else sky.TaskTimeoutError):
            future.result(60)
        assert tasks.add(1, 2) >> pool == 3
        wait_for(lambda: not psutil.pid_exists(helper), "the helper to end")


@sky.function
def leaves_a_daemon(go: str) -> int:
    daemon = os.fork()
    if not daemon:
        os.setsid()
        while not Path(go).exists():
            time.sleep(0.01)
        print("said by the daemon", flush=True)
        time.sleep(1000)
    return daemon


def test_daemon_outlives_its_task_and_not_its_node(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    go = tmp_path / "go"
    with sky.Compute(nodes=1, worker=sky.Worker(executor="process")) as pool:
        daemon = leaves_a_daemon(str(go)) >> pool
        assert tasks.add(1, 2) >> pool == 3
        assert psutil.Process(daemon).status() != psutil.STATUS_ZOMBIE
        go.touch()
        output = Printed(capfd)
        wait_for(lambda: "said by the daemon" in output.now(), "its output")
        assert tasks.add(1, 2) >> pool == 3
    assert not psutil.pid_exists(daemon)


CELL = """
import os, sys
for ends in ("exit", "error"):
    child = os.fork()
    if not child:
        if ends == "exit":
            sys.exit(3)
        raise ValueError("in the forked process")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open({path!r}, "a") as file:
        file.write(f"{{status}} ")
"""


@sky.function
def run_forking_cell(path: str) -> None:
    from skyward.worker.cells.cell import CellRequest, run_cell

    run_cell(CellRequest(CELL.format(path=path)))


def test_forked_child_of_a_cell_ends_with_the_status_of_a_script(pool: sky.Compute, tmp_path: Path) -> None:
    run_forking_cell(str(tmp_path / "statuses")) >> pool
    assert (tmp_path / "statuses").read_text().split() == ["3", "1"]
