"""Order of output to both standard streams, also in a notebook, which buffers each of them separately."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import pytest

from skyward.reporting.screen import _TOGETHER, BURST, PER_SECOND, REGAINED, ChangeLimit, Screen
from tests.unit.reporting.clock import ManualClock

pytestmark = pytest.mark.unit


class Sink:
    """Writer of output."""


class NotebookStream(io.StringIO):
    """Stream that buffers text until it is flushed, as in a kernel."""

    def __init__(self, name: str, sent: list[tuple[str, str]]) -> None:
        super().__init__()
        self._name = name
        self._sent = sent

    def flush(self) -> None:
        if text := self.getvalue():
            self._sent.append((self._name, text))
            self.seek(0)
            self.truncate()


NotebookStream.__module__ = "ipykernel.iostream"

type Sent = list[tuple[str, str]]


@contextmanager
def notebook() -> Iterator[Sent]:
    """Replace the standard streams by a notebook's; yield the messages sent, in order."""
    sent: Sent = []
    with redirect_stdout(NotebookStream("stdout", sent)), redirect_stderr(NotebookStream("stderr", sent)):
        yield sent


def flush() -> None:
    """Send the rest of the buffers, in the order of a kernel at the end of a cell."""
    sys.stdout.flush()
    sys.stderr.flush()


def test_notebook_gets_both_streams_in_order() -> None:
    screen, sink = Screen(), Sink()
    with notebook() as sent:
        screen.put("stderr", "\r 88%", sink)
        screen.put("stderr", "\r100%\n", sink)
        screen.put("stdout", "", sink)
        screen.put("stdout", "end\n", sink)
        screen.put("stdout", "really\n", sink)
        screen.put("stderr", "careful\n", sink)
        flush()
    assert sent == [("stderr", "\r 88%\r100%\n"), ("stdout", "end\nreally\n"), ("stderr", "careful\n")]


def test_captured_output_is_written_at_once() -> None:
    class OnlyWrites:
        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> None:
            self.text += text

    screen, sink = Screen(), Sink()
    captured: Any = OnlyWrites()
    with notebook() as sent:
        screen.put("stdout", "shown", sink)
        with redirect_stdout(captured), redirect_stderr(captured):
            screen.put("stderr", "a", sink)
            screen.put("stdout", "b", sink)
            screen.put("stderr", "c", sink)
            with redirect_stdout(None):
                screen.put("stdout", "lost, as under pythonw", sink)
        flush()
    assert (captured.text, sent) == ("abc", [("stdout", "shown")])


def test_output_that_alternates_too_fast_keeps_its_order_after_a_notice() -> None:
    clock = ManualClock()
    screen, sink, other = Screen(clock), Sink(), Sink()
    with notebook() as sent:
        for number in range(1000):
            screen.put("stdout", f"o{number}\n", sink)
            screen.put("stderr", f"e{number}\n", sink)
        flush()
        apart, notice, together = "".join(text for _, text in sent).partition(_TOGETHER)
        assert notice
        assert sent[-1] == ("stdout", f"o{BURST}\n{notice}{together}")
        assert apart == "".join(f"o{number}\ne{number}\n" for number in range(BURST)) + f"o{BURST}\n"
        assert together == f"e{BURST}\n" + "".join(f"o{n}\ne{n}\n" for n in range(BURST + 1, 1000)), (
            "the notice appears once"
        )
        del sent[:]
        screen.put("stderr", "next cell\n", other)
        clock.now += REGAINED / PER_SECOND
        screen.put("stderr", "apart again\n", sink)
        flush()
        assert sent == [("stdout", f"{notice}next cell\n"), ("stderr", "apart again\n")]


def test_switches_are_regained_in_steps() -> None:
    clock = ManualClock()
    limit = ChangeLimit(clock)
    assert all(limit.take() for _ in range(BURST))
    assert not limit.take()
    clock.now += (REGAINED - 1) / PER_SECOND
    assert not limit.take()
    clock.now += 1 / PER_SECOND + 0.001
    assert [limit.take() for _ in range(REGAINED + 1)] == [True] * REGAINED + [False]
    clock.now += 1000
    assert [limit.take() for _ in range(BURST + 1)] == [True] * BURST + [False]
