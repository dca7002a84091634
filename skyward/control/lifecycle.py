"""Lifecycles: one table of legal transitions each. An illegal transition is an error that carries recent history."""

from collections.abc import Mapping
from typing import Literal

from skyward.errors import IllegalTransitionError

__all__ = [
    "AUTOSCALER",
    "NODE",
    "POOL",
    "RECONCILER",
    "TASK",
    "AutoscalerState",
    "Lifecycle",
    "NodeState",
    "PoolState",
    "ReconcilerState",
    "TaskStatus",
]

type PoolState = Literal["new", "requesting", "provisioning", "ready", "stopping", "closed"]
type NodeState = Literal["vacant", "waiting", "active", "draining"]
type TaskStatus = Literal["queued", "withheld", "sent", "recalled", "running", "cancelling", "finished", "ended"]
type ReconcilerState = Literal["watching", "scaling_up", "draining"]
type AutoscalerState = Literal["waiting", "watching", "cooling"]

POOL: Mapping[PoolState, frozenset[PoolState]] = {
    "new": frozenset({"requesting", "closed"}),
    "requesting": frozenset({"provisioning", "stopping"}),
    "provisioning": frozenset({"ready", "stopping"}),
    "ready": frozenset({"stopping"}),
    "stopping": frozenset({"closed"}),
    "closed": frozenset(),
}
"""A pool requests an offer, provisions machines, is ready from the threshold on, and stops once."""

NODE: Mapping[NodeState, frozenset[NodeState]] = {
    "vacant": frozenset({"waiting"}),
    "waiting": frozenset({"active", "vacant"}),
    "active": frozenset({"draining", "vacant"}),
    "draining": frozenset({"active", "vacant"}),
}
"""A node waits for its machine, then is active. It is vacant without one: lost, or drained and terminated."""

TASK: Mapping[TaskStatus, frozenset[TaskStatus]] = {
    "queued": frozenset({"sent", "finished", "ended"}),
    "sent": frozenset({"running", "recalled", "cancelling", "queued", "withheld", "finished", "ended"}),
    "recalled": frozenset({"running", "cancelling", "queued", "withheld", "ended"}),
    "running": frozenset({"cancelling", "queued", "withheld", "finished", "ended"}),
    "cancelling": frozenset({"finished", "ended"}),
    "withheld": frozenset({"queued", "finished", "ended"}),
    "finished": frozenset({"queued", "ended"}),
    "ended": frozenset(),
}
"""A task waits in the queue, is dispatched to a node, and runs. It is requeued when its node is lost, when it is
retried, or when its node returns it unstarted, and withheld while a lost input is computed again. A task that is
cancelled on its node never runs again. A member of a collective is finished until all of them are: then they end, or
are queued again together.
"""

RECONCILER: Mapping[ReconcilerState, frozenset[ReconcilerState]] = {
    "watching": frozenset({"scaling_up", "draining"}),
    "scaling_up": frozenset({"watching"}),
    "draining": frozenset({"watching", "scaling_up"}),
}
"""The reconciler launches missing nodes and drains surplus ones; it stops a drain at once to launch."""

AUTOSCALER: Mapping[AutoscalerState, frozenset[AutoscalerState]] = {
    "waiting": frozenset({"watching"}),
    "watching": frozenset({"cooling"}),
    "cooling": frozenset({"watching", "cooling"}),
}
"""The autoscaler waits until the pool is ready. After each change, a cooldown delays scaling down."""

_HISTORY = 12


class Lifecycle[S: str]:
    """State machine of one object: a current state that changes only along a table of transitions.

    Args:
        subject: name of the object in errors.
        table: legal next states of each state.
        start: initial state.
    """

    __slots__ = ("_history", "_subject", "_table", "state")

    state: S
    """The current state. Read-only: change it with `move`."""

    def __init__(self, subject: object, table: Mapping[S, frozenset[S]], start: S) -> None:
        self.state = start
        self._subject = subject
        self._table = table
        self._history: tuple[tuple[float, S, S, str, int], ...] = ()

    def move(self, to: S, now: float, why: str = "", cause: int = 0) -> None:
        """Change to the state `to`.

        Args:
            why: reason, for the history.
            cause: number of the message that the control plane handles (`skyward.control.decide.causes`); 0 for none.

        Raises:
            IllegalTransitionError: the table does not allow the transition.
        """
        before = self.state
        if to not in self._table[before]:
            raise IllegalTransitionError(
                f"{self._subject} cannot go from {before} to {to}{_cause_text(cause)}", self.history()
            )
        self._history = (*self._history[1 - _HISTORY :], (now, before, to, why, cause))
        self.state = to

    @property
    def transitions(self) -> tuple[tuple[float, S, S, str, int], ...]:
        """The latest transitions, oldest first: time, state before, state after, reason, and number of the cause."""
        return self._history

    def history(self) -> tuple[str, ...]:
        """Return the latest transitions as text, oldest first."""
        return tuple(
            f"{at:.3f} {before} -> {to} {why}".rstrip() + _cause_text(cause)
            for at, before, to, why, cause in self._history
        )


def _cause_text(cause: int) -> str:
    return f" (#{cause})" if cause else ""
