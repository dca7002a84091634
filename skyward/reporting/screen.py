"""The terminal of this process, with one status line below the cursor while somebody waits for a pool.

The cursor stays where it was, so a line that was begun is continued after the status line is gone.
"""

import io
import os
import shutil
import sys
import threading
from typing import Any, TextIO

__all__ = ["Screen", "is_terminal", "screen"]

_MAKE_ROOM = "\x1bD\x1b[A"
_BELOW = "\x1b7\x1b[B\r\x1b[2K{}\x1b8"
"""Control sequences of VT100: scroll if there is no line below; go there, erase it, write, and come back."""


class Screen:
    """The status line. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._drawn: TextIO | None = None

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
            if flush and not (isinstance(target, io.IOBase) and target.closed):
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


def is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal that knows control sequences."""
    isatty = getattr(stream, "isatty", None)
    if isatty is None or getattr(stream, "closed", False):
        return False
    return bool(isatty()) and os.environ.get("TERM", "dumb") != "dumb"


screen = Screen()
"""That of this process."""
