"""What tasks cost: their share of the price of the machines that they ran on.

A machine costs by the hour whether it works or not; a task is charged for one of its node's slots, for as long as it
ran there. So the costs of all tasks add up to what the pool has spent only if every slot was in use all the time: what
a machine costs while it boots, idles or drains is in no task's cost. Attempts that were lost with their node are not
charged to the task either, only the one that ended it.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from skyward.control.observe.origin import Origin

__all__ = ["FREE", "CellAccounts", "CellCost", "Terms", "cost_of"]

KEPT = 300
"""Cells whose tasks are over that are remembered."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a node is, and what one of its slots costs.

    Attributes:
        hardware: its accelerators, such as "A100" or "H100:8"; without any, who the machine is from.
        hourly_price: of its machine, USD.
        slots: how many tasks share it.
    """

    hardware: str = ""
    hourly_price: float = 0.0
    slots: int = 1

    def cost(self, seconds: float) -> float:
        """USD for one slot for so long."""
        return self.hourly_price / self.slots * max(0.0, seconds) / 3600


FREE = Terms()
"""Those of a task that no node has had."""


@dataclass(frozen=True, slots=True)
class CellCost:
    """What the tasks of one cell have cost so far.

    Attributes:
        origin: the cell.
        tasks: how many it has, but for those that wait.
        cost: USD, for those that run, too.
    """

    origin: Origin
    tasks: int = 0
    cost: float = 0.0


class Charged(Protocol):
    """A task that can be charged for: the terms of its node, and its times on the steady clock."""

    @property
    def origin(self) -> Origin | None: ...
    @property
    def terms(self) -> Terms: ...
    @property
    def sent_at(self) -> float | None: ...
    @property
    def ended_at(self) -> float | None: ...
    @property
    def seconds(self) -> float | None: ...


def cost_of(task: Charged, now: float) -> float:
    """USD that a task has cost until `now`, of the steady clock.

    How long it ran is as its node says; before that, and where the node never says, it is counted from when the task
    was sent there.
    """
    if not task.terms.hourly_price or task.sent_at is None:
        return 0.0
    seconds = task.seconds
    if seconds is None:
        seconds = (now if task.ended_at is None else task.ended_at) - task.sent_at
    return task.terms.cost(seconds)


@dataclass(slots=True)
class _Account:
    tasks: int = 0
    cost: float = 0.0

    def add(self, cost: float) -> None:
        self.tasks += 1
        self.cost += cost


class CellAccounts:
    """What the cells of one pool have cost. Lives on the library's loop."""

    def __init__(self) -> None:
        self._over: dict[Origin, _Account] = {}
        self._latest: tuple[Origin, _Account] | None = None

    def charge(self, origin: Origin, cost: float) -> None:
        """A task of a cell is over."""
        if self._latest is None or self._latest[0] is not origin:  # the tasks of a cell have one origin among them
            self._latest = origin, self._over.setdefault(origin, _Account())
            if len(self._over) > KEPT:
                del self._over[next(iter(self._over))]
        self._latest[1].add(cost)

    def look(self, tasks: Iterable[Charged]) -> tuple[CellCost, ...]:
        """Every cell, those of `tasks`, which are not over, included; in the order in which they first appeared."""
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
