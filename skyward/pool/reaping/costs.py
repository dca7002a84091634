"""Costs of machines over the last days, from the journal. Those of local nodes that are gone have ended."""

import time

from skyward.errors import UsageError
from skyward.journal import Journal
from skyward.journal.costs import MachineCosts, summed
from skyward.pool.reaping.orphans import orphans
from skyward.values.validation import shown

__all__ = ["costs"]

_DAY = 86400.0


def costs(days: float = 7) -> list[MachineCosts]:
    """Return the costs of all pools that had machines in the last days, the latest pool first.

    Of machines that began before, only the hours since then count, at their average price. Free ones, such as local
    nodes, are left out.

    Raises:
        UsageError: `days` is no positive number.
        JournalError: the journal cannot be read.

    Example:
        >>> print(f"${sum(one.spent for one in sky.costs(days=7)):.2f} in a week")
    """
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 < days < float("inf"):
        raise UsageError(f"days must be a positive number, as in `sky.costs(days=30)`, but got {shown(days)}.")
    now = time.time()
    since = now - days * _DAY
    orphans()  # has the costs of nodes that are gone end
    with Journal() as journal:
        return summed(journal.bills(since), now, since)
