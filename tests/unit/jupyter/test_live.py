"""The line of a cell in the background follows its runs, whenever they end."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from skyward_jupyter.running.status_line import StatusLine

pytestmark = pytest.mark.unit


class FakeHandle:
    """A cell with a run for each of its futures."""

    number, pool, amount, status = 1, "default", "", "done"

    def __init__(self, runs: int) -> None:
        self.futures = [Future[None]() for _ in range(runs)]

    def done(self) -> bool:
        return all(future.done() for future in self.futures)

    @property
    def progress(self) -> tuple[int, int]:
        return sum(future.done() for future in self.futures), len(self.futures)


class Line:
    """A line that is displayed, and what it has said."""

    def __init__(self, runs: int) -> None:
        self.said: list[str] = []
        self.handle = FakeHandle(runs)
        publisher = SimpleNamespace(publish=lambda data, **_: self.said.append(data["text/plain"]))
        fake: Any = [SimpleNamespace(future=future) for future in self.handle.futures]
        shell: Any = SimpleNamespace(display_pub=publisher)
        handle: Any = self.handle
        self.line = StatusLine(shell, handle, fake, footer=False)
        self.line.start()
        self.line.show()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)


def test_runs_that_end_at_once_are_all_counted_while_another_goes_on() -> None:
    line = Line(4)
    for future in line.handle.futures[:3]:
        future.set_result(None)
    line.wait_until(lambda: "3 of 4 runs are over" in line.said[-1])
    drawn = len(line.said)
    assert drawn <= 3  # and not once for each
    line.handle.futures[3].set_result(None)
    line.wait_until(lambda: line.said[-1].endswith("done. .result() binds what it left."))


def test_the_end_is_shown_once_more_from_the_cell_that_asks_for_the_result() -> None:
    line = Line(1)
    line.handle.futures[0].set_result(None)
    line.wait_until(lambda: len(line.said) == 2)
    for _ in range(2):
        line.line.confirm()
    assert line.said[1:] == ["Cell 1 in the background on pool 'default': done. .result() binds what it left."] * 2
