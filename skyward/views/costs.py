"""Table of the costs of machines, as plain text."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skyward.formatting import money_text
from skyward.views.drawing import table

if TYPE_CHECKING:
    from skyward.journal.costs import MachineCosts

__all__ = ["cost_table"]


def cost_table(rows: Sequence["MachineCosts"]) -> str:
    """Return a table with one line per pool and kind of machine, and the sum."""
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
    return table(("since", "pool", "machines of", "number", "hours", "cost"), [*cells, ("", "", "all", "", "", total)])
