"""Lifecycles: one table of legal moves each. Any other move is an error that carries the recent history."""

from collections import deque
from collections.abc import Mapping
from typing import Literal

from skyward.errors import IllegalMoveError

__all__ = [
    "AUTOSCALER",
    "NODE",
    "POOL",
    "RECONCILER",
    "AutoscalerState",
    "Lifecycle",
    "NodeState",
    "PoolState",
    "ReconcilerState",
]

type PoolState = Literal["idle", "requesting", "provisioning", "ready", "stopping", "closed"]
type NodeState = Literal["idle", "waiting", "active", "draining"]
type ReconcilerState = Literal["watching", "scaling_up", "draining"]
type AutoscalerState = Literal["waiting", "watching", "cooling"]

POOL: Mapping[PoolState, frozenset[PoolState]] = {
    "idle": frozenset({"requesting", "closed"}),
    "requesting": frozenset({"provisioning", "stopping"}),
    "provisioning": frozenset({"ready", "stopping"}),
    "ready": frozenset({"stopping"}),
    "stopping": frozenset({"closed"}),
    "closed": frozenset(),
}
"""A pool asks for an offer, gets machines, is ready from the threshold on, and stops once."""

NODE: Mapping[NodeState, frozenset[NodeState]] = {
    "idle": frozenset({"waiting"}),
    "waiting": frozenset({"active", "idle"}),
    "active": frozenset({"draining", "idle"}),
    "draining": frozenset({"active", "idle"}),
}
"""A node waits for its machine and is active. It is idle without one: lost, or drained and given back."""

RECONCILER: Mapping[ReconcilerState, frozenset[ReconcilerState]] = {
    "watching": frozenset({"scaling_up", "draining"}),
    "scaling_up": frozenset({"watching"}),
    "draining": frozenset({"watching", "scaling_up"}),
}
"""The reconciler launches what is missing, drains what is too much; a drain is given up for a launch at once."""

AUTOSCALER: Mapping[AutoscalerState, frozenset[AutoscalerState]] = {
    "waiting": frozenset({"watching"}),
    "watching": frozenset({"cooling"}),
    "cooling": frozenset({"watching", "cooling"}),
}
"""The autoscaler waits until the pool is ready; after each change it lets the pool cool before it shrinks it."""

_HISTORY = 12


class Lifecycle[S: str]:
    """The state of one thing, moved only along its table."""

    def __init__(self, what: str, table: Mapping[S, frozenset[S]], start: S) -> None:
        self._what = what
        self._table = table
        self._state = start
        self._history: deque[str] = deque(maxlen=_HISTORY)

    @property
    def state(self) -> S:
        """Where it is."""
        return self._state

    def move(self, to: S, now: float, why: str = "") -> None:
        """Go to `to`.

        Raises:
            IllegalMoveError: the table has no such move.
        """
        if to not in self._table[self._state]:
            raise IllegalMoveError(f"{self._what} cannot go from {self._state} to {to}", tuple(self._history))
        self._history.append(f"{now:.3f} {self._state} -> {to} {why}".rstrip())
        self._state = to
