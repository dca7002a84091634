"""Output of `--on all --by-node`: a section for each node, the head's first, instead of interleaved lines."""

import html
import re
import time
from contextvars import copy_context
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from skyward.frontends.cells import CLEAR_MIME
from skyward_jupyter.display.recorder import OutputRecorder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["NodeSections"]

OPEN = 4
"""Maximum number of sections that are all unfolded; of more, only the head's is."""

LONGEST = 1 << 18
"""Maximum number of characters that are kept for each node: the last ones."""

_EVERY = 0.25
_SHARE = 0.1
"""Minimum seconds between two drawings, and the share of the time that drawing may take."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n)")


class NodeSections:
    """One display with the output of a cell on its nodes. Thread-safe.

    In a notebook the display is updated while the cell runs; a terminal shows it at the end.
    """

    def __init__(self, shell: "InteractiveShell") -> None:
        self._shell = shell
        self._live = hasattr(shell, "kernel")
        self._id = uuid4().hex
        self._context = copy_context()
        self._recorders: dict[int, OutputRecorder] = {}
        self._lock = Lock()
        self._drawing = Lock()
        self._draw_from = float("-inf")
        self._drawn = self._changed = False

    def output(self, node: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Add text that a node wrote."""
        self._of(node).text(stream, text)
        self.refresh()

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Add a display of a node, or clear the node's section."""
        if CLEAR_MIME in data:
            self._of(node).clear()
        else:
            self._of(node).display(data, metadata, display_id, update)
        self.refresh()

    def task_ended(self, node: int) -> None:
        """Do nothing: partial lines are drawn at once."""

    def refresh(self) -> None:
        """Redraw if something has changed and the last drawing is not too recent."""
        if self._live and time.monotonic() >= self._draw_from:
            self._draw()

    def finish(self) -> None:
        """Draw the complete output. Idempotent."""
        self._draw()

    def replay(self, publisher: Any) -> None:
        """Show the sections again, in the current cell."""
        publisher.publish(data=self._data(), metadata={})

    def _of(self, node: int) -> OutputRecorder:
        with self._lock:
            self._changed = True
            return self._recorders.setdefault(node, OutputRecorder(LONGEST))

    def _draw(self) -> None:
        with self._drawing:
            with self._lock:
                changed, self._changed = self._changed, False
            if not changed:
                return
            started = time.monotonic()
            publisher: Any = self._shell.display_pub
            transient = {"display_id": self._id} if self._live else {}
            update = self._drawn and self._live
            self._drawn = True
            self._context.copy().run(
                publisher.publish, data=self._data(), metadata={}, transient=transient, update=update
            )
            now = time.monotonic()
            self._draw_from = now + max(_EVERY, (now - started) / _SHARE)

    def _data(self) -> dict[str, str]:
        with self._lock:
            recorders = sorted(self._recorders.items())
        return {
            "text/plain": "\n".join(f"{_title(node)}:\n{_plain(recorder)}".rstrip() for node, recorder in recorders),
            "text/html": "".join(
                f"<details{' open' if len(recorders) <= OPEN or not position else ''}>"
                f'<summary style="cursor:pointer">{_title(node)}</summary>{_rich(recorder)}</details>'
                for position, (node, recorder) in enumerate(recorders)
            ),
        }


def _title(node: int) -> str:
    return f"node {node} (head)" if node == 0 else f"node {node}"


def _plain(recorder: OutputRecorder) -> str:
    parts = []
    for _, content in recorder.pieces():
        parts.append(_legible(content) if isinstance(content, str) else f"{content.get('text/plain', '')}\n")
    return "".join(parts)


def _rich(recorder: OutputRecorder) -> str:
    parts = []
    for stream, content in recorder.pieces():
        if isinstance(content, str):
            style = ' style="color:var(--jp-error-color1,#b71c1c)"' if stream == "stderr" else ""
            parts.append(f"<pre{style}>{html.escape(_legible(content))}</pre>")
        else:
            parts.append(_displayed(content))
    return "".join(parts)


def _displayed(data: "Mapping[str, Any]") -> str:
    """Return the richest form of a display that a section can hold, as HTML."""
    for kind in ("text/html", "image/svg+xml"):
        if kind in data:
            return f"<div>{data[kind]}</div>"
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            return f'<img src="data:{kind};base64,{html.escape(str(data[kind]).strip())}">'
    return f"<pre>{html.escape(str(data.get('text/plain', '')))}</pre>"


def _legible(text: str) -> str:
    r"""Return the final state of the text: without colours, and without parts overwritten with `\r`."""
    return _OVERWRITTEN.sub("", _COLOURS.sub("", text).replace("\r\n", "\n"))
