"""The scaling decisions of a pool: events with their inputs, result and reason."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["UNUSABLE", "DecisionEvent", "DecisionInputs", "DecisionLog"]

type Decider = Literal["policy", "user", "reconciler", "budget"]

KEPT = 1000

UNUSABLE = "the pool stays as it is"
"""Reason for which a decision is held back that a policy failed to make."""


@dataclass(frozen=True, slots=True)
class DecisionInputs:
    """Inputs of a decision.

    Attributes:
        queued, inflight: numbers of queued tasks, and of running ones.
        capacity: slots of the active nodes.
        active, booting, leaving: numbers of nodes.
        idle_for: seconds since the pool last held a task.
        spent, per_hour: USD.

    Example:
        >>> [decision.inputs.queued for decision in pool.decisions()]
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
        by: its maker: the policy, the user, the reconciler (which replaces lost nodes, and keeps nodes
            with kept values), or the budget.
        policy: name of the policy.
        inputs: load and costs that it was based on.
        before, after: desired nodes, by group; equal if the decision was held back.
        reason: explanation with numbers.
        held_back: why it was not applied; empty if it was.
        cause: the message that led to it, with its number: `#412: machine 7 of node 3 lost: connection closed`.
        times: number of times in a row that it was made.
        number: its number, from 1 on; a repeated decision keeps it.

    Example:
        >>> for decision in pool.decisions():
        ...     print(decision)
    """

    at: float
    by: Decider
    policy: str
    inputs: DecisionInputs
    before: Mapping[str, int]
    after: Mapping[str, int]
    reason: str
    held_back: str = ""
    cause: str = ""
    times: int = 1
    number: int = 0

    @property
    def change(self) -> int:
        """Number of nodes added; negative for nodes removed."""
        return sum(self.after.values()) - sum(self.before.values())

    @property
    def failed(self) -> bool:
        """True if the policy failed to decide: the pool stays as it is, and the reason says what is wrong."""
        return self.held_back == UNUSABLE

    def __str__(self) -> str:
        sizes = f"{sum(self.before.values())} -> {sum(self.after.values())} nodes"
        return f"{sizes}: {self.reason}" + (f" (held back: {self.held_back})" if self.held_back else "")


class DecisionLog:
    """The latest decisions, oldest first. A decision that repeats the previous one is merged with it."""

    def __init__(self, kept: int = KEPT) -> None:
        self._events: deque[DecisionEvent] = deque(maxlen=kept)
        self.total = 0

    def add(self, event: DecisionEvent) -> DecisionEvent:
        """Add a decision; return it as stored, with its number and its count in a row."""
        self.total += 1
        last = self._events[-1] if self._events else None
        if last is not None and _repeats(event, last):
            self._events[-1] = replace(event, times=last.times + 1, number=last.number)
        else:
            self._events.append(replace(event, number=last.number + 1 if last is not None else 1))
        return self._events[-1]

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[DecisionEvent]:
        return iter(tuple(self._events))


def _repeats(event: DecisionEvent, last: DecisionEvent) -> bool:
    """Return whether a decision is held back as the last one was. Failures of the policy repeat by their text."""
    if not event.held_back or not last.held_back or last.after != event.after:
        return False
    return event.reason == last.reason if event.failed or last.failed else True
