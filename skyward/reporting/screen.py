"""Standard output and error of this process, with a status line below the cursor while a caller waits for a pool.

The cursor does not move, so an unfinished line continues after the status line was erased. A live display of rich
would start on a line of its own, so this one is drawn by hand.

Output to both streams keeps its order. Terminals and files get it at once. A notebook buffers each stream separately
and shows them in separate boxes, so the buffer of one stream is flushed before the other is written to. A Jupyter
server drops messages above a rate limit. If output alternates between the streams faster than that, a notebook gets
both as standard output for a while, in order, after a line that announces it.
"""

import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO
from weakref import WeakSet

from skyward.events.output import StreamName

__all__ = ["ChangeLimit", "Screen", "is_notebook", "is_terminal", "notify", "screen"]

BURST = 500
"""Burst of switches to standard error that a notebook shows. Each costs two messages, there and back."""

PER_SECOND = 150.0
"""Sustained rate of switches per second: a Jupyter server drops output above 1000 messages per second."""

REGAINED = 50
"""Switches that must be available again before the first one is shown after the limit was exceeded."""

_TOGETHER = "\n[stdout and stderr alternate too fast to be shown separately; both are shown here for now, in order]\n"

_MAKE_ROOM = "\x1bD\x1b[A"
_BELOW = "\x1b7\x1b[B\r\x1b[2K{}\x1b8"
"""VT100 control sequences: scroll if there is no line below; move there, erase it, write, and move back."""


class ChangeLimit:
    """Token bucket for switches to standard error in a notebook.

    Args:
        now: returns the seconds of a monotonic clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._left = float(BURST)
        self._at = now()
        self._is_over = False

    def take(self) -> bool:
        """Return whether one more switch may be shown now."""
        now = self._now()
        self._left = min(BURST, self._left + (now - self._at) * PER_SECOND)
        self._at = now
        self._is_over = self._left < (REGAINED if self._is_over else 1)
        if self._is_over:
            return False
        self._left -= 1
        return True


class Screen:
    """Standard streams and status line. Methods may be called from any thread.

    Args:
        now: returns the seconds of a monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.RLock()
        self._drawn: TextIO | None = None
        self._buffering: Any = None
        self._changes = ChangeLimit(now)
        self._notified: WeakSet[object] = WeakSet()

    def put(self, stream: StreamName, text: str, writer: object) -> None:
        """Write `text` to `sys.stdout` or `sys.stderr`, after all earlier output to the other stream.

        Args:
            writer: source of the text. Each writer is notified once that its streams are shown together.

        Raises:
            Exception: any error of the stream.
        """
        if not text:
            return
        with self._lock:
            target = getattr(sys, stream)
            if not is_notebook(target):
                self.write(target, text)
                return
            if stream == "stderr" and self._buffering is sys.stdout and not self._changes.take():
                target = sys.stdout
                if writer not in self._notified:
                    self._notified.add(writer)
                    text = _TOGETHER + text
            if self._buffering is not None and self._buffering is not target:
                self._buffering.flush()
            self._buffering = target
            self.write(target, text, flush=False)  # the kernel flushes a few times per second; waiting for that is slow

    def write(self, target: Any, text: str, *, flush: bool = True) -> None:
        """Write `text` to a stream, with escapes for characters that its encoding lacks.

        Erases the status line first if it is on the same terminal. A stream of None, as under `pythonw`, is ignored.

        Raises:
            Exception: any error of the stream.
        """
        if target is None or not text:
            return
        with self._lock:
            if self._drawn is not None and is_terminal(target):
                self.erase()
            try:
                target.write(text)
            except UnicodeEncodeError:
                encoding = getattr(target, "encoding", None) or "ascii"
                target.write(text.encode(encoding, "backslashreplace").decode(encoding))
            if flush and hasattr(target, "flush") and not (isinstance(target, io.IOBase) and target.closed):
                target.flush()

    def draw(self, text: str) -> None:
        """Draw the status line, replacing the previous one."""
        target = sys.stderr
        columns = shutil.get_terminal_size().columns
        shown = "".join(c if c.isprintable() else "?" for c in text)[: max(1, columns - 1)]
        with self._lock:
            if is_terminal(target):
                target.write(_MAKE_ROOM + _BELOW.format(shown))
                target.flush()
                self._drawn = target

    def erase(self) -> None:
        """Erase the status line. Idempotent."""
        with self._lock:
            drawn, self._drawn = self._drawn, None
            if drawn is not None and is_terminal(drawn):
                drawn.write(_BELOW.format(""))
                drawn.flush()


def is_notebook(stream: object) -> bool:
    """Return whether a stream belongs to a Jupyter kernel."""
    return type(stream).__module__.startswith("ipykernel")


def is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal that supports control sequences."""
    isatty = getattr(stream, "isatty", None)
    if isatty is None or getattr(stream, "closed", False):
        return False
    return bool(isatty()) and os.environ.get("TERM", "dumb") != "dumb"


screen = Screen()
"""The screen of this process."""


def notify(text: str) -> None:
    """Write a line for the user to standard error."""
    sys.stderr.write(f"{text}\n")
