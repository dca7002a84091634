"""Lines of several nodes: whole, labelled, with bars drawn over themselves; and where they are written."""

import io
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.console import ConsoleSink
from skyward.lines import LabelledLines, last_version

pytestmark = pytest.mark.unit


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


PIECES = st.lists(st.tuples(st.integers(0, 2), st.text("ab\r\n \udc80", max_size=6), st.floats(0, 0.2)), max_size=30)


def screen(written: str) -> str:
    r"""What a terminal shows of `written`: `\r` goes back to the start of the line, and what comes there overwrites."""
    lines = []
    for line in written.split("\n"):
        cells: list[str] = []
        for version in line.split("\r"):
            cells[: len(version)] = version
        lines.append("".join(cells).rstrip())
    return "\n".join(lines).rstrip("\n")


@given(PIECES, st.sampled_from([0, 20, 80]))
def test_a_screen_ends_up_with_the_lines_of_each_node_in_order(
    pieces: list[tuple[int, str, float]], columns: int
) -> None:
    clock = Clock()
    lines = LabelledLines(clock)
    written = ""
    for node, text, later in pieces:
        clock.now += later
        written += lines.add(node, "stdout", text, columns=columns)
    written += lines.finish(columns=columns).get("stdout", "")
    shown = screen(written)
    for node in range(3):
        text = "".join(text for rank, text, _ in pieces if rank == node)
        *whole, rest = map(last_version, text.split("\n"))
        expected = [f"[node {node}] {line}".rstrip() for line in (*whole, *([rest] if rest.strip() else []))]
        assert [line for line in shown.split("\n") if line.startswith(f"[node {node}]")] == expected
    assert lines.finish(columns=columns) == {}


def test_the_bar_of_the_lowest_node_is_live() -> None:
    clock = Clock()
    lines = LabelledLines(clock)
    assert lines.add(1, "stderr", "\r 10%", columns=80) == "[node 1]  10%"
    clock.now += 1
    assert screen("[node 1]  10%" + lines.add(0, "stderr", "\r 5%", columns=80)) == "[node 0]  5% (and 1 more)"
    assert lines.add(0, "stderr", "\r 6%", columns=80) == "", "it was drawn just now"
    assert screen(lines.add(1, "stderr", "\r 100%\n", columns=80)) == "[node 1]  100%\n[node 0]  6%"
    assert screen(lines.finish(0, columns=80)["stderr"]) == "[node 0]  6%"


def test_a_line_without_end_is_bounded() -> None:
    lines = LabelledLines(Clock())
    assert len(lines.add(0, "stdout", "x" * 100_000)) > 100_000
    assert lines.finish() == {}
    for _ in range(100):
        lines.add(0, "stdout", "\r" + "x" * 10_000)
    assert lines.finish() == {"stdout": f"[node 0] {'x' * 10_000}\n"}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252"])
def test_what_a_stream_cannot_encode_is_written_with_escapes(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    ConsoleSink().output(0, "stdout", "é\N{SNOWMAN}\udc80\n")
    written = raw.getvalue().decode(encoding)
    assert written == "é\N{SNOWMAN}\udc80\n".encode(encoding, "backslashreplace").decode(encoding)


def test_a_process_without_streams_takes_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    sink = ConsoleSink(label=True)
    sink.output(0, "stdout", "a\nb")
    sink.flush()


def test_a_line_that_was_not_ended_is_written_when_its_task_ends(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink(label=True)
    sink.output(0, "stdout", "\r 10%\r 100%")
    sink.output(1, "stderr", "no end")
    assert capsys.readouterr() == ("", "")
    sink.task_ended(0)
    assert capsys.readouterr() == ("[node 0]  100%\n", "")
    sink.flush()
    assert capsys.readouterr() == ("", "[node 1] no end\n")


def test_a_terminal_shows_a_bar_while_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out: Any = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    sink = ConsoleSink(label=True)
    sink.output(0, "stderr", "\r 10%")
    assert screen(out.getvalue()) == "[node 0]  10%"
    sink.output(1, "stderr", "a line\n")
    assert screen(out.getvalue()) == "[node 1] a line\n[node 0]  10%"
    sink.output(0, "stderr", "\r 100%\n")
    assert screen(out.getvalue()) == "[node 1] a line\n[node 0]  100%"
