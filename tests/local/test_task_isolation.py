"""No output, exception, element, result or process action of a task ends anything but that task."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import skyward as sky
from tests.local.conftest import Recorder

pytestmark = pytest.mark.local


TEXTS = st.one_of(
    st.text(st.one_of(st.characters(), st.sampled_from("\udc80\ud800\x00\x1b\r\n\x07\u202e")), max_size=40),
    st.integers(1, 300_000).map(lambda size: "\N{SNOWMAN}" * size),
    st.sampled_from(["\x1b[2J\x1b]0;title\x07", "\r" * 1000, "\0" * 5000, "\udcff" * 5000]),
)
BYTES = st.one_of(st.binary(max_size=40), st.integers(1, 200_000).map(lambda size: b"\xff\xe2" * size))
WAYS = ("print", "stderr", "bytes", "descriptor", "log", "warn", "thread", "display", "environment", "shell")


class Odd:
    """An object that raises on every access."""

    def __repr__(self) -> str:
        raise RuntimeError("\udc80")

    def __reduce__(self) -> Any:
        raise OSError("\udc81")

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return "\ud800"


class OddError(Exception):
    """An exception that raises on every access."""

    def __str__(self) -> str:
        raise SystemExit("\udc80")

    def __repr__(self) -> str:
        raise KeyboardInterrupt

    def __reduce__(self) -> Any:
        raise MemoryError


class RebuiltError(Exception):
    """An exception that cannot be reconstructed at the client."""

    def __reduce__(self) -> Any:
        return _leave, ("\udc80",)


def _leave(_: str) -> None:
    raise SystemExit


def _lying() -> BaseException:
    """Return an exception with a false type whose parts cannot be read."""

    class LyingError(Exception):
        @property  # type: ignore[misc]  # not a valid class
        def __class__(self) -> object:  # type: ignore[override]  # as above
            raise ValueError

        def __getattribute__(self, name: str) -> object:
            raise LookupError(name)

    return LyingError()


def _meta_error() -> BaseException:
    class Meta(type):
        @property
        def __module__(cls) -> str:  # type: ignore[override]  # see OddError
            raise RuntimeError

    made: BaseException = Meta("OddError", (Exception,), {})("\ud800")
    return made


def _noted() -> BaseException:
    error = ModuleNotFoundError("\udc80", name="\udc81")
    error.add_note("\ud800")
    error.__notes__.append(5)  # type: ignore[arg-type]  # see OddError
    error.__cause__ = OddError()
    return ExceptionGroup("\udc82", [error, _lying(), UnicodeEncodeError("utf-8", "\udc80", 0, 1, "\udc80")])  # type: ignore[type-var]  # all are exceptions


def _odd_class() -> type:
    return Odd


ERRORS: dict[str, Callable[[], BaseException]] = {
    "odd": OddError,
    "lying": _lying,
    "rebuilt": RebuiltError,
    "meta": _meta_error,
    "noted": _noted,
    "exit": lambda: SystemExit("\udc80"),
    "interrupt": KeyboardInterrupt,
    "stop": StopIteration,
    "generator": GeneratorExit,
    "base": BaseException,
    "nameless": lambda: ModuleNotFoundError(name=Odd()),  # type: ignore[arg-type]  # see OddError
}


def speak(ways: list[tuple[str, Any, Any]]) -> None:
    """Write each text and each bytes object, with every method."""
    import logging
    import subprocess
    import sys
    import threading
    import warnings

    from skyward.worker.display.publishing import display, publish_display_data

    for way, text, data in ways:
        match way:
            case "print":
                print(text, end="")
            case "stderr":
                print(text, file=sys.stderr)
            case "bytes":
                sys.stdout.buffer.write(data)
            case "descriptor":
                os.write(1, data)
            case "log":
                logging.getLogger(text).error(text)
            case "warn":
                warnings.warn(text, stacklevel=1)
            case "thread":
                with contextlib.suppress(ValueError, UnicodeEncodeError):
                    thread = threading.Thread(target=print, args=(text,), name=text)
                    thread.start()
                    thread.join()
            case "display":
                display(text, Odd(), {text: data})
                publish_display_data({text: data, "text/html": Odd}, {text: {1, 2}})
            case "environment":
                with contextlib.suppress(ValueError, UnicodeEncodeError):
                    os.environ[f"ODD_{text[:20]}"] = text[:1000]
            case "shell":
                subprocess.run(["cat"], input=data, check=True)


@sky.function
def say(ways: list[tuple[str, Any, Any]], error: Any) -> str:
    speak(ways)
    if error is not None:
        raise error()
    return "\udc80"


@sky.function
def yield_all(texts: list[str], error: Any) -> Iterator[Any]:
    yield from texts
    if error is not None:
        raise error()


@sky.function
def give(odd: Any) -> Any:
    return odd()


@sky.function
def process() -> int:
    """Return the process that runs the task, or serves its slot."""
    return os.getppid() if os.environ.get("SKYWARD_WORKER_EXECUTOR") == "process" else os.getpid()


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(WAYS), TEXTS, BYTES), max_size=4),
    st.lists(TEXTS, max_size=3),
    st.one_of(st.none(), st.sampled_from(sorted(ERRORS))),
)
def test_output_of_a_task_ends_nothing_else(
    slots: sky.Compute, ways: list[tuple[str, Any, Any]], texts: list[str], failure: str | None
) -> None:
    error = None if failure is None else ERRORS[failure]
    before = process() >> slots
    sink = Recorder()
    run = slots.start(say(ways, error), sink=sink)
    neighbour = slots.start(yield_all(texts, None), sink=sink)
    stream = slots.start(yield_all(texts, error), sink=sink)
    assert list(neighbour.items()) == texts
    if error is None:
        assert run.future.result(30) == "\udc80"
        assert list(stream.items()) == texts
    else:
        assert run.future.exception(30) is not None
        with pytest.raises(BaseException):  # noqa: B017, PT011  # any error, depending on the raised exception
            list(stream.items())
    for text in (text for _, _, text in sink.written):
        text.encode()
    assert process() >> slots == before, "the node was lost"


@pytest.mark.parametrize("odd", [Odd, OddError, _lying, _odd_class])
def test_results_of_a_task_end_nothing_else(slots: sky.Compute, odd: Callable[[], Any]) -> None:
    before = process() >> slots
    with contextlib.suppress(BaseException):
        give(odd) >> slots
    assert process() >> slots == before


def replace_clocks() -> None:
    import json
    import threading
    import time

    replaced: dict[Any, tuple[str, ...]] = {
        time: ("monotonic", "perf_counter", "time", "sleep"),
        json: ("dumps", "loads"),
        threading: ("Thread",),
        os: ("write", "read"),
    }
    for module, names in replaced.items():
        for name in names:
            setattr(module, name, lambda *_: 0.0)


def replace_streams() -> None:
    import sys

    for name in ("stdin", "stdout", "stderr", "excepthook", "unraisablehook", "displayhook"):
        setattr(sys, name, None)
        setattr(sys, f"__{name}__", None)


def close_descriptors() -> None:
    for descriptor in range(3):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def leave_the_folder() -> None:
    import tempfile

    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def empty_the_environment() -> None:
    import locale

    os.environ.clear()
    os.environ["LC_ALL"] = os.environ["PYTHONIOENCODING"] = "no such thing"
    locale.setlocale(locale.LC_ALL, "C")


DEEDS = (replace_streams, close_descriptors, leave_the_folder, empty_the_environment, replace_clocks)


@sky.function
def do(deed: Callable[[], None]) -> str:
    deed()
    return "done"


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_process_actions_of_a_task_end_nothing_else(executor: Any) -> None:
    @sky.function
    def use(data: bytes) -> tuple[int, str]:
        print("still here")
        return len(data), os.path.join("a", "b")

    @sky.function(timeout=0.5)
    def too_long() -> None:
        while True:
            pass

    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=1, executor=executor)) as pool:
        for deed in DEEDS:
            sink = Recorder()
            assert pool.start(do(deed)).future.result(30) == "done"
            assert pool.start(use(bytes(200_000)), sink=sink).future.result(30) == (200_000, "a/b")
            assert sink.text("stdout") == "still here\n", deed
            with pytest.raises(sky.TaskTimeoutError):
                too_long() >> pool
        # A worker that receives its interrupt late, on a busy machine, asks to be restarted: status 75.
        assert not [each for each in pool.decisions() if "lost" in each.reason and "status 75" not in each.reason]


def remove_clocks() -> None:
    import threading
    import time

    time.monotonic = None  # type: ignore[assignment]  # see OddError
    time.sleep = None  # type: ignore[assignment]  # see OddError
    threading.Timer = threading.Thread = None  # type: ignore[assignment, misc]  # see OddError


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize("deed", [replace_clocks, remove_clocks])
def test_node_takes_its_first_large_argument_after_a_task_has_replaced_modules(
    deed: Callable[[], None], executor: Any
) -> None:
    """The connection that carries it is opened then."""

    @sky.function
    def size(data: bytes) -> int:
        return len(data)

    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=1, executor=executor)) as pool:
        assert pool.start(do(deed)).future.result(30) == "done"
        assert pool.start(size(os.urandom(1_000_000))).future.result(30) == 1_000_000
        assert not [each for each in pool.decisions() if "lost" in each.reason]
