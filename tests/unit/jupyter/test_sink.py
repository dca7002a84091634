"""Output of nodes: in order, labelled by line, and in the context of its cell."""

import contextvars
import sys
import threading
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from skyward.worker.display.publishing import CLEAR_MIME
from skyward_jupyter.display.sink import CellSink

pytestmark = pytest.mark.unit

type Published = list[dict[str, Any]]


@pytest.fixture
def published(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> Published:
    calls: Published = []
    monkeypatch.setattr(shell.display_pub, "publish", lambda **call: calls.append(call))
    monkeypatch.setattr(shell.display_pub, "clear_output", lambda wait=False: calls.append({"clear": wait}))
    return calls


def test_output_is_passed_through_unchanged(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    sink = CellSink(shell)
    sink.output(0, "stdout", " 10%\r")
    sink.output(0, "stderr", "careful")
    sink.output(0, "stdout", " 20%\r\n")
    sink.finish()
    assert capsys.readouterr() == (" 10%\r 20%\r\n", "careful")


def test_labels_precede_complete_lines(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    sink = CellSink(shell, label=True)
    sink.output(0, "stdout", "one\ntw")
    sink.output(1, "stdout", "other\n")
    sink.output(0, "stderr", "oops\n")
    sink.output(0, "stdout", "o\n\nthree")
    assert capsys.readouterr() == ("[node 0] one\n[node 1] other\n[node 0] two\n[node 0] \n", "[node 0] oops\n")
    sink.finish()
    sink.finish()
    assert capsys.readouterr().out == "[node 0] three\n"


def test_overwritten_line_is_labelled_in_its_last_state(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = CellSink(shell, label=True)
    sink.output(2, "stdout", "10%\r20%\r")
    sink.output(2, "stdout", "30%\n40%\r50%")
    sink.finish()
    assert capsys.readouterr().out == "[node 2] 30%\n[node 2] 50%\n"


def test_unterminated_line_is_not_buffered_forever(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    sink = CellSink(shell, label=True)
    sink.output(0, "stdout", "x" * 100_000)
    assert capsys.readouterr().out == "[node 0] " + "x" * 100_000 + "\n"


def test_displays_keep_their_id_and_data(shell: InteractiveShell, published: Published) -> None:
    sink = CellSink(shell)
    sink.display(0, {"text/html": "<b>1</b>", "text/plain": "1"}, {"a": 1}, "id-1", False)
    sink.display(0, {"text/plain": "2"}, {}, "id-1", True)
    sink.display(0, {"text/plain": "3"}, {}, None, False)
    sink.display(0, {CLEAR_MIME: {"wait": True}}, {}, None, False)
    assert published == [
        {
            "data": {"text/html": "<b>1</b>", "text/plain": "1"},
            "metadata": {"a": 1},
            "transient": {"display_id": "id-1"},
            "update": False,
        },
        {"data": {"text/plain": "2"}, "metadata": {}, "transient": {"display_id": "id-1"}, "update": True},
        {"data": {"text/plain": "3"}, "metadata": {}, "transient": {}, "update": False},
        {"clear": True},
    ]


def test_labelled_display_names_its_node(
    shell: InteractiveShell, published: Published, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = CellSink(shell, label=True)
    sink.display(1, {"text/plain": "42"}, {}, None, False)
    sink.output(1, "stdout", "no end")
    sink.display(1, {"text/html": "<table>", "text/plain": "a\nb"}, {}, None, False)
    assert capsys.readouterr().out == "[node 1] 42\n[node 1] no end\n[node 1]\n"
    assert [call["data"] for call in published] == [{"text/html": "<table>", "text/plain": "a\nb"}]


def test_members_of_a_gang_on_one_node_have_labels_of_their_own(
    shell: InteractiveShell, published: Published, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = CellSink(shell, label=True)
    first, second = sink.of_member(0), sink.of_member(1)
    first.output(3, "stdout", "lo")
    second.output(3, "stdout", "other\nend")
    first.output(3, "stdout", "ss\n")
    second.task_ended(3)
    first.display(3, {"text/html": "<table>", "text/plain": "a\nb"}, {}, None, False)
    assert capsys.readouterr().out == (
        "[node 3, rank 1] other\n[node 3, rank 0] loss\n[node 3, rank 1] end\n[node 3, rank 0]\n"
    )
    assert [call["data"] for call in published] == [{"text/html": "<table>", "text/plain": "a\nb"}]


def test_output_is_written_in_the_context_of_the_cell(shell: InteractiveShell, published: Published) -> None:
    cell = contextvars.ContextVar("cell", default="none")
    seen: list[str] = []

    class Stream:
        def write(self, text: str) -> None:
            seen.append(f"{text} in {cell.get()}")

        def isatty(self) -> bool:
            return False

    cell.set("first")
    sink = CellSink(shell)
    cell.set("second")
    old, sys.stdout = sys.stdout, Stream()
    try:
        thread = threading.Thread(target=sink.output, args=(0, "stdout", "hello"))
        thread.start()
        thread.join()
        sink.output(0, "stdout", "again")
    finally:
        sys.stdout = old
    assert seen == ["hello in first", "again in first"]
