"""Output of tasks at the client: written where the code that sent them writes."""

import sys
import threading
from contextvars import Context, copy_context
from typing import Any, Literal

__all__ = ["ConsoleSink"]

type StreamName = Literal["stdout", "stderr"]


class ConsoleSink:
    """Writes to `sys.stdout` and `sys.stderr` in the context it was made in, so that a notebook shows it in that cell.

    With `label`, every line says which node wrote it.
    """

    def __init__(self, *, label: bool = False) -> None:
        self._context: Context = copy_context()
        self._label = label
        self._open: dict[tuple[int, StreamName], str] = {}
        self._lock = threading.Lock()

    def output(self, node: int, stream: StreamName, text: str) -> None:
        """Write `text`, at once or, with labels, up to its last whole line."""
        if self._label:
            with self._lock:
                text = self._labelled(node, stream, text)
        if text:
            self._write(stream, text)

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Write the text form of a display."""
        self.output(node, "stdout", f"{data.get('text/plain', '')}\n")

    def flush(self) -> None:
        """Write what stands on lines that were not ended."""
        with self._lock:
            rest, self._open = self._open, {}
        for (node, stream), text in rest.items():
            self._write(stream, f"[node {node}] {text}\n")

    def _labelled(self, node: int, stream: StreamName, text: str) -> str:
        whole, newline, rest = (self._open.pop((node, stream), "") + text).rpartition("\n")
        if rest:
            self._open[node, stream] = rest
        if not newline:
            return ""
        return "".join(f"[node {node}] {line}\n" for line in whole.split("\n"))

    def _write(self, stream: StreamName, text: str) -> None:
        def write() -> None:
            target = sys.stdout if stream == "stdout" else sys.stderr
            target.write(text)
            target.flush()

        # A context cannot be entered twice at once, and two threads may write.
        self._context.copy().run(write)
