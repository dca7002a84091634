"""The bill of a pool that is closed."""

from collections.abc import Sequence

from skyward.formatting import count_text, duration_text, money_text
from skyward.journal.costs import MachineCosts

__all__ = ["bill_notice"]

_NOTHING = 0.0001
"""USD below which machines that run on are left out: those just kept warm, whose price their own notice has."""


def bill_notice(name: str, costs: Sequence[MachineCosts]) -> str:
    """Return a notice on the costs of a pool, with a line for each kind of machine if there are several.

    Empty if it cost nothing.
    """
    spent = sum(each.spent for each in costs)
    if not spent:
        return ""
    lines = [_line(each) for each in costs if each.spent >= _NOTHING or not each.running]
    start = f"Pool {name!r} cost {money_text(spent)}"
    if len(lines) == 1:
        return f"{start}: {lines[0]}."
    return "\n  ".join((f"{start}{':' if lines else '.'}", *lines))


def _line(costs: MachineCosts) -> str:
    hours = f"{duration_text(costs.hours * 3600)}{' together' if costs.machines > 1 else ''}"
    return f"{count_text(costs.machines, 'machine')} of {costs.kind}, {hours}, {money_text(costs.spent)}"
