"""Output of scripts, written here: the bytes of one node as they are, the lines of several after the node's rank."""

import codecs
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Final

from skyward.events.output import StreamName
from skyward.reporting.interleave import LabelledLines, Piece, Source
from skyward.reporting.task_output import live_columns

__all__ = ["ScriptOutput"]

_NAMES: Final[Mapping[StreamName, str]] = {"stdout": "standard output", "stderr": "standard error"}


class ScriptOutput:
    """Writer of the output of a script to standard output and standard error; also the sink of its task.

    Args:
        label: True to write lines, each after the rank of its node.
    """

    def __init__(self, *, label: bool) -> None:
        self._lines = LabelledLines(time.monotonic) if label else None
        self._decoders: dict[tuple[int, int], codecs.IncrementalDecoder] = {}
        self._lock = Lock()
        self._has_failed = False

    def write(self, node: int, descriptor: int, data: bytes) -> None:
        """Write what a script wrote to descriptor 1 or 2.

        Raises:
            OSError: it cannot be written, as to a closed pipe. What the stopped script still writes is dropped then.
        """
        with self._lock:
            if self._lines is None:
                self._put([("stdout" if descriptor == 1 else "stderr", data)])
                return
            key = node, descriptor
            if key not in self._decoders:
                self._decoders[key] = codecs.getincrementaldecoder("utf-8")("replace")
            text = self._decoders[key].decode(data)
            stream: StreamName = "stdout" if descriptor == 1 else "stderr"
            self._put_text(self._lines.add(Source(node), stream, text, columns=live_columns))

    def _put_text(self, pieces: list[Piece]) -> None:
        self._put([(stream, text.encode("utf-8", "replace")) for stream, text in pieces])

    def _put(self, pieces: list[tuple[StreamName, bytes]]) -> None:
        for stream, data in pieces:
            target = getattr(sys, stream)
            try:
                target.flush()
                target.buffer.write(data)
                target.buffer.flush()
            except OSError as error:
                self._has_failed = True
                error.filename = _NAMES[stream]
                raise

    def finish(self) -> None:
        """Write the unfinished lines."""
        with self._lock:
            if self._lines is not None and not self._has_failed:
                self._put_text(self._lines.finish(columns=live_columns))

    # The sink of the task: what a stopped script still writes.

    def output(self, node: int, stream: StreamName, text: str) -> None:
        """Write what a stopped script writes, unless nobody reads it any more."""
        if self._has_failed:
            return
        with suppress(OSError):
            self.write(node, 1 if stream == "stdout" else 2, text.encode("utf-8", "replace"))

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Do nothing: a script displays nothing."""

    def task_ended(self, node: int) -> None:
        """Do nothing: unfinished lines are written at the end."""
