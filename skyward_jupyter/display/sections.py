"""The output of `--on all --by-node`: a section for each node, the head's first, instead of lines as they come."""

import html
import re
import time
from contextvars import copy_context
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from skyward.worker.display.display import CLEAR_MIME
from skyward_jupyter.display.recorder import OutputRecorder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["NodeSections"]

OPEN = 4
"""Sections up to which all of them are unfolded; of more, the head's only."""

LONGEST = 1 << 18
"""Characters that are kept of each node, the last ones."""

_EVERY = 0.25
_SHARE = 0.1
"""Seconds between two drawings while the nodes put something out, and the part of the time that drawing may take."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n)")


class NodeSections:
    """Takes what a cell puts out on its nodes, and shows it in one display. It may be called from any thread.

    In a notebook the display changes while the cell runs; a terminal has it in the end.
    """

    def __init__(self, shell: "InteractiveShell") -> None:
        self._shell = shell
        self._live = hasattr(shell, "kernel")
        self._id = uuid4().hex
        self._context = copy_context()
        self._tapes: dict[int, OutputRecorder] = {}
        self._lock = Lock()
        self._drawing = Lock()
        self._draw_from = float("-inf")
        self._drawn = self._changed = False

    def output(self, node: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        """A node wrote."""
        self._of(node).text(stream, text)
        self.refresh()

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """A node displayed something, or took back what it had put out."""
        if CLEAR_MIME in data:
            self._of(node).clear()
        else:
            self._of(node).display(data, metadata, display_id, update)
        self.refresh()

    def task_ended(self, node: int) -> None:
        """Nothing waits here for the end of a line."""

    def refresh(self) -> None:
        """Draw what has changed, unless that was done just now."""
        if self._live and time.monotonic() >= self._draw_from:
            self._draw()

    def finish(self) -> None:
        """The output is complete: draw what has changed since. Twice does no harm."""
        self._draw()

    def replay(self, publisher: Any) -> None:
        """Show it again, in the cell that runs now."""
        publisher.publish(data=self._data(), metadata={})

    def _of(self, node: int) -> OutputRecorder:
        with self._lock:
            self._changed = True
            return self._tapes.setdefault(node, OutputRecorder(LONGEST))

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
            tapes = sorted(self._tapes.items())
        return {
            "text/plain": "\n".join(f"{_title(node)}:\n{_plain(tape)}".rstrip() for node, tape in tapes),
            "text/html": "".join(
                f"<details{' open' if len(tapes) <= OPEN or not position else ''}>"
                f'<summary style="cursor:pointer">{_title(node)}</summary>{_rich(tape)}</details>'
                for position, (node, tape) in enumerate(tapes)
            ),
        }


def _title(node: int) -> str:
    return f"node {node} (head)" if node == 0 else f"node {node}"


def _plain(tape: OutputRecorder) -> str:
    parts = []
    for _, content in tape.pieces():
        parts.append(_legible(content) if isinstance(content, str) else f"{content.get('text/plain', '')}\n")
    return "".join(parts)


def _rich(tape: OutputRecorder) -> str:
    parts = []
    for stream, content in tape.pieces():
        if isinstance(content, str):
            style = ' style="color:var(--jp-error-color1,#b71c1c)"' if stream == "stderr" else ""
            parts.append(f"<pre{style}>{html.escape(_legible(content))}</pre>")
        else:
            parts.append(_displayed(content))
    return "".join(parts)


def _displayed(data: "Mapping[str, Any]") -> str:
    """The richest form of a display that a section can hold."""
    for kind in ("text/html", "image/svg+xml"):
        if kind in data:
            return f"<div>{data[kind]}</div>"
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            return f'<img src="data:{kind};base64,{html.escape(str(data[kind]).strip())}">'
    return f"<pre>{html.escape(str(data.get('text/plain', '')))}</pre>"


def _legible(text: str) -> str:
    r"""The text as it stands in the end: without colours, and without what was overwritten with `\r`."""
    return _OVERWRITTEN.sub("", _COLOURS.sub("", text).replace("\r\n", "\n"))
