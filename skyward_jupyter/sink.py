"""What nodes print and display, put into the cell that asked for it."""

import sys
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from skyward.worker.display import CLEAR_MIME

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward_jupyter.tape import Tape

__all__ = ["CellSink"]

type StreamName = Literal["stdout", "stderr"]

_LONGEST_LINE = 65536


class CellSink:
    """Takes what a cell prints and displays on its nodes. It may be called from any thread.

    The context of the cell is kept: Jupyter finds the right cell by it, also when another cell runs by then.

    Args:
        shell: the shell of the cell.
        label: whether each line, and each display, says which node it is from.
        before: called before the first output of all.
        tape: keeps what is put out; nothing is kept if None.
    """

    def __init__(
        self,
        shell: "InteractiveShell",
        *,
        label: bool = False,
        before: Callable[[], object] | None = None,
        tape: "Tape | None" = None,
    ) -> None:
        self._tape = tape
        self._shell = shell
        self._label = label
        self._before = before
        self._context: Context = copy_context()
        self._begun: dict[tuple[int, StreamName], str] = {}
        self._lock = Lock()

    def output(self, node: int, stream: StreamName, text: str) -> None:
        """Write what a node wrote: at once, or, with labels, up to its last whole line."""
        if self._label:
            with self._lock:
                text = self._labelled(node, stream, text)
        if text:
            self._put(stream, text)

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Display what a node displayed."""
        if CLEAR_MIME in data:
            wait = bool(data[CLEAR_MIME].get("wait"))
            self._run(lambda: self._publisher.clear_output(wait))
            if self._tape is not None:
                self._tape.clear()
            return
        if self._label and not update:
            if set(data) == {"text/plain"} and "\n" not in data["text/plain"]:
                self.output(node, "stdout", f"{data['text/plain']}\n")
                return
            self.output(node, "stdout", "\n" if (node, "stdout") in self._begun else "")
            self._put("stdout", f"[node {node}]\n")
        if self._tape is not None:
            self._tape.display(data, metadata, display_id, update)
        transient = {"display_id": display_id} if display_id is not None else {}
        self._run(lambda: self._publisher.publish(data=data, metadata=metadata, transient=transient, update=update))

    @property
    def _publisher(self) -> Any:
        return self._shell.display_pub  # looked up each time: `%%capture` puts its own in place

    def refresh(self) -> None:
        """Nothing is put together here, so there is nothing to do."""

    def finish(self) -> None:
        """Write what stands on lines that were not ended."""
        with self._lock:
            rest, self._begun = self._begun, {}
        for (node, stream), text in rest.items():
            self._put(stream, f"[node {node}] {_last_version(text)}\n")

    def _put(self, stream: StreamName, text: str) -> None:
        if self._tape is not None:
            self._tape.text(stream, text)
        self._run(partial(_write, stream, text))

    def _labelled(self, node: int, stream: StreamName, text: str) -> str:
        whole, newline, rest = (self._begun.pop((node, stream), "") + text).rpartition("\n")
        if len(rest) > _LONGEST_LINE:
            whole, newline, rest = whole + newline + rest, "\n", ""
        if rest:
            self._begun[node, stream] = rest
        if not newline:
            return ""
        return "".join(f"[node {node}] {_last_version(line)}\n" for line in whole.split("\n"))

    def _run(self, write: Callable[[], object]) -> None:
        def in_cell() -> None:
            before, self._before = self._before, None
            if before is not None:
                before()
            write()

        # A context cannot be entered twice at once, and several threads may write.
        self._context.copy().run(in_cell)


def _last_version(line: str) -> str:
    r"""What is left of a line that was overwritten with `\r`."""
    return line.rstrip("\r").rpartition("\r")[2]


def _write(stream: StreamName, text: str) -> None:
    target = sys.stdout if stream == "stdout" else sys.stderr
    target.write(text)
    if target.isatty():  # a notebook sends what was written a few times a second, and to wait for that is slow
        target.flush()
