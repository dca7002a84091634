"""Values that a node keeps for later tasks, in the memory of its process: `sky.keep`.

They are not pickled, so they may be anything: connections, locks, tensors on a GPU. The node identifies them by random
keys; the client has handles of them (`skyward.kept.handles`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from skyward.errors import NotOnNodeError, SpecError
from skyward.values.validation import seconds, shown

if TYPE_CHECKING:
    from skyward.kept.handles import Kept  # circular: the return type of `keep`
    from skyward.wire.payloads.payload import (
        Packed,  # circular: a payload knows handles, and a handle is fetched as one
    )

__all__ = [
    *("CONTAINERS", "KEEP_FOR", "KeptInfo", "KeptStore", "KeepingContext"),
    *("keep", "keeps_containers", "set_store", "require_store", "stand_in", "current_store"),
]

CONTAINERS = frozenset({list, dict, set, frozenset, tuple, bytearray})
"""Types whose objects a pickler writes without calling its reducers."""

KEEP_FOR = 3600.0
"""Default number of seconds after the last use of a value during which scaling down spares its node."""


@dataclass(frozen=True, slots=True)
class KeptInfo:
    """Description of a value that a node keeps.

    Attributes:
        key: unique key of the value.
        name: the name that the user gave it.
        kind: its type, as text for users.
        nbytes: its size, as far as it can be estimated.
        keep_for: seconds after its last use during which its node counts as busy.
        needs: for a value of a cell, notebook names that its functions use.
        classes: for a value of a cell, ids of the notebook classes that it refers to.
    """

    key: str
    name: str
    kind: str
    nbytes: int
    keep_for: float
    needs: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


class KeepingContext(Protocol):
    """The cell that a value comes from."""

    def needs(self, value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the notebook names that functions in a value use, and the ids of the classes in it."""

    def pack(self, value: object, name: str, known: Collection[str]) -> "Packed":
        """Return a packed copy of a value, for a receiver that has the classes of the ids `known`."""


class KeptStore(Protocol):
    """The kept values of a node, by key."""

    def keep(self, value: object, name: str, keep_for: float, cell: "KeepingContext | None" = None) -> Any:
        """Keep a value and notify the client. Return its stand-in.

        Args:
            value: the object.
            name: of the value.
            keep_for: seconds after its last use during which the node counts as busy.
            cell: the cell that it comes from.
        """

    def get(self, keys: tuple[str, ...], name: str) -> Any:
        """Return the value of the first of these keys that is kept here."""

    def pack(self, keys: Iterable[str], name: str, known: Collection[str] = ()) -> "Packed":
        """Return a packed copy of such a value, for a receiver that has the classes of the ids `known`."""

    def stand_in(self, value: object) -> Any:
        """Return the stand-in of a value that is kept here; None for any other."""

    def keeps_containers(self) -> bool:
        """Return whether a value of one of `CONTAINERS` is kept here."""


_store: KeptStore | None = None


def set_store(new: KeptStore) -> None:
    """Declare that this process is on a node, which keeps values on `new`."""
    global _store
    _store = new


def current_store() -> KeptStore | None:
    """Return the value store of this process; None on the client."""
    return _store


def require_store() -> KeptStore:
    """Return the value store of this node.

    Raises:
        NotOnNodeError: this process is not on a node.
    """
    if _store is None:
        raise NotOnNodeError("`sky.keep` works only in a task: call it inside a function that was sent to a pool.")
    return _store


def stand_in(value: object) -> Any:
    """Return the stand-in that is sent for a value that this node keeps; None for any other value."""
    return None if _store is None else _store.stand_in(value)


def keeps_containers() -> bool:
    """Return whether this node keeps a value of one of `CONTAINERS`."""
    return _store is not None and _store.keeps_containers()


def keep[T](value: T, name: str | None = None, *, keep_for: float = KEEP_FOR) -> "Kept[T]":
    """Keep a value in the memory of the node that runs this task. Return a handle of it.

    Works for any object, because it is not pickled. A task that takes the handle as an argument runs on the node of the
    object, and gets the object itself.

    Args:
        value: the object. Keeping it again does not duplicate it.
        name: its name in errors and in `%sky kept`; by default its type.
        keep_for: seconds after its last use during which scaling down spares its node.

    Raises:
        NotOnNodeError: not called in a task.
        SpecError: `name` is not a string, or `keep_for` is not a number of seconds.
        UsageError: the tasks of the node run in processes of their own (`executor="process"`).

    Example:
        @sky.function
        def load() -> sky.Kept[Model]:
            return sky.keep(Model().cuda(), "model")

        model = load() >> pool
        loss = train(model) >> pool  # runs where the model is
    """
    if name is not None and not isinstance(name, str):
        raise SpecError(
            f"The name of a kept value must be a string, as in `sky.keep(model, 'model')`, but got {shown(name)}."
        )
    seconds(keep_for, "keep_for", zero=True)
    handle: Kept[T] = require_store().keep(value, name or type(value).__name__, keep_for)
    return handle
