"""Output of tasks on the client, written to the streams of the code that sent them."""

import shutil
import sys
import time
from contextvars import Context, copy_context
from threading import Lock
from typing import Any

from skyward.events.output import StreamName
from skyward.reporting.interleave import LabelledLines, Source
from skyward.reporting.latest_cell import latest_cell
from skyward.reporting.screen import is_notebook, screen

__all__ = ["ConsoleSink", "live_columns"]

_NOTEBOOK = 120
"""Width of a live line in a notebook, which does not report its own."""


class ConsoleSink:
    """Sink that writes to `sys.stdout` and `sys.stderr` in the context of its creation, so in that cell of a notebook.

    With `label`, every line is labelled with its node. With `of_pool`, the output belongs to no task, and goes to the
    latest cell.
    """

    def __init__(self, *, label: bool = False, of_pool: bool = False) -> None:
        self._context: Context = copy_context()
        self._is_of_pool = of_pool
        self._lines = LabelledLines(time.monotonic) if label else None
        self._lock = Lock()

    def output(self, node: int, stream: StreamName, text: str) -> None:
        """Write `text` at once or, with labels, up to its last complete line."""

        def write() -> None:
            if self._lines is None:
                screen.put(stream, text, self)
                return
            with self._lock:
                for piece in self._lines.add(Source(node), stream, text, columns=live_columns):
                    screen.put(*piece, self)

        self._run(write)

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Write the text form of a display."""
        self.output(node, "stdout", f"{data.get('text/plain', '')}\n")

    def task_ended(self, node: int) -> None:
        """Write the open lines of a node."""
        self.flush(node)

    def flush(self, node: int | None = None) -> None:
        """Write the open lines of one node or all."""

        def write() -> None:
            if self._lines is not None:
                source = None if node is None else Source(node)
                with self._lock:
                    for piece in self._lines.finish(source, columns=live_columns):
                        screen.put(*piece, self)

        self._run(write)

    def _run(self, write: Any) -> None:
        # A context cannot be entered concurrently, and two threads may write.
        context = latest_cell(self._context) if self._is_of_pool else self._context.copy()
        context.run(write)


def live_columns(stream: StreamName) -> int:
    r"""Return the width of a line that can be redrawn with `\r`; 0 if that is not possible."""
    target = getattr(sys, stream)
    if is_notebook(target):
        return _NOTEBOOK
    try:
        return shutil.get_terminal_size().columns - 1 if target.isatty() else 0
    except (AttributeError, ValueError):  # not a real file, or closed
        return 0
