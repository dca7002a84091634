"""Uses of `sys.stdout` and `sys.stderr` in scripts, in a task: on thread slots, process slots and in cells."""

import sys
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from tests.local import tasks
from tests.local.conftest import Recorder
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def said(pool: sky.Compute, pending: Any, **options: Any) -> Recorder:
    """Run a task; return its output."""
    sink = Recorder()
    pool.start(pending, sink=sink, **options).future.result(30)
    return sink


def test_text_that_cannot_be_encoded_is_written_with_escapes(each_executor: sky.Compute) -> None:
    @sky.function
    def speak() -> int:
        import logging
        import os
        import sys
        import warnings

        print("\udc80", "\ud800x\N{SNOWMAN}")
        print(os.fsdecode(b"caf\xe9.txt"), file=sys.stderr)
        warnings.warn("\udc81", stacklevel=1)
        logging.getLogger("\udc82").error("\udc83")
        return os.getpid()

    sink = Recorder()
    first = each_executor.start(speak(), on=0, sink=sink).future.result(30)
    second = each_executor.start(speak(), on=0, sink=sink).future.result(30)
    assert first == second, "the process has ended"
    assert sink.text("stdout") == "\\udc80 \\ud800x\N{SNOWMAN}\n" * 2
    assert "caf\\udce9.txt\n" in sink.text("stderr")
    assert "\\udc81" in sink.text("stderr")
    assert "\\udc83" in sink.text("stderr")


def test_names_that_cannot_be_encoded_can_be_sent(each_executor: sky.Compute) -> None:
    def work() -> str:
        return "\udc80"

    work.__name__ = work.__qualname__ = "\udc80\ud800"
    assert (sky.function(work)() >> each_executor) == "\udc80"


def test_bytes_keep_their_place_among_text(each_executor: sky.Compute) -> None:
    @sky.function
    def speak() -> None:
        import sys

        for number in range(100):
            print(f"a{number}")
            sys.stdout.buffer.write(b"b%d\n" % number)
            sys.stdout.buffer.flush()
            print(f"c{number}", file=sys.__stdout__)
            sys.stdout.writelines([f"d{number}", "\n"])

    expected = "".join(f"a{n}\nb{n}\nc{n}\nd{n}\n" for n in range(100))
    assert said(each_executor, speak()).text("stdout") == expected


def test_output_below_python_keeps_its_place(each_executor: sky.Compute) -> None:
    @sky.function
    def speak() -> None:
        import os
        import subprocess
        import sys

        for number in range(100):
            print(f"a{number}")
            os.write(1, b"b%d\n" % number)
            os.write(sys.stdout.fileno(), b"c%d\n" % number)
        print("before", flush=True)
        subprocess.run(["sh", "-c", "echo from a shell; echo its end"], stdout=sys.stdout, check=True)
        print("after")

    expected = "".join(f"a{n}\nb{n}\nc{n}\n" for n in range(100)) + "before\nfrom a shell\nits end\nafter\n"
    assert said(each_executor, speak()).text("stdout") == expected


def test_characters_split_between_writes_of_bytes_arrive_whole(each_executor: sky.Compute) -> None:
    @sky.function
    def speak() -> None:
        import sys

        for byte in "\N{SNOWMAN}é\N{GRINNING FACE}".encode():
            sys.stdout.buffer.write(bytes([byte]))
            sys.stderr.write("")
        sys.stdout.buffer.write(b"|\xff|\xe2\x98")
        print("text")
        sys.stdout.buffer.write(b"\xe2\x98")

    bad = "\N{REPLACEMENT CHARACTER}"
    assert said(each_executor, speak()).text("stdout") == f"\N{SNOWMAN}é\N{GRINNING FACE}|{bad}|{bad}text\n{bad}"


def test_streams_act_as_those_of_a_script(each_executor: sky.Compute) -> None:
    @sky.function
    def ask() -> list[Any]:
        import io
        import sys

        out: Any = sys.stdout
        err: Any = sys.stderr
        assert issubclass(type(out), io.TextIOBase)
        assert issubclass(type(out.buffer), io.BufferedIOBase)
        with pytest.raises(TypeError):
            out.write(b"bytes")
        with pytest.raises(TypeError):
            out.buffer.write("text")
        return [
            (out.encoding, out.errors, out.isatty(), out.fileno(), err.fileno(), out.name, err.name),
            (out.writable(), out.readable(), out.seekable(), out.closed, out.line_buffering, out.flush()),
            (out.buffer.write(memoryview(b"12345")), out.buffer.fileno(), out.write("123"), sys.stdin.fileno()),
        ]

    assert ask() >> each_executor == [
        ("utf-8", "backslashreplace", False, 1, 2, "<stdout>", "<stderr>"),
        (True, False, False, False, True, None),
        (5, 1, 3, 0),
    ]


def test_stream_is_reconfigured_for_one_task(each_executor: sky.Compute) -> None:
    @sky.function
    def speak() -> None:
        import sys

        out: Any = sys.stdout
        out.reconfigure(encoding="ascii", errors="replace")
        print("é")
        out.reconfigure(encoding="latin-1", newline="\r\n", line_buffering=False)
        print("é")
        sys.stdout.buffer.write(b"\xe9\n")
        with pytest.raises(UnicodeEncodeError):
            print("\N{SNOWMAN}")
        with pytest.raises(LookupError):
            out.reconfigure(encoding="no such thing")
        assert (out.encoding, out.errors, out.line_buffering) == ("latin-1", "strict", False)

    assert said(each_executor, speak(), on=0).text("stdout") == "?\né\r\né\n"
    assert said(each_executor, tasks.speak("é\udc80"), on=0).text("stdout") == "é\\udc80\n"


def test_stream_is_wrapped_detached_or_closed_for_one_task(each_executor: sky.Compute) -> None:
    @sky.function
    def wrap() -> None:
        import io
        import sys

        sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="replace")
        print("wrapped, and never flushed")

    @sky.function
    def detach() -> None:
        import codecs
        import sys

        old: Any = sys.stdout
        sys.stdout = codecs.getwriter("latin-1")(old.detach())
        print("detached")
        with pytest.raises(ValueError, match="detached"):
            old.write("x")

    @sky.function
    def close() -> None:
        import sys

        print("open")
        sys.stdout.close()
        assert sys.stdout.closed
        with pytest.raises(ValueError, match="closed file"):
            print("closed")

    @sky.function
    def remove() -> None:
        import sys

        print("there")
        sys.stdout = None
        print("gone")

    for task, text in ((wrap, "wrapped, and never flushed\n"), (detach, "detached\n"), (close, "open\n")):
        assert said(each_executor, task(), on=0).text("stdout") == text
        assert said(each_executor, tasks.speak("the next task"), on=0).text("stdout") == "the next task\n"
    assert said(each_executor, remove(), on=0).text("stdout") == "there\n"
    assert said(each_executor, tasks.speak("the next task"), on=0).text("stderr") == "THE NEXT TASK\n"


def test_output_is_redirected_as_in_a_script(each_executor: sky.Compute) -> None:
    @sky.function
    def redirect() -> list[str]:
        import contextlib
        import io
        import logging
        import sys
        from unittest import mock

        class Tee:
            def __init__(self, below: "Any") -> None:
                self.below = below

            def write(self, text: str) -> None:
                self.below.write(text.upper())

            def flush(self) -> None:
                self.below.flush()

        old = sys.stdout
        handler = logging.StreamHandler(old)
        log = logging.getLogger("to stdout")
        log.addHandler(handler)
        out, err, mocked = io.StringIO(), io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            print("captured")
            print("so", file=sys.stderr)
            log.error("logged")
            print("around it", file=sys.__stdout__)
        with mock.patch("sys.stdout", mocked):
            print("mocked")
        sys.stdout = Tee(old)
        print("tee")
        sys.stdout = old
        assert sys.stdout is old
        log.removeHandler(handler)
        print("end")
        return [out.getvalue(), err.getvalue(), mocked.getvalue()]

    sink = Recorder()
    values = each_executor.start(redirect(), sink=sink).future.result(30)
    assert values == ["captured\n", "so\n", "mocked\n"]
    assert (sink.text("stdout"), sink.text("stderr")) == ("logged\naround it\nTEE\nend\n", "")


def test_concurrent_tasks_on_threads_have_their_own_streams() -> None:
    @sky.function
    def captured(number: int) -> str:
        import contextlib
        import io
        import threading

        # Both tasks have entered before either continues.
        barrier = threading.__dict__.setdefault("skyward_test_barrier", threading.Barrier(2))
        out = io.StringIO()
        barrier.wait(20)
        with contextlib.redirect_stdout(out):
            barrier.wait(20)
            for _ in range(200):
                print(number)
            barrier.wait(20)
        print("after", number)
        return out.getvalue()

    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=2, executor="thread")) as pool:
        sinks = Recorder(), Recorder()
        runs = [pool.start(captured(number), sink=sink) for number, sink in enumerate(sinks)]
        values = [run.future.result(30) for run in runs]
    assert values == ["0\n" * 200, "1\n" * 200]
    assert [sink.text("stdout") for sink in sinks] == ["after 0\n", "after 1\n"]


def test_output_of_threads_belongs_to_the_task_that_started_them(tmp_path: Path) -> None:
    folder = tmp_path

    @sky.function
    def prints(number: int) -> None:
        import threading
        from concurrent.futures import ThreadPoolExecutor

        def fail() -> None:
            raise RuntimeError(f"failed {number}")

        def outlive() -> None:
            wait = threading.Event()
            print("before", number)
            (folder / f"printed {number}").touch()
            while not (folder / "ended").exists():
                wait.wait(0.01)
            print("late", number)

        # Both tasks have entered before either continues.
        barrier = threading.__dict__.setdefault("skyward_test_thread_barrier", threading.Barrier(2))
        barrier.wait(20)
        with ThreadPoolExecutor(1) as executor:
            executor.submit(print, "executor", number).result(20)
        failing = threading.Thread(target=fail)
        failing.start()
        failing.join(20)
        threading.Thread(target=outlive, daemon=True).start()
        wait = threading.Event()
        while not (folder / f"printed {number}").exists():
            wait.wait(0.01)
        barrier.wait(20)

    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=2, executor="thread")) as pool:
        sinks = Recorder(), Recorder()
        runs = [pool.start(prints(number), sink=sink) for number, sink in enumerate(sinks)]
        for run in runs:
            run.future.result(30)
        (folder / "ended").touch()
        wait_for(lambda: pool.logs(task=0).text.count("late") == 2, "the output of the threads after their tasks")
    for number, sink in enumerate(sinks):
        assert sink.text("stdout") == f"executor {number}\nbefore {number}\n"
        assert f"RuntimeError: failed {number}" in sink.text("stderr")
        assert f"failed {1 - number}" not in sink.text("stderr")


def test_forked_process_prints(each_executor: sky.Compute) -> None:
    @sky.function
    def fork() -> None:
        import multiprocessing
        import os

        process = multiprocessing.get_context("fork").Process(target=print, args=("forked",))
        process.start()
        process.join()
        if not (child := os.fork()):
            print("\udc80")
            os._exit(0)
        os.waitpid(child, 0)
        print("parent")

    assert said(each_executor, fork()).text("stdout") == "forked\n\\udc80\nparent\n"


def test_faulthandler_writes_to_a_stream(each_executor: sky.Compute) -> None:
    @sky.function
    def dump() -> None:
        import faulthandler
        import sys

        faulthandler.dump_traceback(sys.stderr)
        faulthandler.dump_traceback()

    assert said(each_executor, dump()).text("stderr").count("in dump") == 2


def test_closed_descriptors_are_restored_for_the_next_task(each_executor: sky.Compute) -> None:
    @sky.function
    def close() -> None:
        import os

        os.close(1)
        os.close(2)
        print("python goes on")

    assert said(each_executor, close(), on=0).text("stdout") == "python goes on\n"
    assert said(each_executor, tasks.speak_low("deep"), on=0).text("stdout") == "deep\ndeep from a shell\n"


def test_task_can_return_the_module_sys(each_executor: sky.Compute) -> None:
    @sky.function
    def module() -> Any:
        return sys, lambda: sys

    found, made = module() >> each_executor
    assert found is sys
    assert made() is sys
