"""Costs of a pool's machines: spent so far, and committed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from skyward.formatting import money_text

__all__ = ["DRAIN_RESERVE", "Ledger", "budget_parts", "can_be_attached", "unaffordable"]

DRAIN_RESERVE = 60.0
"""Seconds of running that each machine is committed for: about what draining it takes."""

STOP_RESERVE = 20.0
"""Seconds of running that are reserved for stopping the tasks of a machine, and for returning what they leave."""

TERMINATION_RESERVE = 10.0
"""Seconds of running that are reserved for terminating a machine, whatever runs on it."""

LEAVE_RESERVE = 15.0
"""Seconds of running that leaving a machine needs: from the last message of its client to the start of its lease, and
from the end of that to the end of its worker."""

WATCHDOG_RESERVE = 150.0
"""Seconds of running that a rented machine needs after its worker has ended, until its watchdog has ended it, too."""

ATTACH_RESERVE = 30.0
"""Seconds of running that attaching needs: reaching the machines, and returning the results of their tasks."""


_ROUNDING = 1e-9


def can_be_attached(spent: float, per_hour: float, budget: float | None) -> bool:
    """Return whether a budget covers attaching to machines which cost `per_hour`, after `spent`, USD."""
    return budget is None or spent + per_hour * ATTACH_RESERVE / 3600 < budget


def unaffordable(budget: float, per_hour: float, spent: float = 0.0) -> str:
    """Return that a pool cannot afford its first nodes, as the end of a sentence about it.

    Args:
        budget: USD in total.
        per_hour: what the first nodes cost together, USD an hour; 0 if that is not known.
        spent: USD until now.
    """
    needed = f": {money_text(per_hour * DRAIN_RESERVE / 3600)}" if per_hour else ""
    of_it = f", of which {money_text(spent)} is spent" if spent else ""
    return (
        f"cannot afford its first nodes with a budget of {money_text(budget)}{of_it}, which must cover "
        f"{DRAIN_RESERVE:g} s of each{needed}"
    )


@dataclass
class Ledger:
    """The account of a pool. A machine costs from its allocation until it is gone; a requested machine is committed.

    Attributes:
        budget: USD that may be spent in total; None for no limit.
    """

    budget: float | None = None
    _reserved: dict[int, float] = field(default_factory=dict)
    _reserved_per_hour: float = 0.0
    _prices: dict[int, float] = field(default_factory=dict)
    _per_hour: float = 0.0
    _spent: float = 0.0
    _at: float | None = None

    @property
    def per_hour(self) -> float:
        """Hourly cost of the allocated machines, USD."""
        return self._per_hour

    def carry(self, spent: float) -> None:
        """Add the costs of an earlier process, USD."""
        self._spent += spent

    def reserve(self, machine: int, price: float) -> None:
        """Commit a requested machine at `price` USD an hour; an earlier request at a higher price may still succeed."""
        before = self._reserved.get(machine, 0.0)
        self._reserved[machine] = max(price, before)
        self._reserved_per_hour += self._reserved[machine] - before

    def affordable(self, machines: Iterable[int], price: float, now: float) -> list[int]:
        """Return those of these machines that the budget allows to request at this price, USD an hour.

        A machine that was requested before is committed already: only what it costs more counts.
        """
        if self.budget is None:
            return list(machines)
        left = (self.budget - self.committed(now)) * 3600 / DRAIN_RESERVE + _ROUNDING
        found = []
        for machine in machines:
            more = max(0.0, price - self._reserved.get(machine, 0.0))
            if more <= left:
                left -= more
                found.append(machine)
        return found

    def could_pay(self, price: float, now: float) -> bool:
        """Return whether the budget allows one machine at this price, USD an hour, once every other one is gone."""
        return self.budget is None or self.spent(now) + price * DRAIN_RESERVE / 3600 <= self.budget + _ROUNDING

    def could_pay_more(self, per_hour: float, now: float) -> bool:
        """Return whether the budget allows to request more machines that cost this much together, USD an hour."""
        return self.budget is None or self.committed(now) + per_hour * DRAIN_RESERVE / 3600 <= self.budget + _ROUNDING

    def could_replace(self, machines: Iterable[int], per_hour: float, now: float) -> bool:
        """Return whether the budget allows others that cost this much together, USD an hour, once these are gone."""
        gone = sum(self._prices.get(each, 0.0) + self._reserved.get(each, 0.0) for each in machines)
        return self.could_pay_more(per_hour - gone, now)

    def bill(self, machine: int, now: float) -> None:
        """Start billing an allocated machine."""
        self._advance(now)
        price = self._release(machine)
        if price is not None:
            self._prices[machine] = price
            self._per_hour += price

    def set_price(self, machine: int, price: float, now: float) -> None:
        """Bill a machine at another price from now on, USD an hour."""
        if machine in self._prices:
            self._advance(now)
            self._per_hour += price - self._prices[machine]
            self._prices[machine] = price

    def price_of(self, machine: int) -> float | None:
        """Return the price at which a machine is billed, USD an hour; None if it is not."""
        return self._prices.get(machine)

    def close_account(self, machine: int, now: float) -> None:
        """Stop billing a machine, or release its commitment."""
        self._advance(now)
        self._release(machine)
        self._per_hour -= self._prices.pop(machine, 0.0)
        if not self._prices:
            self._per_hour = 0.0

    def close(self, now: float) -> None:
        """Stop billing: every machine is terminated."""
        self._advance(now)
        self._reserved.clear()
        self._reserved_per_hour = 0.0
        self._prices.clear()
        self._per_hour = 0.0

    def settle(self, spent: float) -> None:
        """Replace what was spent with the bill of the machines, USD, once billing has stopped.

        The bill counts each machine until it ended, the ledger until the pool had noticed that all had.
        """
        self._spent = spent

    def spent(self, now: float) -> float:
        """Return the USD spent until `now`."""
        return self._spent + (0.0 if self._at is None else self._per_hour * (now - self._at) / 3600)

    def committed(self, now: float) -> float:
        """Return the USD that will be spent even if every machine is drained from now on."""
        return self.spent(now) + (self._per_hour + self._reserved_per_hour) * DRAIN_RESERVE / 3600

    def lasts(self, now: float, aside: float = 0.0) -> float:
        """Return for how many seconds the rest of the budget covers the machines; infinity without a limit.

        Args:
            now: present time.
            aside: part of the rest that is spent otherwise, USD.
        """
        per_hour = self._per_hour + self._reserved_per_hour
        if self.budget is None or per_hour <= 0:
            return float("inf")
        return (self.budget - self.spent(now) - aside) / per_hour * 3600

    def room(self, price: float, now: float) -> int | None:
        """Return the number of additional machines at this price that the budget allows; None for no limit."""
        if self.budget is None or price <= 0:
            return None
        return max(0, int((self.budget - self.committed(now)) / (price * DRAIN_RESERVE / 3600) + 1e-9))

    def exhausted_at(self, ahead: float) -> float:
        """Return when the costs, including those of `ahead` more seconds, reach the budget; infinity for never."""
        if self.budget is None:
            return float("inf")
        if self._at is None or self._per_hour <= 0:
            return float("-inf") if self._spent >= self.budget else float("inf")
        return self._at + (self.budget - self._spent) / self._per_hour * 3600 - ahead

    def _release(self, machine: int) -> float | None:
        """Release the commitment of a machine; return its price."""
        price = self._reserved.pop(machine, None)
        if price is not None:
            self._reserved_per_hour = self._reserved_per_hour - price if self._reserved else 0.0
        return price

    def _advance(self, now: float) -> None:
        self._spent = self.spent(now)
        self._at = now


def budget_parts(ledger: Ledger, lacks: str, per_hour: float | None, now: float, *, beside_others: bool) -> str:
    """Return the parts of a budget that together are more than it, as a part of a sentence about a pool.

    Args:
        lacks: the nodes that are to be launched.
        per_hour: what they cost together, USD an hour; None if that is not one sum.
        beside_others: True if the budget has to cover the present nodes too.
    """
    spent = ledger.spent(now)
    held = ledger.committed(now) - spent if beside_others else 0.0
    beside = f", {money_text(held)} is reserved for {DRAIN_RESERVE:g} s of the nodes that it has" if held else ""
    cost = "" if per_hour is None else f", which cost {money_text(per_hour * DRAIN_RESERVE / 3600)}"
    return (
        f"{money_text(spent)} of its budget of {money_text(ledger.budget or 0.0)} is spent{beside}, and "
        f"{DRAIN_RESERVE:g} s of {lacks} must be covered{cost}"
    )
