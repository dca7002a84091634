"""One line of progress below a cell, updated in place.

In a notebook it is a display of its own, whose last state stays, so that a saved notebook shows what the cell waited
for. In a terminal it is the status line below the cursor, and is erased at the end.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import uuid4

from skyward.frontends.views import count_text, duration_text, is_terminal, opening_quietly, screen, style_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward.frontends.pools import Compute

__all__ = ["Progress", "meter", "opening"]

_EVERY = 0.25


class _Line(Protocol):
    def draw(self, text: str) -> None: ...
    def end(self, last: Callable[[], str]) -> None: ...


class Progress:
    """A progress line that shows `text()` within its context, once that has lasted longer than `after`.

    Args:
        shell: the shell of the cell.
        text: returns the current text; called from another thread.
        last: returns the text that a notebook shows at the end; `text` if None.
        after: seconds before the line is first shown.
        enabled: whether the line is shown at all.
    """

    def __init__(
        self,
        shell: "InteractiveShell",
        text: Callable[[], str],
        last: Callable[[], str] | None = None,
        *,
        after: float = 0.5,
        enabled: bool = True,
    ) -> None:
        self._text = text
        self._last = last or text
        self._after = after
        self._line = _line(shell) if enabled and _is_on() else None
        self._over = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        if self._line is not None:
            drawing = copy_context().run
            self._thread = Thread(target=drawing, args=(self._draw, self._line), name="skyward-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None and self._line is not None:
            self._thread.join()
            self._line.end(self._last)

    def _draw(self, line: _Line) -> None:
        wait = self._after
        while not self._over.wait(wait):
            line.draw(self._text())
            wait = _EVERY


class ProgressSettings(Protocol):
    """The settings of progress lines: see `%config SkyMagics`."""

    @property
    def show_progress(self) -> bool: ...
    @property
    def progress_after(self) -> float: ...


@contextmanager
def opening(
    shell: "InteractiveShell", pool: "Compute", settings: ProgressSettings, *, enabled: bool = True
) -> Iterator[None]:
    """Show the progress of a pool that opens in this context: as a line of a notebook, or on the pool's own console."""
    started = time.monotonic()

    def nodes() -> tuple[int, int]:
        now = pool.snapshot()
        return now.active, now.desired or now.min

    def text() -> str:
        ready, wanted = nodes()
        return f"Opening pool {pool.name!r}: {ready} of {count_text(wanted)} ready, {elapsed()}"

    def last() -> str:
        if not pool.is_open:
            return f"Pool {pool.name!r} was not opened; gave up after {elapsed()}"
        ready, wanted = nodes()
        count = count_text(ready) if ready >= wanted else f"{ready} of {count_text(wanted)}"
        return f"Pool {pool.name!r}: {count} ready in {elapsed()}"

    def elapsed() -> str:
        return duration_text(time.monotonic() - started)

    shown = enabled and settings.show_progress and _is_on()
    in_notebook = style_of(pool.options.console) == "notebook"
    console = nullcontext() if shown else opening_quietly()
    with console, Progress(shell, text, last, after=settings.progress_after, enabled=shown and in_notebook):
        yield


def meter(done: int, total: int, seconds: float) -> str:
    """Return the progress bar of a group of tasks: ` 30%|###       | 3/10 [00:02<00:05,  1.40it/s]`."""
    from tqdm import tqdm  # type: ignore[import-untyped]  # it has no types of its own

    return str(tqdm.format_meter(done, total, seconds, ncols=72, ascii=" -=#"))


def _is_on() -> bool:
    return os.environ.get("SKYWARD_PROGRESS", "on") != "off"


def _line(shell: "InteractiveShell") -> _Line | None:
    if hasattr(shell, "kernel"):
        return _NotebookLine(shell)
    return _TerminalLine() if is_terminal(sys.stderr) else None


class _NotebookLine:
    def __init__(self, shell: "InteractiveShell") -> None:
        self._publisher: Any = shell.display_pub
        self._display_id = uuid4().hex
        self._drawn = False

    def draw(self, text: str) -> None:
        transient = {"display_id": self._display_id}
        self._publisher.publish(data={"text/plain": text}, transient=transient, update=self._drawn)
        self._drawn = True

    def end(self, last: Callable[[], str]) -> None:
        if self._drawn:
            self.draw(last())


class _TerminalLine:
    def draw(self, text: str) -> None:
        screen.draw(text)

    def end(self, last: Callable[[], str]) -> None:
        screen.erase()
