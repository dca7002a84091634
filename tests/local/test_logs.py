"""The log of a pool of real workers: correct attribution, no duplicates, and no loss when a node stops."""

import contextlib
import os
import re
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward.events.output import LogEntry
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def streams(entries: Iterable[LogEntry]) -> dict[tuple[int, str], str]:
    """Return the text of each task's streams, without gaps and duplicates."""
    texts: dict[tuple[int, str], str] = defaultdict(str)
    for entry in entries:
        key = entry.task or -entry.node, entry.stream
        assert entry.offset == len(texts[key]), f"{entry} should begin where its stream had got to"
        texts[key] += entry.text
    return dict(texts)


@pytest.fixture(params=["thread", "process"])
def wide(request: pytest.FixtureRequest) -> Iterator[sky.Compute]:
    """One node with four slots."""
    with sky.Compute(nodes=1, worker=sky.Worker(executor=request.param, concurrency=4)) as pool:
        yield pool


@pytest.fixture(params=["thread", "process"])
def one(request: pytest.FixtureRequest) -> Iterator[sky.Compute]:
    """One node with one slot; the test closes it."""
    with sky.Compute(nodes=1, worker=sky.Worker(executor=request.param)) as pool:
        yield pool


@sky.function
def chatter(name: str, lines: int) -> str:
    import sys

    for number in range(lines):
        print(f"{name} {number}")
        print(f"{name}! {number}", file=sys.stderr)
    return name


def test_each_task_has_its_own_streams(wide: sky.Compute) -> None:
    runs = {name: wide.start(chatter(name, 300)) for name in "abcdefgh"}
    assert [run.future.result(60) for run in runs.values()] == list(runs)
    expected = {}
    for name, run in runs.items():
        (task,) = run.tasks
        expected[task, "stdout"] = "".join(f"{name} {number}\n" for number in range(300))
        expected[task, "stderr"] = "".join(f"{name}! {number}\n" for number in range(300))
    assert streams(wide.logs()) == expected
    task, _ = next(iter(expected))
    assert wide.logs(task=task, stream="stdout").text == expected[task, "stdout"]
    assert wide.logs(task=task, stream="stdout", since=6).text == expected[task, "stdout"][6:]


def test_subprocesses_of_a_process_slot_belong_to_its_task() -> None:
    @sky.function
    def shell(name: str) -> None:
        import subprocess

        for number in range(20):
            subprocess.run(["echo", f"{name} {number}"], check=True)

    with sky.Compute(nodes=1, worker=sky.Worker(executor="process", concurrency=2)) as pool:
        runs = [pool.start(shell(name)) for name in ("left", "right")]
        for run in runs:
            run.future.result(60)
        for run, name in zip(runs, ("left", "right"), strict=True):
            assert pool.logs(task=run.tasks[0]).text == "".join(f"{name} {number}\n" for number in range(20))


def test_log_of_a_broadcast_names_its_nodes(pool: sky.Compute) -> None:
    run = pool.start(chatter("all", 1), on="all")
    run.future.result(60)
    assert sorted(pool.logs(task=task)[0].node for task in run.tasks) == [0, 1]


def test_output_of_the_node_belongs_to_task_0(one: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"

    @sky.function
    def later() -> None:
        import threading
        import time

        def say() -> None:
            while not go.exists():
                time.sleep(0.01)
            print("nobody's")

        threading.Thread(target=say, daemon=True).start()

    run = one.start(later())
    run.future.result(60)
    go.touch()
    wait_for(lambda: one.logs(task=0, node=0).text == "nobody's\n", "the output of a thread after the end of its task")
    assert len(one.logs(task=run.tasks[0])) == 0


def test_output_of_a_task_after_its_end_belongs_to_it(one: sky.Compute) -> None:
    @sky.function
    def later() -> None:
        import contextvars
        import threading

        threading.Timer(0.2, contextvars.copy_context().run, (print, "mine")).start()

    run = one.start(later())
    run.future.result(60)
    wait_for(lambda: one.logs(task=run.tasks[0]).text == "mine\n", "the output of its thread after its end")


def test_follow_streams_the_output_of_a_task(pool: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"

    @sky.function
    def two_steps() -> None:
        import time

        print("first")
        while not go.exists():
            time.sleep(0.01)
        print("second")

    run = pool.start(two_steps())
    everything = pool.follow()
    for entry in everything:
        if entry.text.startswith("first"):
            break
    everything.close()
    assert not run.future.done()
    follower = pool.follow(task=run.tasks[0])
    go.touch()
    assert "".join(entry.text for entry in follower) == "first\nsecond\n"


def test_followers_and_logs_outlive_the_pool() -> None:
    with sky.Compute(nodes=1) as pool:
        chatter("a", 2) >> pool
        follower = pool.follow(stream="stdout")
    assert "".join(entry.text for entry in follower) == "a 0\na 1\n"
    assert pool.logs(stream="stdout").text == "a 0\na 1\n"
    with pytest.raises(sky.PoolClosedError):
        pool.follow()


# No output is lost when a node stops.


@sky.function
def leaves_much_behind(said: str) -> None:
    """Prints in every delayed way: on exit, from C, on a thread and in a process that continue.

    The thread and the process create a file after their last output.
    """
    import atexit
    import ctypes
    import subprocess
    import sys
    import threading

    print("said in time")
    atexit.register(print, "said at exit")
    ctypes.CDLL(None).puts(b"said by C")
    sys.__stdout__.write("said below\n")  # type: ignore[union-attr]  # always set
    subprocess.Popen(["sh", "-c", f"echo said by a process; touch {said}/process; sleep 60"])

    def go_on() -> None:
        for number in range(2000):
            sys.stdout.write(f"said in a thread {number}\n")
        Path(said, "thread").touch()

    threading.Thread(target=go_on).start()


TOLD_LATE = {"said in time", "said at exit", "said by C", "said below", "said by a process"}


def all_said(folder: Path) -> bool:
    return (folder / "process").exists() and (folder / "thread").exists()


def check_nothing_is_lost(pool: sky.Compute, node: int) -> None:
    texts = streams(pool.logs(node=node))
    text = "".join(text for (_, stream), text in texts.items() if stream == "stdout")
    assert [said for said in TOLD_LATE if text.count(said) != 1] == []
    # Output of a process may come between a line and its newline.
    assert re.findall(r"said in a thread (\d+)", text) == [str(number) for number in range(2000)]


def test_closing_a_pool_loses_no_output(one: sky.Compute, tmp_path: Path) -> None:
    leaves_much_behind(str(tmp_path)) >> one
    wait_for(lambda: all_said(tmp_path), "the late output of the task")
    one.close()
    check_nothing_is_lost(one, 0)


def test_scaling_down_loses_no_output(tmp_path: Path) -> None:
    with sky.Compute(nodes=(1, 2), autoscale_idle_timeout=600) as pool:
        pool.resize(2)
        wait_for(lambda: sum(node.state == "active" for node in pool.snapshot().nodes) == 2, "two nodes")
        pool.start(leaves_much_behind(str(tmp_path)), on=1).future.result(60)
        wait_for(lambda: all_said(tmp_path), "the late output of the task")
        pool.resize(1)
        wait_for(lambda: len(pool.snapshot().nodes) == 1, "the second node to be gone")
        check_nothing_is_lost(pool, 1)


def test_closing_a_pool_interrupts_tasks_and_logs_their_last_output(one: sky.Compute) -> None:
    @sky.function
    def work() -> None:
        import time

        try:
            print("working")
            time.sleep(600)
        finally:
            print("cleaned up")

    run = one.start(work())
    wait_for(lambda: one.logs().text == "working\n", "the task to run")
    one.close()
    assert one.logs(task=run.tasks[0]).text == "working\ncleaned up\n"
    with pytest.raises(sky.PoolClosedError):
        run.future.result(0)


def test_queued_task_does_not_start_when_the_pool_is_closed(one: sky.Compute) -> None:
    @sky.function
    def work(name: str) -> None:
        import time

        print(name)
        time.sleep(600)

    runs = [one.start(work(name)) for name in ("first", "second")]
    wait_for(lambda: one.logs().text == "first\n", "the first task to run")
    one.close()
    assert one.logs().text == "first\n"
    assert all(isinstance(run.future.exception(0), sky.PoolClosedError) for run in runs)


def test_output_of_a_process_that_dies_in_a_task_is_complete() -> None:
    @sky.function
    def die() -> None:
        import faulthandler
        import os
        import sys

        for number in range(1000):
            print(f"alive {number}")
        faulthandler.enable(2)
        os.write(2, b"last words\n")
        sys.stdout.flush()
        os.abort()

    pool = sky.Compute(nodes=1, worker=sky.Worker(executor="process", concurrency=2), retry_on_interruption=0)
    with pool:
        run = pool.start(die())
        assert isinstance(run.future.exception(60), sky.NodeLostError)
        texts = streams(pool.logs(task=run.tasks[0]))
    assert texts[run.tasks[0], "stdout"] == "".join(f"alive {number}\n" for number in range(1000))
    assert texts[run.tasks[0], "stderr"].startswith("last words\nFatal Python error: Aborted")


def test_output_of_a_replaced_worker_is_complete() -> None:
    """A task that ignores interrupts costs the process; its earlier output is still complete."""

    @sky.function
    def stubborn() -> None:
        import time

        for number in range(3000):
            print(f"line {number}")
        while True:
            with contextlib.suppress(BaseException):
                while True:
                    time.sleep(0.01)

    @sky.function
    def hello() -> None:
        print("hello")

    with sky.Compute(nodes=1) as pool:
        run = pool.start(stubborn())
        wait_for(lambda: "line 2999\n" in pool.logs().text, "the task to have printed")
        run.future.cancel()
        with pytest.raises(sky.TaskCancelledError):
            run.future.result(60)
        after = pool.start(hello())
        after.future.result(60)
        assert pool.logs(task=run.tasks[0]).text == "".join(f"line {number}\n" for number in range(3000))
        assert pool.logs(task=after.tasks[0]).text == "hello\n"
        streams(pool.logs())


def test_retried_task_continues_its_stream(tmp_path: Path) -> None:
    first = tmp_path / "first"

    @sky.function
    def attempt() -> None:
        import time

        print("begun")
        if not first.exists():
            first.touch()
            time.sleep(600)

    with sky.Compute(nodes=1) as pool:
        process = tasks.pid() >> pool
        run = pool.start(attempt())
        wait_for(lambda: first.exists() and pool.logs().text == "begun\n", "the first attempt to have printed")
        os.kill(process, signal.SIGKILL)
        run.future.result(60)
        (task,) = run.tasks
        assert streams(pool.logs(task=task)) == {(task, "stdout"): "begun\nbegun\n"}


# Resource usage of nodes.


@sky.function
def spin(seconds: float) -> None:
    import time

    block = bytearray(os.urandom(1) * 200_000_000)
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    del block


def test_metrics_are_sent_periodically_and_follow_the_load(one: sky.Compute) -> None:
    wait_for(lambda: one.snapshot().nodes[0].metrics is not None, "the first metrics")
    wait_for(lambda: one.metrics(0)[0][-1].cpu < 0.1, "the node to be idle")
    idle = one.metrics(0)[0][-1]
    assert idle.scope == "processes"
    assert (idle.received, idle.sent, idle.gpus) == (None, None, ())
    assert idle.memory
    assert idle.memory_total
    assert idle.memory < idle.memory_total
    run = one.start(spin(60))
    most = idle.memory + 150_000_000
    wait_for(lambda: any(each.cpu > 0.2 and (each.memory or 0) > most for each in one.metrics(0)[0]), "a busy node")
    run.future.cancel()
    times = [each.at for each in one.metrics()[0]]
    assert times == sorted(times)


def test_metrics_can_be_turned_off() -> None:
    with sky.Compute(nodes=1, metrics_interval=None) as pool:

        @sky.function
        def threads() -> list[str]:
            import threading

            return [thread.name for thread in threading.enumerate()]

        names = threads() >> pool
    assert "skyward-output" in names
    assert "skyward-metrics" not in names
