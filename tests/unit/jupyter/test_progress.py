"""The line of progress: drawn late, in place, and gone at the end."""

import io
import threading
from contextlib import redirect_stderr
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from skyward_jupyter.progress import Progress, meter

pytestmark = pytest.mark.unit


class Drawn:
    """A text that tells when it was asked for the second time: by then the first is on the screen."""

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


class Terminal(io.StringIO):
    """A screen that remembers everything."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def kernel(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    monkeypatch.setattr(shell, "kernel", object(), raising=False)
    monkeypatch.setattr(
        shell.display_pub, "publish", lambda data, transient, update: calls.append((data["text/plain"], update))
    )
    monkeypatch.setattr(shell.display_pub, "clear_output", lambda: calls.append("cleared"))
    return calls


def test_in_a_terminal_it_is_redrawn_and_erased(shell: InteractiveShell) -> None:
    text = Drawn()
    with redirect_stderr(Terminal()) as screen, Progress(shell, text, after=0):
        assert text.twice.wait(10)
    assert screen.getvalue().startswith("\rstep 1")
    assert screen.getvalue().endswith("\r      \r")


def test_in_a_notebook_it_is_updated_and_cleared(shell: InteractiveShell, kernel: list[Any]) -> None:
    text = Drawn()
    with Progress(shell, text, after=0) as progress:
        assert text.twice.wait(10)
        progress.stop()
        progress.stop()
    assert kernel[0] == ("step 1", False)
    assert all(update for _, update in kernel[1:-1])
    assert kernel[-1] == "cleared"
    assert kernel.count("cleared") == 1


def test_what_is_over_soon_shows_nothing(shell: InteractiveShell, kernel: list[Any]) -> None:
    with Progress(shell, Drawn(), after=60):
        pass
    assert kernel == []


@pytest.mark.parametrize("off", ["argument", "environment"])
def test_it_can_be_turned_off(
    shell: InteractiveShell, kernel: list[Any], off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if off == "environment":
        monkeypatch.setenv("SKYWARD_PROGRESS", "off")
    text = Drawn()
    with Progress(shell, text, after=0, enabled=off != "argument"):
        pass
    assert (text.calls, kernel) == (0, [])


def test_without_a_terminal_or_a_kernel_it_shows_nothing(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(shell, Drawn(), after=0):
        pass
    assert capsys.readouterr() == ("", "")


def test_the_meter_counts() -> None:
    assert "3/10" in meter(3, 10, 2.0)
    assert len(meter(9_999, 10_000, 3600.0)) <= 72
