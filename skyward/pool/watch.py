"""`sky.watch`: a live view of a pool. Views load on first use."""

import sys
from typing import TYPE_CHECKING

from skyward.values import limits
from skyward.values.validation import number

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["watch"]


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
    from skyward.views.live import watch_live
    from skyward.views.terminal import watch_here

    if not watch_live(pool):
        watch_here(pool, sys.stdout, every)
