"""The status line of a cell in the background: its progress, and finally its outcome."""

import html
import time
from contextvars import copy_context
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from skyward_jupyter.display.footer import footer_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward.frontends.pools import Run
    from skyward_jupyter.running.handle import CellHandle  # circular: a handle has its line

__all__ = ["StatusLine", "follow"]

_EVERY = 0.25
"""Minimum seconds between two updates."""


def follow(shell: "InteractiveShell", handle: "CellHandle", runs: "list[Run[Any]]", *, footer: bool) -> None:
    """Give `handle` a status line, if the front end can update displays."""
    if hasattr(shell, "kernel"):
        handle.line = StatusLine(shell, handle, runs, footer=footer)
        handle.line.start()


class StatusLine:
    """A display that is updated whenever a run ends. It may be shown several times; all copies are updated.

    Args:
        shell: the shell of the cell.
        handle: the cell.
        runs: the runs of the cell.
        footer: append where it ran, and its cost, in the end.
    """

    def __init__(
        self, shell: "InteractiveShell", handle: "CellHandle", runs: "list[Run[Any]]", *, footer: bool
    ) -> None:
        self._publisher: Any = shell.display_pub
        self._handle = handle
        self._runs = runs
        self._footer = footer
        self._id = uuid4().hex
        self._context = copy_context()
        self._started = time.monotonic()
        self._drawn_at = self._started
        self._seconds: float | None = None
        self._drawing = Lock()
        self._over = Event()
        self._is_due = False
        self._shown = False
        self._confirmed = False

    def start(self) -> None:
        """Start to follow the runs."""
        for run in self._runs:
            run.future.add_done_callback(self._ended)

    def show(self) -> None:
        """Display the line in the current cell."""
        with self._drawing:
            self._shown = True
            self._publish(update=False)

    def _ended(self, _: object) -> None:
        """Update after the end of a run. Called on the library's event loop, so it must not block."""
        if over := self._handle.done():
            self._note_end()
        elif self._is_due:
            return  # the pending update covers it
        self._is_due = not over
        target = self.redraw if over else self._redraw_soon
        Thread(target=self._context.copy().run, args=(target,), name="skyward-line", daemon=True).start()

    def _note_end(self) -> None:
        if self._seconds is None:
            self._seconds = time.monotonic() - self._started
        self._over.set()

    def _redraw_soon(self) -> None:
        """Redraw once the minimum interval has passed, unless all runs have ended by then."""
        if not self._over.wait(max(0.0, self._drawn_at + _EVERY - time.monotonic())):
            self._drawn_at = time.monotonic()
            self._is_due = False
            self.redraw()

    def confirm(self) -> None:
        """Show the outcome from the running cell, once.

        Programs that execute notebooks without a front end (nbclient) take updates only from the cell that is running.
        """
        self._note_end()
        if not self._confirmed:
            self._confirmed = True
            self.redraw()

    def redraw(self) -> None:
        """Update all displays of the line."""
        with self._drawing:
            if self._shown:
                self._publish(update=True)

    def _publish(self, *, update: bool) -> None:
        text = self.text()
        data = {"text/plain": text, "text/html": f'<div style="font-size:90%">{html.escape(text)}</div>'}
        self._publisher.publish(data=data, transient={"display_id": self._id}, update=update)

    def text(self) -> str:
        """Return the current text."""
        handle = self._handle
        title = f"Cell {handle.number} in the background on pool {handle.pool!r}"
        done, total = handle.progress
        if done < total:
            amount = handle.amount
            progress = f"{done} of {total} runs done; " if total > 1 else f"{amount} so far; " if amount else ""
            return f"{title}: {progress}.result() waits for it, .cancel() stops it."
        footer = footer_of(self._runs, self._seconds or 0.0) if self._footer else None
        if footer is not None and footer.tasks == 1:
            footer = replace(footer, failed=0)  # the status says so
        ended = ", ".join(filter(None, (handle.status, handle.amount, "" if footer is None else str(footer))))
        hint = handle.remaining
        return f"{title}: {ended}.{f' {hint}.' if hint else ''}"
