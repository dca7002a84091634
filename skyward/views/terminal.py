"""Live table of a pool in a terminal."""

import shutil
import threading
from typing import TYPE_CHECKING, Final, TextIO

from skyward.views.static import describe

if TYPE_CHECKING:
    from skyward.pool.compute import Compute  # circular: a view of a pool, which displays itself

__all__ = ["watch_here"]

_UP_AND_CLEAR: Final = "\x1b[{}F\x1b[J"
"""Control sequence that moves up some lines and clears everything below."""


def watch_here(pool: "Compute", out: TextIO, every: float) -> None:
    """Draw the pool until it is closed or the user interrupts; only once if `out` is not a terminal."""
    if not out.isatty():
        out.write(f"{describe(pool.report())}\n")
        return
    over = threading.Event()
    pool.when_closed(over.set)
    drawn: list[str] = []
    try:
        while True:
            report = pool.report()
            lines = _clipped(describe(report))
            if lines != drawn:
                erase = _UP_AND_CLEAR.format(len(drawn)) if drawn else ""
                out.write(f"{erase}{'\n'.join(lines)}\n")
                out.flush()
                drawn = lines
            if report.snapshot.state in ("idle", "closed"):
                return
            over.wait(every)
    except KeyboardInterrupt:
        out.write("\n")


def _clipped(text: str) -> list[str]:
    """Clip a text to the size of the terminal; control characters are replaced by `?`."""
    columns, rows = shutil.get_terminal_size()
    lines = ["".join(c if c.isprintable() else "?" for c in line)[: columns - 1] for line in text.splitlines()]
    return lines if len(lines) < rows else [*lines[: rows - 2], "..."]
