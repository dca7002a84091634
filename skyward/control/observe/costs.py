"""Costs of tasks: their share of the price of the machines that they ran on.

A machine is billed by the hour, busy or idle; a task is charged for one slot of its node while it ran there. So the
costs of all tasks add up to the pool's costs only if every slot was always in use: booting, idling and draining are in
no task's cost. Only the attempt that ended a task is charged to it, not those that were lost with their node.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from skyward.control.observe.origin import Origin

__all__ = ["FREE", "CellAccounts", "CellCost", "SlotPrice", "cost_of"]

KEPT = 300
"""Cells without running tasks that are remembered."""


@dataclass(frozen=True, slots=True)
class SlotPrice:
    """Hardware of a node, and the price of one of its slots.

    Attributes:
        hardware: its accelerators, such as "A100" or "H100:8"; without any, the machine's provider.
        hourly_price: USD an hour for its machine.
        slots: number of tasks that share it.
    """

    hardware: str = ""
    hourly_price: float = 0.0
    slots: int = 1

    def cost(self, seconds: float) -> float:
        """Return the USD for one slot for `seconds`."""
        return self.hourly_price / self.slots * max(0.0, seconds) / 3600


FREE = SlotPrice()
"""Terms of a task that was not sent to any node."""


@dataclass(frozen=True, slots=True)
class CellCost:
    """Costs of one cell's tasks so far.

    Attributes:
        origin: the cell.
        tasks: number of its tasks, except pending ones.
        cost: USD, including running tasks.

    Example:
        >>> {cell.origin: cell.cost for cell in pool.report().cells}
    """

    origin: Origin
    tasks: int = 0
    cost: float = 0.0


class Charged(Protocol):
    """A task that can be charged for: the terms of its node, and its times on the monotonic clock."""

    @property
    def origin(self) -> Origin | None: ...
    @property
    def slot_price(self) -> SlotPrice: ...
    @property
    def sent_at(self) -> float | None: ...
    @property
    def ended_at(self) -> float | None: ...
    @property
    def seconds(self) -> float | None: ...


def cost_of(task: Charged, now: float) -> float:
    """Return the USD that a task has cost until `now`, on the monotonic clock.

    The duration is the one that its node reported; without a report it counts from when the task was sent.
    """
    if not task.slot_price.hourly_price or task.sent_at is None:
        return 0.0
    seconds = task.seconds
    if seconds is None:
        seconds = (now if task.ended_at is None else task.ended_at) - task.sent_at
    return task.slot_price.cost(seconds)


@dataclass(slots=True)
class _Account:
    tasks: int = 0
    cost: float = 0.0

    def add(self, cost: float) -> None:
        self.tasks += 1
        self.cost += cost


class CellAccounts:
    """Costs of the cells of one pool. Lives on the library's loop."""

    def __init__(self) -> None:
        self._over: dict[Origin, _Account] = {}
        self._latest: tuple[Origin, _Account] | None = None

    def charge(self, origin: Origin, cost: float) -> None:
        """Charge an ended task to its cell."""
        if self._latest is None or self._latest[0] is not origin:  # the tasks of a cell share one origin object
            self._latest = origin, self._over.setdefault(origin, _Account())
            if len(self._over) > KEPT:
                del self._over[next(iter(self._over))]
        self._latest[1].add(cost)

    def look(self, tasks: Iterable[Charged]) -> tuple[CellCost, ...]:
        """Return the costs of every cell, including the running `tasks`, in the order of first appearance."""
        now = time.monotonic()
        cells = {origin: _Account(account.tasks, account.cost) for origin, account in self._over.items()}
        latest, account = None, _Account()
        for task in tasks:
            if task.origin is None or task.sent_at is None:
                continue
            if task.origin is not latest:  # as above: there may be ten thousand
                latest, account = task.origin, cells.setdefault(task.origin, _Account())
            account.add(cost_of(task, now))
        return tuple(CellCost(origin, account.tasks, account.cost) for origin, account in cells.items())
