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
        began: Unix time of the first one's start.

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


def summed(bills: Iterable[BillEntry], now: float) -> list[MachineCosts]:
    """Return bills as sums over the machines of each pool and kind, the latest pool first."""
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
            hours=sum((now if bill.ended is None else bill.ended) - bill.began for bill in same) / 3600,
            spent=sum(bill.until(now) for bill in same),
            began=min(bill.began for bill in same),
        )
        for (pool, kind), same in found.items()
    ]
    return sorted(sums, key=lambda one: (-one.began, one.kind))
