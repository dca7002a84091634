"""One line of progress under a cell, in place, that is gone when the work is done.

In a terminal it is redrawn with `\\r`. In a notebook it is a display that is updated; it is cleared away with the rest
of the cell's output, so it only stands while the cell has put out nothing else. Nothing of it is in a saved notebook.
"""

import os
import sys
from collections.abc import Callable
from contextvars import copy_context
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import uuid4

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["Progress", "meter"]

_EVERY = 0.25


class _Line(Protocol):
    def draw(self, text: str) -> None: ...
    def erase(self, last: str | None) -> None: ...


class Progress:
    """Shows `text()` while its `with` block lasts, or until `stop()`.

    Args:
        shell: the shell of the cell.
        text: what to show now; called from another thread.
        after: seconds before it is first shown.
        enabled: whether it is shown at all.
        stays: whether a notebook keeps it as it is in the end: what else the cell has put out is not ours to clear.
    """

    def __init__(
        self,
        shell: "InteractiveShell",
        text: Callable[[], str],
        *,
        after: float = 0.5,
        enabled: bool = True,
        stays: bool = False,
    ) -> None:
        self._stays = stays
        self._text = text
        self._after = after
        self._line = _line(shell) if enabled and os.environ.get("SKYWARD_PROGRESS", "on") != "off" else None
        self._over = Event()
        self._drawing = Lock()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        if self._line is not None:
            context = copy_context()
            self._thread = Thread(target=context.run, args=(self._draw,), name="skyward-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """Take the line away, for good. Twice does no harm."""
        with self._drawing:
            if not self._over.is_set():
                self._over.set()
                if self._line is not None:
                    self._line.erase(self._text() if self._stays else None)

    def _draw(self) -> None:
        wait = self._after
        while not self._over.wait(wait):
            text = self._text()
            with self._drawing:
                if self._over.is_set() or self._line is None:
                    return
                self._line.draw(text)
            wait = _EVERY


def meter(done: int, total: int, seconds: float) -> str:
    """How far many tasks are: ` 30%|###       | 3/10 [00:02<00:05,  1.40it/s]`."""
    from tqdm import tqdm  # type: ignore[import-untyped]  # it has no types of its own

    return str(tqdm.format_meter(done, total, seconds, ncols=72, ascii=" -=#"))


def _line(shell: "InteractiveShell") -> _Line | None:
    if hasattr(shell, "kernel"):
        return _NotebookLine(shell)
    return _TerminalLine() if sys.stderr.isatty() else None


class _NotebookLine:
    def __init__(self, shell: "InteractiveShell") -> None:
        self._publisher: Any = shell.display_pub
        self._display_id = uuid4().hex
        self._drawn = False

    def draw(self, text: str) -> None:
        transient = {"display_id": self._display_id}
        self._publisher.publish(data={"text/plain": text}, transient=transient, update=self._drawn)
        self._drawn = True

    def erase(self, last: str | None) -> None:
        if self._drawn and last is not None:
            self.draw(last)
        elif self._drawn:
            self._publisher.clear_output()
            self._drawn = False


class _TerminalLine:
    def __init__(self) -> None:
        self._width = 0

    def draw(self, text: str) -> None:
        sys.stderr.write(f"\r{text.ljust(self._width)}")
        sys.stderr.flush()
        self._width = len(text)

    def erase(self, last: str | None) -> None:
        if self._width:
            sys.stderr.write(f"\r{' ' * self._width}\r")
            sys.stderr.flush()
            self._width = 0
