"""A pool in a terminal: a table that is drawn over itself."""

import shutil
import threading
from typing import TYPE_CHECKING, Final, TextIO

from skyward.views.static import describe

if TYPE_CHECKING:
    from skyward.pool.compute import Compute  # circular: a view of a pool, which displays itself

__all__ = ["watch_here"]

_UP_AND_CLEAR: Final = "\x1b[{}F\x1b[J"
"""Moves to the start of the line so many lines up, and clears what is below."""


def watch_here(pool: "Compute", out: TextIO, every: float) -> None:
    """Draw the pool until it is closed or the user interrupts; once, where `out` is no terminal."""
    if not out.isatty():
        out.write(f"{describe(pool.report())}\n")
        return
    over = threading.Event()
    pool.when_closed(over.set)
    drawn: list[str] = []
    try:
        while True:
            report = pool.report()
            lines = _fitting(describe(report))
            if lines != drawn:
                back = _UP_AND_CLEAR.format(len(drawn)) if drawn else ""
                out.write(f"{back}{'\n'.join(lines)}\n")
                out.flush()
                drawn = lines
            if report.snapshot.state in ("idle", "closed"):
                return
            over.wait(every)
    except KeyboardInterrupt:
        out.write("\n")


def _fitting(text: str) -> list[str]:
    """The lines of a text as the terminal has room for them; what a terminal would take for a command is shown as ?"""
    columns, rows = shutil.get_terminal_size()
    lines = ["".join(c if c.isprintable() else "?" for c in line)[: columns - 1] for line in text.splitlines()]
    return lines if len(lines) < rows else [*lines[: rows - 2], "..."]
