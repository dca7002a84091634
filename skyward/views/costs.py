"""Table of the costs of machines, as plain text."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skyward.formatting import money_text
from skyward.views.drawing import grid, plain

if TYPE_CHECKING:
    from rich.table import Table

    from skyward.journal.costs import MachineCosts

__all__ = ["cost_grid", "cost_table"]


def cost_table(rows: Sequence["MachineCosts"]) -> str:
    """Return a table with one line per pool and kind of machine, and the sum."""
    return plain(cost_grid(rows))


def cost_grid(rows: Sequence["MachineCosts"]) -> "Table":
    """Return a grid with one line per pool and kind of machine, and the sum, to draw."""
    cells = [
        (
            time.strftime("%Y-%m-%d %H:%M", time.localtime(each.began)),
            each.pool,
            each.kind,
            f"{each.machines}" + (f", {each.running} running" if each.running else ""),
            f"{each.hours:.2f}",
            money_text(each.spent),
        )
        for each in rows
    ]
    total = money_text(sum(each.spent for each in rows))
    return grid(("since", "pool", "machines of", "number", "hours", "cost"), [*cells, ("", "", "all", "", "", total)])
