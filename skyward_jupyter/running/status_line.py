"""The line that a cell in the background has in the notebook: how far it is, and what came of it in the end."""

import html
import time
from contextvars import copy_context
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from skyward_jupyter.display.footer import footer_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward.control.act.tasks.run import Run
    from skyward_jupyter.running.handle import CellHandle  # circular: a handle has its line

__all__ = ["StatusLine", "follow"]

_EVERY = 0.25
"""Seconds between two updates; whatever ends in between is shown by one more."""


def follow(shell: "InteractiveShell", handle: "CellHandle", runs: "list[Run[Any]]", *, footer: bool) -> None:
    """Give `handle` a line, where the front end can change what it has displayed."""
    if hasattr(shell, "kernel"):
        handle.line = StatusLine(shell, handle, runs, footer=footer)
        handle.line.start()


class StatusLine:
    """A display that is updated whenever part of the work ends. It may be shown several times; all of them follow.

    Args:
        shell: the shell of the cell.
        handle: the cell.
        runs: its work.
        footer: whether it says in the end where it ran, and what it cost.
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
        """Follow the work from now on."""
        for run in self._runs:
            run.future.add_done_callback(self._ended)

    def show(self) -> None:
        """Display it here."""
        with self._drawing:
            self._shown = True
            self._publish(update=False)

    def _ended(self, _: object) -> None:
        """Part of the work is over. Called on the library's loop, which a large result must not hold up."""
        if over := self._handle.done():
            self._note_end()
        elif self._is_due:
            return  # what waits to be drawn shows it too
        self._is_due = not over
        target = self.redraw if over else self._redraw_soon
        Thread(target=self._context.copy().run, args=(target,), name="skyward-line", daemon=True).start()

    def _note_end(self) -> None:
        if self._seconds is None:
            self._seconds = time.monotonic() - self._started
        self._over.set()

    def _redraw_soon(self) -> None:
        """Redraw as soon as the last time is long enough ago, unless all is over by then."""
        if not self._over.wait(max(0.0, self._drawn_at + _EVERY - time.monotonic())):
            self._drawn_at = time.monotonic()
            self._is_due = False
            self.redraw()

    def confirm(self) -> None:
        """Show what came of the work from the cell that runs now, once.

        What executes notebooks without a front end (nbclient) takes updates only from the cell that it waits for.
        """
        self._note_end()
        if not self._confirmed:
            self._confirmed = True
            self.redraw()

    def redraw(self) -> None:
        """Show how far it is now, where it is displayed."""
        with self._drawing:
            if self._shown:
                self._publish(update=True)

    def _publish(self, *, update: bool) -> None:
        text = self.text()
        data = {"text/plain": text, "text/html": f'<div style="font-size:90%">{html.escape(text)}</div>'}
        self._publisher.publish(data=data, transient={"display_id": self._id}, update=update)

    def text(self) -> str:
        """What it says now."""
        handle = self._handle
        who = f"Cell {handle.number} in the background on pool {handle.pool!r}"
        done, total = handle.progress
        if done < total:
            amount = handle.amount
            far = f"{done} of {total} runs are over; " if total > 1 else f"{amount} so far; " if amount else ""
            return f"{who}: {far}.result() waits for it, .cancel() stops it."
        footer = footer_of(self._runs, self._seconds or 0.0) if self._footer else None
        ended = ", ".join(filter(None, (handle.status, handle.amount, "" if footer is None else str(footer))))
        return f"{who}: {ended}. .result() binds what it left."
