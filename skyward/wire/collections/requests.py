"""An operation on a collection as it goes to whoever is in the cluster: the same on a node, in a child process of it,
and on the client."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Protocol

__all__ = ["Backend", "Consistency", "Kind", "Request"]

type Consistency = Literal["strong", "eventual"]
type Kind = Literal["dict", "set", "counter", "queue", "barrier", "lock"]


@dataclass(frozen=True, slots=True)
class Request:
    """One operation.

    Attributes:
        consistency: that was asked for; None for that of the collection, if there is one.
        verb: name of the operation.
        args: of plain values and bytes.
        owner: number of the task that asks, on a node; 0 for none.
    """

    kind: Kind
    name: str
    verb: str
    args: tuple[Any, ...] = ()
    consistency: Consistency | None = None
    owner: int = 0


class Backend(Protocol):
    """What carries requests out."""

    def ask(self, request: Request) -> Future[Any]:
        """The answer, to come. Cancelling it takes back what has not happened yet."""
