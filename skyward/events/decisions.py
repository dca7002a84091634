"""The decisions of a pool: every one an event with what it was made from, what came of it, and why."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["DecisionEvent", "DecisionLog", "Inputs"]

type Decider = Literal["policy", "user", "reconciler", "budget"]

KEPT = 1000


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a decision was made from.

    Attributes:
        queued, inflight: tasks that wait, and that run.
        capacity: slots of the active nodes.
        active, booting, leaving: nodes.
        idle_for: seconds since the pool last held a task.
        spent, per_hour: USD.
    """

    queued: int = 0
    inflight: int = 0
    capacity: int = 0
    active: int = 0
    booting: int = 0
    leaving: int = 0
    idle_for: float = 0.0
    spent: float = 0.0
    per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class DecisionEvent:
    """One decision.

    Attributes:
        at: when it was last made, in seconds of the pool's clock.
        by: who made it: the policy, the user, the reconciler (which replaces what was lost), or the budget.
        policy: name of the policy.
        before, after: nodes wanted, by group; equal where the decision was held back.
        reason: for people, with the numbers in it.
        held_back: why it was not carried out; empty where it was.
        times: how often in a row it was made.
        number: its own, from 1 on; made again in a row, it keeps it.
    """

    at: float
    by: Decider
    policy: str
    inputs: Inputs
    before: Mapping[str, int]
    after: Mapping[str, int]
    reason: str
    held_back: str = ""
    times: int = 1
    number: int = 0

    @property
    def change(self) -> int:
        """Nodes more, or fewer."""
        return sum(self.after.values()) - sum(self.before.values())

    def __str__(self) -> str:
        sizes = f"{sum(self.before.values())} -> {sum(self.after.values())} nodes"
        return f"{sizes}: {self.reason}" + (f" (held back: {self.held_back})" if self.held_back else "")


class DecisionLog:
    """The latest decisions, oldest first. One that is made again right away is kept once, and counted."""

    def __init__(self, kept: int = KEPT) -> None:
        self._events: deque[DecisionEvent] = deque(maxlen=kept)
        self.total = 0

    def add(self, event: DecisionEvent) -> DecisionEvent:
        """Keep a decision, and return it as it is kept: with its number, and how often it was made in a row."""
        self.total += 1
        last = self._events[-1] if self._events else None
        if last is not None and event.held_back and last.held_back and last.after == event.after:
            self._events[-1] = replace(event, times=last.times + 1, number=last.number)
        else:
            self._events.append(replace(event, number=last.number + 1 if last is not None else 1))
        return self._events[-1]

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[DecisionEvent]:
        return iter(tuple(self._events))
