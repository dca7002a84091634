"""Interleaved lines of several nodes: complete, labelled, with redrawn bars; and their streams."""

import io
import itertools
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.events.output import StreamName
from skyward.reporting.interleave import LabelledLines, Piece, Source, last_version
from skyward.reporting.task_output import ConsoleSink
from tests.terminal import Terminal
from tests.unit.reporting.clock import ManualClock

pytestmark = pytest.mark.unit


STREAMS: tuple[StreamName, ...] = ("stdout", "stderr")
WRITTEN = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(STREAMS), st.text("ab\r\n \udc80", max_size=6), st.floats(0, 0.2)),
    max_size=30,
)


def wide(_: StreamName) -> int:
    return 80


def both(pieces: list[Piece]) -> str:
    """Return the text of both streams on one terminal."""
    return "".join(text for _, text in pieces)


def screen(written: str) -> str:
    r"""Return the visible text of `written` on a terminal, where `\r` moves to the start of the line."""
    lines = []
    for line in written.split("\n"):
        cells: list[str] = []
        for version in line.split("\r"):
            cells[: len(version)] = version
        lines.append("".join(cells).rstrip())
    return "\n".join(lines).rstrip("\n")


@given(WRITTEN, st.sampled_from([0, 20, 80]))
def test_terminal_ends_up_with_the_lines_of_each_node_in_order(
    written: list[tuple[int, StreamName, str, float]], width: int
) -> None:
    clock = ManualClock()
    lines = LabelledLines(clock)
    pieces: list[Piece] = []
    expected: dict[int, list[str]] = {0: [], 1: [], 2: []}
    begun: dict[tuple[int, StreamName], str] = {}
    for node, stream, text, later in written:
        clock.now += later
        pieces += lines.add(Source(node), stream, text, columns=lambda _: width)
        *whole, rest = (begun.pop((node, stream), "") + text).split("\n")
        expected[node] += [f"[node {node}] {last_version(line)}".rstrip() for line in whole]
        if rest:
            begun[node, stream] = rest
    last = lines.finish(columns=lambda _: width)
    pieces += last
    for (node, _), rest in begun.items():
        if last_version(rest).strip():
            expected[node].append(f"[node {node}] {last_version(rest)}".rstrip())
    shown = screen(both(pieces)).split("\n")
    for node, ended in expected.items():
        assert [line for line in shown if line.startswith(f"[node {node}]")] == ended
    assert lines.finish(columns=lambda _: width) == []
    assert all(first != second for (first, _), (second, _) in itertools.pairwise(last)), "adjacent pieces are merged"


def test_the_bar_of_the_lowest_node_is_live() -> None:
    clock = ManualClock()
    lines = LabelledLines(clock)
    assert lines.add(Source(1), "stderr", "\r 10%", columns=wide) == [("stderr", "[node 1]  10%")]
    clock.now += 1
    drawn = both(lines.add(Source(0), "stderr", "\r 5%", columns=wide))
    assert screen("[node 1]  10%" + drawn) == "[node 0]  5% (and 1 more)"
    assert lines.add(Source(0), "stderr", "\r 6%", columns=wide) == [], "it was drawn a moment ago"
    assert screen(both(lines.add(Source(1), "stderr", "\r 100%\n", columns=wide))) == "[node 1]  100%\n[node 0]  6%"
    assert screen(both(lines.finish(Source(0), columns=wide))) == "[node 0]  6%"


def test_bar_on_one_stream_is_erased_before_lines_on_the_other() -> None:
    clock = ManualClock()
    lines = LabelledLines(clock)
    bar = lines.add(Source(0), "stderr", "\r 88%", columns=wide)
    ended = lines.add(Source(1), "stdout", "end\n", columns=wide)
    assert [stream for stream, _ in bar + ended] == ["stderr", "stderr", "stdout"]
    assert screen(both(bar + ended)) == "[node 1] end"
    clock.now += 1
    again = lines.add(Source(1), "stdout", "more\n", columns=wide)
    assert again == [("stdout", "[node 1] more\n"), ("stderr", "[node 0]  88%")], "it is due again"
    rest = lines.add(Source(0), "stderr", "\r100%\n", columns=wide)
    rest += lines.add(Source(0), "stdout", "end\n", columns=wide)
    assert screen(both(bar + ended + again + rest)).split("\n") == [
        "[node 1] end",
        "[node 1] more",
        "[node 0] 100%",
        "[node 0] end",
    ]


def test_stream_without_terminal_has_no_live_line() -> None:
    lines = LabelledLines(ManualClock())
    only_stdout = {"stdout": 80, "stderr": 0}.__getitem__
    assert lines.add(Source(0), "stderr", "\r 10%", columns=only_stdout) == []
    assert lines.add(Source(0), "stdout", "a\nb", columns=only_stdout) == [("stdout", "[node 0] a\n[node 0] b")]


def test_open_lines_keep_their_order() -> None:
    lines = LabelledLines(ManualClock())
    lines.add(Source(1), "stdout", "third")
    lines.add(Source(0), "stdout", "first")
    lines.add(Source(0), "stderr", "second")
    assert lines.finish() == [
        ("stdout", "[node 0] first\n"),
        ("stderr", "[node 0] second\n"),
        ("stdout", "[node 1] third\n"),
    ]


def test_open_line_is_bounded() -> None:
    lines = LabelledLines(ManualClock())
    assert len(both(lines.add(Source(0), "stdout", "x" * 100_000))) > 100_000
    assert lines.finish() == []
    for _ in range(100):
        lines.add(Source(0), "stdout", "\r" + "x" * 10_000)
    assert lines.finish() == [("stdout", f"[node 0] {'x' * 10_000}\n")]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252"])
def test_unencodable_characters_are_escaped(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    ConsoleSink().output(0, "stdout", "é\N{SNOWMAN}\udc80\n")
    written = raw.getvalue().decode(encoding)
    assert written == "é\N{SNOWMAN}\udc80\n".encode(encoding, "backslashreplace").decode(encoding)


def test_process_without_streams_ignores_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    sink = ConsoleSink(label=True)
    sink.output(0, "stdout", "a\nb")
    sink.flush()


def test_open_line_is_written_when_its_task_ends(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink(label=True)
    sink.output(0, "stdout", "\r 10%\r 100%")
    sink.output(1, "stderr", "no end")
    assert capsys.readouterr() == ("", "")
    sink.task_ended(0)
    assert capsys.readouterr() == ("[node 0]  100%\n", "")
    sink.flush()
    assert capsys.readouterr() == ("", "[node 1] no end\n")


def test_terminal_shows_a_bar_while_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    out: Any = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    sink = ConsoleSink(label=True)
    sink.output(0, "stderr", "\r 10%")
    assert screen(out.getvalue()) == "[node 0]  10%"
    sink.output(1, "stderr", "a line\n")
    assert screen(out.getvalue()) == "[node 1] a line\n[node 0]  10%"
    sink.output(0, "stderr", "\r 100%\n")
    assert screen(out.getvalue()) == "[node 1] a line\n[node 0]  100%"


def test_members_of_a_gang_on_one_node_are_told_apart() -> None:
    lines = LabelledLines(ManualClock())
    assert lines.add(Source(0, 1), "stdout", "a\nhal") == [("stdout", "[node 0, rank 1] a\n")]
    assert lines.add(Source(0, 0), "stdout", "b\nopen") == [("stdout", "[node 0, rank 0] b\n")]
    assert lines.add(Source(0, 1), "stdout", "f\n") == [("stdout", "[node 0, rank 1] half\n")]
    assert lines.finish(Source(0, 1)) == []
    assert lines.finish(Source(0, 0)) == [("stdout", "[node 0, rank 0] open\n")]
