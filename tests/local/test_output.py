"""Output of tasks, live and attributed."""

import os
from pathlib import Path
from typing import Literal

import pytest

import skyward as sky
from tests.local import tasks
from tests.local.conftest import Recorder
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def test_output_is_printed_at_the_client(each_executor: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    tasks.speak("hello") >> each_executor
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("hello\n", "HELLO\n")


def test_broadcast_output_names_its_node(pool: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    tasks.speak("hello") @ pool
    assert sorted(capsys.readouterr().out.splitlines()) == ["[node 0] hello", "[node 1] hello"]


def test_output_is_live(pool: sky.Compute, tmp_path: Path) -> None:
    go = tmp_path / "go"

    @sky.function
    def speak_and_wait() -> None:
        import time

        print("first")
        while not go.exists():
            time.sleep(0.01)
        print("second")

    sink = Recorder()
    run = pool.start(speak_and_wait(), sink=sink)
    wait_for(lambda: sink.text("stdout") == "first\n", "the first line, before the task ends")
    assert not run.future.done()
    go.touch()
    run.future.result(30)
    assert sink.text("stdout") == "first\nsecond\n"


def test_all_output_is_received_when_the_task_is_done(each_executor: sky.Compute) -> None:
    @sky.function
    def chatter() -> None:
        for number in range(5000):
            print(number)

    sink = Recorder()
    each_executor.start(chatter(), sink=sink).future.result(30)
    assert sink.text("stdout") == "".join(f"{number}\n" for number in range(5000))


def test_carriage_returns_are_preserved(pool: sky.Compute) -> None:
    @sky.function
    def progress() -> None:
        for percent in (0, 50, 100):
            print(f"\r{percent} %", end="")

    sink = Recorder()
    pool.start(progress(), sink=sink).future.result(30)
    assert sink.text("stdout") == "\r0 %\r50 %\r100 %"


def test_output_below_python_is_captured(pool: sky.Compute) -> None:
    """Subprocesses and C code write to descriptors."""
    sink = Recorder()
    pool.start(tasks.speak_low("deep"), sink=sink).future.result(30)
    wait_for(lambda: sink.text("stdout") == "deep\ndeep from a shell\n", f"both lines, not {sink.written}")


def test_output_of_a_task_that_raises_precedes_the_error(pool: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    @sky.function
    def fail() -> None:
        print("about to fail")
        raise ValueError("now")

    with pytest.raises(ValueError, match="now"):
        fail() >> pool
    assert capsys.readouterr().out == "about to fail\n"


def test_only_the_output_of_the_head_is_shown(pool: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    @sky.stdout(only="head")
    @sky.function
    def above() -> None:
        print("above")

    @sky.function
    @sky.stdout(only="head")
    def below() -> None:
        print("below")

    above() @ pool
    below() @ pool
    assert capsys.readouterr().out == "[node 0] above\n[node 0] below\n"


def test_silent_drops_all_output(pool: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    sky.silent(tasks.speak)("hush") >> pool
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_large_output_is_bounded_on_the_node(pool: sky.Compute) -> None:
    """A task that prints 64 MB does not keep 64 MB: the node waits for the client."""

    @sky.function
    def flood() -> int:
        import resource

        line = "x" * 1023 + "\n"
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(64 * 1024):
            print(line, end="")
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    sink = Recorder()
    grown = pool.start(flood(), sink=sink).future.result(60)
    assert len(sink.text("stdout")) == 64 * 1024 * 1024
    assert grown < 48 * 1024  # KiB


def test_displays_reach_the_sink(pool: sky.Compute) -> None:
    @sky.function
    def show() -> None:
        from skyward.worker.events.context import current_task

        context = current_task()
        assert context is not None
        context.publish_display({"text/plain": "a figure"}, {}, None, False)

    sink = Recorder()
    pool.start(show(), on=1, sink=sink).future.result(30)
    assert sink.displayed == [(1, {"text/plain": "a figure"})]


def test_one_very_long_text_and_one_very_large_display_arrive(each_executor: sky.Compute) -> None:
    """Each is more than twice the default message limit of the engine."""

    @sky.function
    def say_all_at_once() -> None:
        from skyward.worker.events.context import current_task

        context = current_task()
        assert context is not None
        context.publish_display({"text/html": "x" * 9_000_000}, {}, None, False)
        print("\N{SNOWMAN}" * 3_000_000)

    sink = Recorder()
    each_executor.start(say_all_at_once(), sink=sink).future.result(30)
    assert sink.text("stdout") == "\N{SNOWMAN}" * 3_000_000 + "\n"
    assert [len(data["text/html"]) for _, data in sink.displayed] == [9_000_000]
    assert max(len(text) for _, _, text in sink.written) < 1_000_000, "it blocked later messages"


def test_display_without_a_front_end_is_reported(pool: sky.Compute) -> None:
    @sky.function
    def show() -> None:
        from skyward.worker.events.context import current_task

        context = current_task()
        assert context is not None
        context.publish_display({"text/html": "x" * (80 << 20)}, {}, None, False)

    with pytest.raises(sky.TooLargeError, match="A display of 80.0 MiB cannot be shown; the limit is 64.0 MiB"):
        show() >> pool


def test_tasks_cannot_see_the_secret_of_the_pool(pool: sky.Compute) -> None:
    @sky.function
    def environment() -> set[str]:
        return set(os.environ)

    assert "SKYWARD_SECRETS" not in environment() >> pool


def test_subprocess_has_an_empty_stdin(pool: sky.Compute) -> None:
    @sky.function
    def read() -> bytes:
        import subprocess

        return subprocess.run(["cat"], capture_output=True, timeout=10, check=True).stdout

    assert read() >> pool == b""


def test_broadcast_writes_unfinished_lines(each_executor: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    @sky.function
    def bar() -> None:
        import sys

        print("no newline", end="")
        for percent in (0, 50, 100):
            print(f"\r{percent} %", end="", file=sys.stderr, flush=True)

    bar() @ each_executor
    captured = capsys.readouterr()
    assert sorted(captured.out.splitlines()) == ["[node 0] no newline", "[node 1] no newline"]
    assert sorted(captured.err.splitlines()) == ["[node 0] 100 %", "[node 1] 100 %"]


def test_output_that_cannot_be_shown_ends_nothing(pool: sky.Compute, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorder):
        def output(self, node: int, stream: Literal["stdout", "stderr"], text: str) -> None:
            super().output(node, stream, text)
            raise SystemExit

    broken, sink = Broken(), Recorder()
    run = pool.start(tasks.speak("hello"), sink=broken)
    run.future.result(30)
    pool.start(tasks.speak("hello"), sink=sink).future.result(30)
    assert (len(broken.written), sink.text("stdout")) == (1, "hello\n")
    assert [record.getMessage() for record in caplog.records] == [
        "cannot show the output of tasks any more (SystemExit: ); pool.logs() still has it"
    ]
    assert pool.logs(run.tasks[0], stream="stdout").text == "hello\n"
