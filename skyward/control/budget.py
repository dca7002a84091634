"""What the machines of a pool cost: spent so far, and committed to."""

from dataclasses import dataclass, field

__all__ = ["LEAD", "Ledger"]

LEAD = 60.0
"""Seconds of running that a machine is counted with ahead of time: about what it takes to empty it."""

LAST = 10.0
"""Seconds of running that are left for giving a machine back, whatever runs on it."""


@dataclass
class Ledger:
    """The account of a pool. A machine costs from the moment it is there until it is gone; asked for, it is committed.

    Attributes:
        budget: USD that may be spent in all; None for no limit.
    """

    budget: float | None = None
    _reserved: dict[int, float] = field(default_factory=dict)
    _prices: dict[int, float] = field(default_factory=dict)
    _per_hour: float = 0.0
    _spent: float = 0.0
    _at: float | None = None

    @property
    def per_hour(self) -> float:
        """What the machines there are cost an hour, USD."""
        return self._per_hour

    def reserve(self, machine: int, price: float) -> None:
        """A machine at `price` USD an hour is asked for."""
        self._reserved[machine] = price

    def bill(self, machine: int, now: float) -> None:
        """A machine that was asked for is there."""
        self._advance(now)
        price = self._reserved.pop(machine, None)
        if price is not None:
            self._prices[machine] = price
            self._per_hour += price

    def shut(self, machine: int, now: float) -> None:
        """A machine is gone, or never came."""
        self._advance(now)
        self._reserved.pop(machine, None)
        self._per_hour -= self._prices.pop(machine, 0.0)
        if not self._prices:
            self._per_hour = 0.0

    def close(self, now: float) -> None:
        """Every machine has been given back."""
        self._advance(now)
        self._reserved.clear()
        self._prices.clear()
        self._per_hour = 0.0

    def spent(self, now: float) -> float:
        """USD spent until `now`."""
        return self._spent + (0.0 if self._at is None else self._per_hour * (now - self._at) / 3600)

    def committed(self, now: float) -> float:
        """USD that are spent even if every machine is given back from now on."""
        return self.spent(now) + (self._per_hour + sum(self._reserved.values())) * LEAD / 3600

    def room(self, price: float, now: float) -> int | None:
        """How many more machines at this price stay within the budget; None for any number."""
        if self.budget is None or price <= 0:
            return None
        return max(0, int((self.budget - self.committed(now)) / (price * LEAD / 3600) + 1e-9))

    def limit_at(self, ahead: float) -> float:
        """When what is spent, and will be in `ahead` seconds, is the budget, if nothing changes; infinite for never."""
        if self.budget is None or self._per_hour <= 0 or self._at is None:
            return float("inf")
        return self._at + (self.budget - self._spent) / self._per_hour * 3600 - ahead

    def _advance(self, now: float) -> None:
        self._spent = self.spent(now)
        self._at = now
