"""Lifecycles: one table of legal moves each. Any other move is an error that carries the recent history."""

from collections import deque
from collections.abc import Mapping
from typing import Literal

from skyward.errors import IllegalMoveError

__all__ = ["NODE", "POOL", "Lifecycle", "NodeState", "PoolState"]

type PoolState = Literal["idle", "requesting", "provisioning", "ready", "stopping", "closed"]
type NodeState = Literal["idle", "waiting", "active", "draining", "stopping", "stopped"]

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
    "waiting": frozenset({"active", "stopping", "stopped"}),
    "active": frozenset({"draining", "stopping", "stopped"}),
    "draining": frozenset({"active", "stopping", "stopped"}),
    "stopping": frozenset({"stopped"}),
    "stopped": frozenset(),
}
"""A node waits for its machine, is active, and leaves by draining; it may be lost from any state."""

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
