"""Standard output and error of this process, with one status line below the cursor while somebody waits for a pool.

The cursor stays where it was, so a line that was begun is continued after the status line is gone.

What is written to both streams keeps its order. A terminal and files get it at once. A notebook buffers each stream
apart for a moment and shows them in separate boxes, so what one of them holds is sent before the other is written to. A
server of Jupyter drops messages that come too fast. Where output alternates between the streams faster than that, a
notebook has both as standard output for a while, in order, and a line says so.
"""

import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, TextIO
from weakref import WeakSet

__all__ = ["ChangeLimit", "Screen", "is_notebook", "is_terminal", "notify", "screen"]

type StreamName = Literal["stdout", "stderr"]

BURST = 500
"""Changes to standard error that a notebook shows at any speed. Each is two messages, one there and one back."""

PER_SECOND = 150.0
"""Changes a second that it shows for long: a server of Jupyter drops output beyond 1000 messages a second."""

REGAINED = 50
"""Changes that it must be able to show again before it shows the first of them."""

_TOGETHER = "\n[stdout and stderr alternate too fast to be shown apart: for a while both are shown here, in order]\n"

_MAKE_ROOM = "\x1bD\x1b[A"
_BELOW = "\x1b7\x1b[B\r\x1b[2K{}\x1b8"
"""Control sequences of VT100: scroll if there is no line below; go there, erase it, write, and come back."""


class ChangeLimit:
    """Decides which changes to standard error a notebook shows.

    Args:
        now: gives the time in seconds of a steady clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._left = float(BURST)
        self._at = now()
        self._is_over = False

    def take(self) -> bool:
        """Return whether one more change may be shown now."""
        now = self._now()
        self._left = min(BURST, self._left + (now - self._at) * PER_SECOND)
        self._at = now
        self._is_over = self._left < (REGAINED if self._is_over else 1)
        if self._is_over:
            return False
        self._left -= 1
        return True


class Screen:
    """The standard streams and the status line. Methods may be called from any thread.

    Args:
        now: gives the time in seconds of a steady clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.RLock()
        self._drawn: TextIO | None = None
        self._held: Any = None
        self._changes = ChangeLimit(now)
        self._told: WeakSet[object] = WeakSet()

    def put(self, stream: StreamName, text: str, writer: object) -> None:
        """Write `text` to `sys.stdout` or `sys.stderr`, after all that was put to the other before.

        Args:
            writer: who writes. Among the text of each, a line says once that its streams are shown together.

        Raises:
            Exception: whatever a stream raises that cannot be written to.
        """
        if not text:
            return
        with self._lock:
            target = getattr(sys, stream)
            if not is_notebook(target):
                self.write(target, text)
                return
            if stream == "stderr" and self._held is sys.stdout and not self._changes.take():
                target = sys.stdout
                if writer not in self._told:
                    self._told.add(writer)
                    text = _TOGETHER + text
            if self._held is not None and self._held is not target:
                self._held.flush()
            self._held = target
            self.write(target, text, flush=False)  # it is sent a few times a second; to wait for that is slow

    def write(self, target: Any, text: str, *, flush: bool = True) -> None:
        """Write `text` to a stream, with escapes for what its encoding lacks. None, as under `pythonw`, takes it.

        Erases the status line first if that stands on the same terminal.

        Raises:
            Exception: whatever a stream raises that cannot be written to.
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
        """Draw the status line in place of the one that stands there."""
        target = sys.stderr
        columns = shutil.get_terminal_size().columns
        shown = "".join(c if c.isprintable() else "?" for c in text)[: max(1, columns - 1)]
        with self._lock:
            if is_terminal(target):
                target.write(_MAKE_ROOM + _BELOW.format(shown))
                target.flush()
                self._drawn = target

    def erase(self) -> None:
        """Take the status line away."""
        with self._lock:
            drawn, self._drawn = self._drawn, None
            if drawn is not None and is_terminal(drawn):
                drawn.write(_BELOW.format(""))
                drawn.flush()


def is_notebook(stream: object) -> bool:
    """Return whether a stream is one of a Jupyter kernel."""
    return type(stream).__module__.startswith("ipykernel")


def is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal that knows control sequences."""
    isatty = getattr(stream, "isatty", None)
    if isatty is None or getattr(stream, "closed", False):
        return False
    return bool(isatty()) and os.environ.get("TERM", "dumb") != "dumb"


screen = Screen()
"""That of this process."""


def notify(text: str) -> None:
    """Write a line for the user to standard error."""
    sys.stderr.write(f"{text}\n")
