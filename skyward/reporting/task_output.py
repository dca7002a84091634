"""Output of tasks at the client: written where the code that sent them writes."""

import shutil
import sys
import time
from contextvars import Context, copy_context
from threading import Lock
from typing import Any

from skyward.reporting.interleave import LabelledLines, StreamName
from skyward.reporting.screen import is_notebook, screen

__all__ = ["ConsoleSink", "live_columns"]

_NOTEBOOK = 120
"""Characters of a live line in a notebook, which does not say how many it shows."""


class ConsoleSink:
    """Writes to `sys.stdout` and `sys.stderr` in the context it was made in, so that a notebook shows it in that cell.

    With `label`, every line says which node wrote it.
    """

    def __init__(self, *, label: bool = False) -> None:
        self._context: Context = copy_context()
        self._lines = LabelledLines(time.monotonic) if label else None
        self._lock = Lock()

    def output(self, node: int, stream: StreamName, text: str) -> None:
        """Write `text`, at once or, with labels, up to its last whole line."""

        def write() -> None:
            if self._lines is None:
                screen.put(stream, text, self)
                return
            with self._lock:
                for piece in self._lines.add(node, stream, text, columns=live_columns):
                    screen.put(*piece, self)

        self._run(write)

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Write the text form of a display."""
        self.output(node, "stdout", f"{data.get('text/plain', '')}\n")

    def task_ended(self, node: int) -> None:
        """Write what stands on lines of a node that were not ended."""
        self.flush(node)

    def flush(self, node: int | None = None) -> None:
        """Write what stands on lines that were not ended, those of one node or all."""

        def write() -> None:
            if self._lines is not None:
                with self._lock:
                    for piece in self._lines.finish(node, columns=live_columns):
                        screen.put(*piece, self)

        self._run(write)

    def _run(self, write: Any) -> None:
        # A context cannot be entered twice at once, and two threads may write.
        self._context.copy().run(write)


def live_columns(stream: StreamName) -> int:
    r"""Return how many characters a line may have that is drawn over itself with `\r`; 0 where that is not possible."""
    target = getattr(sys, stream)
    if is_notebook(target):
        return _NOTEBOOK
    try:
        return shutil.get_terminal_size().columns - 1 if target.isatty() else 0
    except (AttributeError, ValueError):  # it is not quite a file, or is closed
        return 0
