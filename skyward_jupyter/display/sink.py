"""Output of nodes, written into the cell that sent the work."""

import time
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from skyward.frontends.cells import CLEAR_MIME
from skyward.frontends.views import LabelledLines, Source, StreamName, live_columns, screen

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward_jupyter.display.recorder import OutputRecorder

__all__ = ["CellSink", "MemberSink"]


class CellSink:
    """Sink for the output of a cell on its nodes. Thread-safe.

    It writes in the context of the cell, by which Jupyter finds the right cell even if another one runs by then.

    Args:
        shell: the shell of the cell.
        label: whether each line and each display is labelled with its node.
        recorder: records the output; nothing is recorded if None.
    """

    def __init__(
        self,
        shell: "InteractiveShell",
        *,
        label: bool = False,
        recorder: "OutputRecorder | None" = None,
    ) -> None:
        self._recorder = recorder
        self._shell = shell
        self._label = label
        self._context: Context = copy_context()
        self._lines = LabelledLines(time.monotonic) if label else None
        self._lock = Lock()

    def output(self, node: int, stream: StreamName, text: str) -> None:
        """Write text of a node: at once or, with labels, up to its last complete line."""
        self.write(Source(node), stream, text)

    def write(self, source: Source, stream: StreamName, text: str) -> None:
        """Write text of a source, as `output` does."""
        if self._lines is None:
            self._put(stream, text)
            return
        with self._lock:
            for piece in self._lines.add(source, stream, text, columns=self._columns):
                self._put(*piece)

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Show a display of a node."""
        self.show(Source(node), data, metadata, display_id, update=update)

    def show(
        self, source: Source, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, *, update: bool
    ) -> None:
        """Show a display of a source."""
        if CLEAR_MIME in data:
            wait = bool(data[CLEAR_MIME].get("wait"))
            self._run(lambda: self._publisher.clear_output(wait))
            if self._recorder is not None:
                self._recorder.clear()
            return
        if self._label and not update:
            if set(data) == {"text/plain"} and "\n" not in data["text/plain"]:
                self.write(source, "stdout", f"{data['text/plain']}\n")
                return
            is_open = self._lines is not None and self._lines.begun(source, "stdout")
            self.write(source, "stdout", "\n" if is_open else "")
            self._put("stdout", f"{source.label}\n")
        if self._recorder is not None:
            self._recorder.display(data, metadata, display_id, update)
        transient = {"display_id": display_id} if display_id is not None else {}
        self._run(lambda: self._publisher.publish(data=data, metadata=metadata, transient=transient, update=update))

    @property
    def _publisher(self) -> Any:
        return self._shell.display_pub  # looked up each time: `%%capture` replaces it

    def refresh(self) -> None:
        """Do nothing: output is written at once."""

    def task_ended(self, node: int) -> None:
        """Write the incomplete lines of a node."""
        self.finish(Source(node))

    def finish(self, source: Source | None = None) -> None:
        """Write the incomplete lines of one source, or of all."""
        if self._lines is not None:
            with self._lock:
                for piece in self._lines.finish(source, columns=self._columns):
                    self._put(*piece)

    def of_member(self, rank: int) -> "MemberSink":
        """Return the sink of a member of a gang, whose labels have its rank too: members may share a node."""
        return MemberSink(self, rank)

    def _columns(self, stream: StreamName) -> int:
        """Return the width of a live line in characters; 0 if there is none, as with a recorder."""
        return 0 if self._recorder is not None else live_columns(stream)

    def _put(self, stream: StreamName, text: str) -> None:
        if not text:
            return
        if self._recorder is not None:
            self._recorder.text(stream, text)
        self._run(partial(screen.put, stream, text, self))

    def _run(self, write: Callable[[], object]) -> None:
        # A context cannot be entered by two threads at once.
        self._context.copy().run(write)


@dataclass(frozen=True, slots=True)
class MemberSink:
    """Sink for the output of a member of a gang, written to the sink of its cell.

    Attributes:
        cell: the sink of the cell.
        rank: rank of the member in its gang.
    """

    cell: CellSink
    rank: int

    def output(self, node: int, stream: StreamName, text: str) -> None:
        """Write text of the member."""
        self.cell.write(Source(node, self.rank), stream, text)

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Show a display of the member."""
        self.cell.show(Source(node, self.rank), data, metadata, display_id, update=update)

    def task_ended(self, node: int) -> None:
        """Write the incomplete lines of the member."""
        self.cell.finish(Source(node, self.rank))
