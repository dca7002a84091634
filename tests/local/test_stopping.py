"""Timeouts, cancellation and interrupts stop the task on the node, not only the wait."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import skyward as sky
from skyward.control.act.tasks import stopping
from skyward.control.act.tasks.future import TaskFuture
from skyward.control.act.tasks.run import Run
from skyward.process import background
from skyward_jupyter.running.stopping import stop_runs
from tests.local import tasks
from tests.waiting import interrupt_when, wait_for

pytestmark = pytest.mark.local


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "GRACE", 20.0)


def stands_still(path: Path) -> bool:
    """Return whether the heartbeat file is no longer written."""
    before = path.read_text()
    deadline = time.monotonic() + 0.2
    while time.monotonic() < deadline:
        if path.read_text() != before:
            return False
        time.sleep(0.01)
    return True


def awaits_future() -> bool:
    """Return whether the main thread waits for a future: an interrupt while it still sends has another message."""
    stack = traceback.walk_stack(sys._current_frames()[threading.main_thread().ident or 0])
    return any(frame.f_code is TaskFuture._wait.__code__ for frame, _ in stack)


@pytest.mark.parametrize("task", [tasks.sleep, tasks.spin], ids=["sleep", "spin"])
def test_timeout_stops_the_task(each_executor: sky.Compute, task: sky.SkyFunction[[float], str]) -> None:
    with pytest.raises(
        sky.TaskTimeoutError, match=r"^\w+\(\) ran past its timeout of 0.2 s on node \d and was stopped"
    ):
        task(3600).with_timeout(0.2) >> each_executor
    assert tasks.add(1, 1) >> each_executor == 2


def test_timeout_error_is_a_timeout_error(pool: sky.Compute) -> None:
    with pytest.raises(TimeoutError):
        tasks.sleep(60).with_timeout(0.1) >> pool


def test_timeout_of_the_decorator_stops_the_task(pool: sky.Compute) -> None:
    brief = sky.function(tasks.sleep.fn, timeout=0.1)
    with pytest.raises(sky.TaskTimeoutError):
        brief(60) >> pool


def test_timeout_of_the_pool_stops_the_task() -> None:
    with sky.Compute(nodes=1, default_compute_timeout=0.2) as pool, pytest.raises(sky.TaskTimeoutError):
        tasks.sleep(60) >> pool


def test_time_in_the_queue_does_not_count(pool: sky.Compute) -> None:
    calls = [tasks.sleep(0.2).with_timeout(5) for _ in range(6)]
    assert set(sky.gather(*calls) >> pool) == {"slept"}


def test_cancel_stops_the_task(each_executor: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    future = tasks.heartbeat(str(beat), 60) > each_executor
    wait_for(beat.exists, "the task to start")
    assert future.cancel()
    with pytest.raises(sky.TaskCancelledError, match=r"^heartbeat\(\) was cancelled on node \d\.$"):
        future.result(10)
    with pytest.raises(sky.TaskCancelledError, match=r"^heartbeat\(\) was cancelled on node \d\.$"):
        future.exception(10)
    assert future.cancelled()
    assert stands_still(beat)


def test_cancelled_queued_task_never_starts(pool: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"

    @sky.function
    def held() -> str:
        while not go.exists():
            time.sleep(0.01)
        return "let go"

    running = [held() > pool for _ in range(2)]
    path = tmp_path / "never"
    future = tasks.append(str(path), "x") > pool
    assert future.cancel()
    with pytest.raises(sky.TaskCancelledError, match="before it started"):
        future.result(10)
    go.touch()
    assert [task.result(30) for task in running] == ["let go", "let go"]
    assert not path.exists()


def test_broadcast_waiting_for_its_first_node_can_be_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "never"
    with sky.Compute(provider=sky.Local(boot_time=1.0), nodes=(0, 1)) as pool:
        future = pool.start(tasks.append(str(path), "x"), on="all").future
        assert future.cancel()
        with pytest.raises(sky.TaskCancelledError, match=r"^append\(\) was cancelled before it started\.$"):
            future.result(30)
        assert tasks.add(1, 2) >> pool == 3
        assert tasks.add(1, 2) @ pool == [3]
    assert not path.exists()


def test_closing_the_pool_is_reported_to_waiting_broadcasts(tmp_path: Path) -> None:
    with sky.Compute(nodes=1) as pool:
        gate = tasks.wait_for_file(str(tmp_path / "never")) > pool
        held = pool.start(tasks.add(1, 2).after(gate), on="all").future
    for future in (held, gate):
        with pytest.raises(sky.PoolClosedError, match="was closed before this task ended"):
            future.result(30)


def test_cancel_after_the_end_changes_nothing(pool: sky.Compute) -> None:
    future = tasks.add(1, 2) > pool
    assert future.result(10) == 3
    assert not future.cancel()
    assert future.result() == 3


def test_cancel_of_a_group_stops_all_of_it(pool: sky.Compute, tmp_path: Path) -> None:
    beats = [tmp_path / "a", tmp_path / "b"]
    future = sky.gather(*(tasks.heartbeat(str(beat), 60) for beat in beats)) > pool
    wait_for(lambda: all(beat.exists() for beat in beats), "both tasks to start")
    future.cancel()
    with pytest.raises(sky.TaskCancelledError):
        future.result(10)
    wait_for(lambda: pool.snapshot().running == 0, "both to stop")
    assert all(stands_still(beat) for beat in beats)


def test_first_error_of_a_group_stops_the_rest(pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    with pytest.raises(ValueError, match="^broken$"):
        sky.gather(tasks.fail("broken"), tasks.heartbeat(str(beat), 60)) >> pool
    wait_for(lambda: pool.snapshot().running == 0, "the other task to stop")


def test_task_that_ignores_interrupts_is_ended_by_force(each_executor: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    future = tasks.stubborn(str(beat), 60) > each_executor
    wait_for(beat.exists, "the task to start")
    future.cancel()
    with pytest.raises(sky.TaskCancelledError):
        future.result(10)
    wait_for(lambda: stands_still(beat), "the task to block")
    assert tasks.add(1, 2) >> each_executor == 3


def test_interrupt_stops_the_task(pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    with (
        pytest.raises(KeyboardInterrupt, match=r"^the work on node \d was stopped$"),
        interrupt_when(beat.exists, "the task to start"),
    ):
        tasks.heartbeat(str(beat), 60) >> pool
    assert stands_still(beat)


@pytest.mark.parametrize(
    "wait",
    [
        lambda pool, path: (tasks.heartbeat(path, 60) > pool).result(),
        lambda pool, path: (tasks.heartbeat(path, 60) > pool).result(60),
        lambda pool, path: (tasks.heartbeat(path, 60) > pool).exception(),
        lambda pool, path: (sky.gather(tasks.heartbeat(path, 60), tasks.sleep(60)) > pool).result(),
        lambda pool, path: pool.start(tasks.heartbeat(path, 60), on="all").future.result(),
    ],
    ids=["result", "with a timeout", "exception", "group", "broadcast"],
)
def test_interrupt_of_the_wait_for_a_future_stops_the_task(
    pool: sky.Compute, tmp_path: Path, wait: Callable[[sky.Compute, str], object]
) -> None:
    beat = tmp_path / "beat"
    with (
        pytest.raises(KeyboardInterrupt, match=r"was cancelled"),
        interrupt_when(lambda: beat.exists() and awaits_future(), "the wait for the running task"),
    ):
        wait(pool, str(beat))
    assert stands_still(beat)
    wait_for(lambda: not pool.snapshot().running, "the slots to be free")


def test_interrupt_of_a_wait_that_leaves_the_task_running_says_so(
    pool: sky.Compute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "GRACE", 0.0)
    beat = tmp_path / "beat"
    with (
        pytest.raises(KeyboardInterrupt, match=r"^stubborn\(\) was asked to stop, and has not confirmed it yet$"),
        interrupt_when(lambda: beat.exists() and awaits_future(), "the wait for the running task"),
    ):
        (tasks.stubborn(str(beat), 60) > pool).result()
    wait_for(lambda: not pool.snapshot().running, "the task to be ended")


def test_second_interrupt_leaves_nothing_running(pool: sky.Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives when the first of many tasks is being stopped."""
    original = Run.cancel
    interrupted: list[threading.Thread] = []

    def cancel(run: Run[Any]) -> bool:
        if not interrupted:
            interrupted.append(threading.current_thread())
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)  # interrupts this thread, if it is that one
        return original(run)

    monkeypatch.setattr(Run, "cancel", cancel)
    with (
        pytest.raises(KeyboardInterrupt),
        interrupt_when(lambda: pool.snapshot().running >= 2, "two tasks to run"),
    ):
        sky.gather(*(tasks.sleep(60) for _ in range(50))) >> pool
    assert threading.main_thread() not in interrupted
    wait_for(lambda: not (pool.snapshot().running or pool.snapshot().queued), "all tasks to end")


@sky.function
def beats(path: str, seconds: float) -> Iterator[None]:
    tasks.heartbeat.fn(path, seconds)
    yield


any_call = pytest.mark.parametrize(
    "send",
    [
        lambda pool, path: tasks.heartbeat(path, 60) >> pool,
        lambda pool, path: tasks.heartbeat(path, 60) > pool,
        lambda pool, path: tasks.heartbeat(path, 60) @ pool,
        lambda pool, path: sky.gather(tasks.heartbeat(path, 60)) >> pool,
        lambda pool, path: sky.gather(tasks.heartbeat(path, 60)) > pool,
        lambda pool, path: sky.gather(tasks.heartbeat(path, 60), stream=True) >> pool,
        lambda pool, path: beats(path, 60) >> pool,
    ],
    ids=["run", "submit", "broadcast", "group", "submitted group", "streamed group", "stream"],
)


@any_call
def test_interrupt_just_after_sending_stops_the_task(
    pool: sky.Compute,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    send: Callable[[sky.Compute, str], object],
) -> None:
    """The task starts before its caller waits for it."""
    beat = tmp_path / "beat"
    tell = background.call_soon

    def interrupted(call: Callable[..., object], *args: object) -> None:
        tell(call, *args)
        if call.__name__ in {"submit", "broadcast"}:
            wait_for(beat.exists, "the task to start")
            raise KeyboardInterrupt

    monkeypatch.setattr(background, "call_soon", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"^the work on (node \d|nodes 0 and 1) was stopped$"):
        send(pool, str(beat))
    assert stands_still(beat)


def test_interrupt_reports_what_a_node_has_not_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "GRACE", 0.0)
    begun = tmp_path / "begun"
    tell = background.call_soon

    def interrupted(call: Callable[..., object], *args: object) -> None:
        tell(call, *args)
        if call.__name__ == "submit":
            wait_for(begun.exists, "the task to start")
            raise KeyboardInterrupt

    with sky.Compute(nodes=1) as pool, monkeypatch.context() as patch:
        patch.setattr(background, "call_soon", interrupted)
        with pytest.raises(KeyboardInterrupt, match="^node 0 was asked to stop the work, and has not confirmed it"):
            ignores_interrupts(str(begun)) >> pool


@contextlib.contextmanager
def interrupted_before_submission(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Interrupt the caller in the block after it has made its futures, and before the pool gets the tasks."""
    monkeypatch.setattr(stopping, "GRACE", 600.0)  # no node confirms what none has got
    tell = background.call_soon

    def interrupted(call: Callable[..., object], *args: object) -> None:
        if call.__name__ in {"submit", "broadcast"}:
            raise KeyboardInterrupt
        tell(call, *args)

    with monkeypatch.context() as patch:
        patch.setattr(background, "call_soon", interrupted)
        yield


@any_call
@pytest.mark.timeout(60)
def test_interrupt_before_submission_ends_without_waiting_for_a_node(
    pool: sky.Compute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, send: Callable[[sky.Compute, str], object]
) -> None:
    beat = tmp_path / "beat"
    with (
        interrupted_before_submission(monkeypatch),
        pytest.raises(KeyboardInterrupt, match="^the work was not started$"),
    ):
        send(pool, str(beat))
    assert tasks.add(1, 2) >> pool == 3
    assert not beat.exists()


@pytest.mark.parametrize("on", ["one", "all"])
@pytest.mark.timeout(60)
def test_cell_interrupted_before_submission_ends_without_waiting_for_a_node(
    pool: sky.Compute, monkeypatch: pytest.MonkeyPatch, on: Literal["one", "all"]
) -> None:
    runs: list[Run[Any]] = []
    with interrupted_before_submission(monkeypatch), pytest.raises(KeyboardInterrupt):
        pool.start(tasks.sleep(60), on=on, runs=runs)
    stopped = stop_runs(runs, 600.0, contextlib.nullcontext())
    assert stopped.text() == "the work had not started on any node."
    assert runs[0].state == "cancelled"


def test_closing_the_pool_ends_running_tasks(tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    pool = sky.Compute(nodes=1, name="brief").open()
    future = tasks.heartbeat(str(beat), 60) > pool
    wait_for(beat.exists, "the task to start")
    pool.close()
    with pytest.raises(sky.PoolClosedError, match="^Pool 'brief' was closed before this task ended"):
        future.result(10)
    assert stands_still(beat)


def test_stuck_thread_does_not_block_another_task(tmp_path: Path) -> None:
    """A sleep on a second thread cannot be interrupted; its slot is replaced and the other task continues."""
    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=2)) as pool:
        beats = [tmp_path / "a", tmp_path / "b"]
        futures = [tasks.heartbeat(str(beat), 60) > pool for beat in beats]
        wait_for(lambda: all(beat.exists() for beat in beats), "both tasks to start")
        futures[0].cancel()
        with pytest.raises(sky.TaskCancelledError):
            futures[0].result(10)
        assert futures[1].running()
        assert not futures[1].done()
        assert tasks.add(1, 2) >> pool == 3
        futures[1].cancel()


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_tasks_of_a_client_that_ignores_sigint_are_interrupted(tmp_path: Path, executor: str) -> None:
    """As with `nohup python script.py &`: its child processes inherit that SIGINT is ignored."""
    script = tmp_path / "script.py"
    script.write_text(
        "import signal, subprocess, time, skyward as sky\n"
        "@sky.function\n"
        "def sleep(): time.sleep(60)\n"
        "@sky.function\n"
        "def of_a_child():\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        "    child.send_signal(signal.SIGINT)\n"
        "    return child.wait()\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
        f"with sky.Compute(nodes=1, worker=sky.Worker(executor={executor!r})) as pool:\n"
        "    try:\n"
        "        sleep().with_timeout(0.3) >> pool\n"
        "    except sky.TaskTimeoutError:\n"
        "        print('stopped', of_a_child().with_timeout(20) >> pool)\n"
    )
    command = f"trap '' INT; exec {sys.executable} {script}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.returncode) == (f"stopped {-signal.SIGINT}\n", 0), done.stderr


@sky.function
def ignores_interrupts(begun: str) -> None:
    Path(begun).touch()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            time.sleep(0.05)


@sky.function
def writes_line(path: str, line: int) -> None:
    with open(path, "a") as file:
        file.write(f"{line}\n")
    time.sleep(0.2)


def test_task_sent_while_its_node_ends_for_an_unresponsive_task_runs_once(tmp_path: Path) -> None:
    path = tmp_path / "ran"
    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=2), retry_on_interruption=0) as pool:
        with pytest.raises(sky.TaskTimeoutError):
            ignores_interrupts(str(tmp_path / "begun")).with_timeout(1) >> pool
        for line in range(5):
            writes_line(str(path), line) >> pool
    assert path.read_text().split() == [str(line) for line in range(5)]
