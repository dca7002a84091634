"""The line that a cell in the background has in the notebook: how far it is, and what came of it in the end."""

import html
import time
from contextvars import copy_context
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from skyward_jupyter.footer import footer_of

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward.control.run import Run
    from skyward_jupyter.handle import CellHandle

__all__ = ["LiveLine", "follow"]

_EVERY = 0.25
"""Seconds between two updates; the last one is always shown."""


def follow(shell: "InteractiveShell", handle: "CellHandle", runs: "list[Run[Any]]", *, footer: bool) -> None:
    """Give `handle` a line, where the front end can change what it has displayed."""
    if hasattr(shell, "kernel"):
        handle.line = LiveLine(shell, handle, runs, footer=footer)
        handle.line.start()


class LiveLine:
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
        self._shown = False

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
        over, now = self._handle.done(), time.monotonic()
        if over and self._seconds is None:
            self._seconds = now - self._started
        if over or now - self._drawn_at >= _EVERY:
            self._drawn_at = now
            Thread(target=self._context.copy().run, args=(self.redraw,), name="skyward-line", daemon=True).start()

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
