"""Live table of a pool in a terminal."""

import threading
from typing import TYPE_CHECKING, TextIO

from skyward.views.static import describe, drawing

if TYPE_CHECKING:
    from skyward.pool.compute import Compute  # circular: a view of a pool, which displays itself

__all__ = ["watch_here"]


def watch_here(pool: "Compute", out: TextIO, every: float) -> None:
    """Draw the pool until it is closed or the user interrupts; only once if `out` is not a terminal."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=out, force_terminal=out.isatty(), force_jupyter=False)
    if not console.is_terminal or console.is_dumb_terminal:
        out.write(f"{describe(pool.report())}\n")
        return
    over = threading.Event()
    pool.when_closed(over.set)
    # Output of tasks is not redirected: `reporting.screen` orders it, and tests for a terminal itself.
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        try:
            while True:
                report = pool.report()
                live.update(drawing(report), refresh=True)
                if report.snapshot.state in ("new", "closed"):
                    return
                over.wait(every)
        except KeyboardInterrupt:
            return
