"""Costs of machines, summed from their bills."""

from collections.abc import Iterable
from dataclasses import dataclass

from skyward.journal.entries import BillEntry

__all__ = ["MachineCosts", "summed"]


@dataclass(frozen=True, slots=True)
class MachineCosts:
    """Costs of the machines of one kind in one pool.

    Attributes:
        pool, id: name of the pool, and its unique id.
        kind: provider, type, region and market of the machines, as text.
        machines, running: number of machines, and of those that still cost money.
        hours: hours of all of them together.
        spent: USD.
        began: Unix time of the first one's start. It may be before the time that the others are of.

    Example:
        >>> for one in sky.costs(days=30):
        ...     print(one.pool, one.kind, f"${one.spent:.2f}")
    """

    pool: str
    id: str
    kind: str
    machines: int
    running: int
    hours: float
    spent: float
    began: float


def summed(bills: Iterable[BillEntry], now: float, since: float = 0.0) -> list[MachineCosts]:
    """Return bills as sums over the machines of each pool and kind, the latest pool first.

    Of machines that began before `since`, only the hours from then on count, at the average price of all their hours.
    """
    found: dict[tuple[str, str], list[BillEntry]] = {}
    for bill in bills:
        found.setdefault((bill.pool, bill.kind), []).append(bill)
    sums = [
        MachineCosts(
            pool=same[0].name,
            id=pool,
            kind=kind,
            machines=len({bill.instance for bill in same}),
            running=sum(bill.ended is None for bill in same),
            hours=sum(_seconds(bill, now, since) for bill in same) / 3600,
            spent=sum(bill.until(now) * _part(bill, now, since) for bill in same),
            began=min(bill.began for bill in same),
        )
        for (pool, kind), same in found.items()
    ]
    return sorted(sums, key=lambda one: (-one.began, one.kind))


def _seconds(bill: BillEntry, now: float, since: float) -> float:
    """Return the seconds of a machine from `since` on."""
    return max(0.0, (now if bill.ended is None else bill.ended) - max(bill.began, since))


def _part(bill: BillEntry, now: float, since: float) -> float:
    """Return the part of a machine's time that is not before `since`."""
    whole = _seconds(bill, now, bill.began)
    return _seconds(bill, now, since) / whole if whole else 1.0
