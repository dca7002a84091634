"""The progress line: drawn after a delay and in place. A notebook keeps its last state, a terminal erases it."""

import threading
from contextlib import redirect_stderr
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from skyward import events
from skyward.events.bus import EventBus
from skyward.reporting.console import PoolConsole
from skyward_jupyter.display.progress import Progress, meter, opening
from skyward_jupyter.options.settings import CellSettings
from tests.terminal import Terminal
from tests.unit.jupyter.conftest import FakeCompute
from tests.waiting import wait_for

pytestmark = pytest.mark.unit


class Drawn:
    """A text that signals its second call, by which time the first text has been drawn."""

    def __init__(self) -> None:
        self.calls = 0
        self.twice = threading.Event()

    def __call__(self) -> str:
        self.calls += 1
        if self.calls > 1:
            self.twice.set()
        return f"step {self.calls}"


@pytest.fixture(autouse=True)
def _on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKYWARD_PROGRESS", raising=False)


@pytest.fixture
def kernel(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    monkeypatch.setattr(shell, "kernel", object(), raising=False)
    monkeypatch.setattr(
        shell.display_pub, "publish", lambda data, transient, update: calls.append((data["text/plain"], update))
    )
    monkeypatch.setattr(shell.display_pub, "clear_output", lambda *_: calls.append("cleared"))
    return calls


def test_terminal_shows_a_line_below_the_cursor_and_erases_it(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = Drawn()
    with redirect_stderr(Terminal()) as screen, Progress(shell, text, after=0):
        assert text.twice.wait(10)
    restored = "\x1b8"
    first, *_, last = screen.getvalue().split(restored)[:-1]
    assert first.endswith("step 1")
    assert last == "\x1b7\x1b[B\r\x1b[2K", "the line below is erased, and nothing else"
    assert all(part.startswith(("\x1bD\x1b[A\x1b7", "\x1b7")) for part in (first, last)), "the cursor is kept"


def test_notebook_updates_in_place_and_keeps_the_last_state(shell: InteractiveShell, kernel: list[Any]) -> None:
    text = Drawn()
    with Progress(shell, text, lambda: "over", after=0):
        assert text.twice.wait(10)
    first, *updates, last = kernel
    assert first == ("step 1", False)
    assert all(update for _, update in updates)
    assert last == ("over", True)


def test_short_work_shows_no_progress(shell: InteractiveShell, kernel: list[Any]) -> None:
    with Progress(shell, Drawn(), after=60):
        pass
    assert kernel == []


@pytest.mark.parametrize("off", ["argument", "environment"])
def test_progress_can_be_disabled(
    shell: InteractiveShell, kernel: list[Any], off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if off == "environment":
        monkeypatch.setenv("SKYWARD_PROGRESS", "off")
    text = Drawn()
    with Progress(shell, text, after=0, enabled=off != "argument"):
        pass
    assert (text.calls, kernel) == (0, [])


def test_no_progress_without_a_terminal_or_kernel(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(shell, Drawn(), after=0):
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("console", "shown"), [(True, True), ("rich", False), ("minimal", False), ("silent", False), (False, False)]
)
def test_opening_pool_is_shown_unless_its_own_console_shows_it(
    shell: InteractiveShell, kernel: list[Any], compute: type[FakeCompute], console: Any, shown: bool
) -> None:
    pool: Any = compute(name="p", nodes=2, console=console)
    with opening(shell, pool, CellSettings(progress_after=0.0)):
        if shown:
            wait_for(lambda: kernel, "the first drawing")
        pool.open()
    assert bool(kernel) == shown
    if shown:
        assert kernel[0][0].startswith("Opening pool 'p': 2 of 2 nodes ready, 0.")
        assert kernel[-1][0].startswith("Pool 'p': 2 nodes ready in 0.")


@pytest.mark.parametrize("off", ["option", "setting", "environment", ""])
def test_console_of_a_pool_opens_quietly_where_progress_is_off(
    shell: InteractiveShell, compute: type[FakeCompute], off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYWARD_PROGRESS", "off" if off == "environment" else "on")
    pool: Any = compute(name="p", nodes=2)
    lines: list[str] = []
    with opening(shell, pool, CellSettings(show_progress=off != "setting"), enabled=off != "option"):
        bus = EventBus("p")
        PoolConsole("minimal", lambda: None, lines.append).attach(bus)
        bus.emit(events.PoolProvisioning, "local", 2)
        bus.end()
    assert lines == ([] if off else ["skyward: pool 'p': starting 2 nodes (local)\n"])


def test_pool_that_was_not_opened_says_so(
    shell: InteractiveShell, kernel: list[Any], compute: type[FakeCompute]
) -> None:
    pool: Any = compute(name="p")
    with pytest.raises(KeyboardInterrupt), opening(shell, pool, CellSettings(progress_after=0.0)):
        wait_for(lambda: kernel, "the first drawing")
        raise KeyboardInterrupt
    assert kernel[-1][0].startswith("Pool 'p' was not opened; gave up after 0.")


def test_meter_shows_counts_within_one_line() -> None:
    assert "3/10" in meter(3, 10, 2.0)
    assert len(meter(9_999, 10_000, 3600.0)) <= 72
