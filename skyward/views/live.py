"""Live views of a pool: those of front ends, entry points of the group `skyward.views`, and a table in a terminal."""

import sys
import threading
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, TextIO, cast

from skyward.values import limits
from skyward.values.validation import number
from skyward.views.static import describe, drawing

if TYPE_CHECKING:
    from skyward.pool.compute import Compute  # circular: a view of a pool, which displays itself

__all__ = ["View", "show_live", "watch", "watch_here"]


class View(Protocol):
    """Live view of a front end."""

    def show(self, pool: Any) -> bool:
        """Show a pool live; return False if this front end is not in use, or cannot."""

    def watch(self, pool: Any) -> bool:
        """Show a pool as well as this front end can; return False if it is not in use."""


def show_live(pool: object) -> bool:
    """Show a pool live; return False if no front end can."""
    return any(view.show(pool) for view in _views())


def _watch_live(pool: object) -> bool:
    """Show a pool in the front end in use; return False if there is none."""
    return any(view.watch(pool) for view in _views())


@cache
def _views() -> tuple[View, ...]:
    return tuple(cast("View", each.load()) for each in entry_points(group="skyward.views"))


def watch_here(pool: "Compute", out: TextIO, every: float) -> None:
    """Draw the pool until it is closed or the user interrupts; only once if `out` is not a terminal."""
    from rich.console import Console
    from rich.live import Live

    from skyward.pool.compute import when_closed  # circular: a view of a pool, which displays itself

    console = Console(file=out, force_terminal=out.isatty(), force_jupyter=False)
    if not console.is_terminal or console.is_dumb_terminal:
        out.write(f"{describe(pool.report())}\n")
        return
    over = threading.Event()
    when_closed(pool, over.set)
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


def watch(pool: "Compute", *, every: float = 0.5) -> None:
    """Show a live view of a pool: nodes, tasks, cost and scaling decisions.

    In a notebook, returns at once and updates a view below the cell. In a terminal, updates a table until the pool is
    closed or you press Ctrl-C, which only ends the view. Other output, such as a file, gets the current state once.

    Args:
        every: seconds between updates, in a terminal.

    Raises:
        SpecError: `every` is not a number of seconds.

    Example:
        >>> sky.watch(pool)
    """
    number(every, "every", least=limits.INTERVAL, most=limits.SECONDS)
    if not _watch_live(pool):
        watch_here(pool, sys.stdout, every)
