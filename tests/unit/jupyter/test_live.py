"""The status line of a background cell follows its runs."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from skyward_jupyter.display.footer import Footer
from skyward_jupyter.running.status_line import StatusLine
from tests.waiting import wait_for

pytestmark = pytest.mark.unit


class FakeHandle:
    """A cell with a run for each of its futures."""

    number, pool, amount, status = 1, "default", "", "done"
    remaining = ".result() binds its variables"

    def __init__(self, runs: int) -> None:
        self.futures = [Future[None]() for _ in range(runs)]

    def done(self) -> bool:
        return all(future.done() for future in self.futures)

    @property
    def progress(self) -> tuple[int, int]:
        return sum(future.done() for future in self.futures), len(self.futures)


class Line:
    """A displayed status line, and the texts that it has shown."""

    def __init__(self, runs: int, *, footer: bool = False) -> None:
        self.shown: list[str] = []
        self.handle = FakeHandle(runs)
        publisher = SimpleNamespace(publish=lambda data, **_: self.shown.append(data["text/plain"]))
        fake: Any = [SimpleNamespace(future=future) for future in self.handle.futures]
        shell: Any = SimpleNamespace(display_pub=publisher)
        handle: Any = self.handle
        self.line = StatusLine(shell, handle, fake, footer=footer)
        self.line.start()
        self.line.show()


def test_runs_that_end_together_are_counted_while_another_runs() -> None:
    line = Line(4)
    for future in line.handle.futures[:3]:
        future.set_result(None)
    wait_for(lambda: "3 of 4 runs done" in line.shown[-1], "the status line")
    drawn = len(line.shown)
    assert drawn <= 3  # not once per run
    line.handle.futures[3].set_result(None)
    wait_for(lambda: line.shown[-1].endswith("done. .result() binds its variables."), "the status line")


def test_line_of_a_failed_cell_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    footer = Footer((0,), (), 1.0, failed=1)
    monkeypatch.setattr("skyward_jupyter.running.status_line.footer_of", lambda *_: footer)
    monkeypatch.setattr(FakeHandle, "status", "failed")
    line = Line(1, footer=True)
    line.handle.futures[0].set_result(None)
    wait_for(lambda: line.shown[-1].startswith("Cell 1 in the background on pool 'default': failed, node 0"), "the end")
    assert line.shown[-1].count("failed") == 1


def test_final_state_is_shown_again_from_the_cell_that_requests_the_result() -> None:
    line = Line(1)
    line.handle.futures[0].set_result(None)
    wait_for(lambda: len(line.shown) == 2, "the status line")
    for _ in range(2):
        line.line.confirm()
    assert line.shown[1:] == ["Cell 1 in the background on pool 'default': done. .result() binds its variables."] * 2
