"""An operation on a collection, as any process sends it: a node, a child process of it, or the client."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Protocol

__all__ = ["Backend", "BarrierOutcome", "CollectionKind", "CollectionRequest", "Consistency"]

type Consistency = Literal["strong", "eventual"]
type BarrierOutcome = Literal["passed", "late", "reset", "mismatch"]
"""Result of a wait at a barrier. "mismatch": the parties that wait already expect another number of parties."""

type CollectionKind = Literal["dict", "set", "counter", "queue", "barrier", "lock"]


@dataclass(frozen=True, slots=True)
class CollectionRequest:
    """One operation.

    Attributes:
        kind, name: the collection.
        consistency: the requested one; None for that of the collection, if there is one.
        verb: name of the operation.
        args: plain values and bytes.
        owner: number of the calling task on a node; 0 outside a task.
    """

    kind: CollectionKind
    name: str
    verb: str
    args: tuple[Any, ...] = ()
    consistency: Consistency | None = None
    owner: int = 0


class Backend(Protocol):
    """Executes requests."""

    def ask(self, request: CollectionRequest) -> Future[Any]:
        """Start a request and return the future of its answer. Cancelling it revokes what has not happened yet."""
