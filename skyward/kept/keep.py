"""Values that a node keeps for later tasks, in the memory of its process: `sky.keep`.

They are not pickled, so they may be anything: connections, locks, tensors on a GPU. The node numbers them by random
keys; the client has handles of them (`skyward.kept.handles`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from skyward.errors import NotOnNodeError
from skyward.values.validation import seconds

if TYPE_CHECKING:
    from skyward.kept.handles import Kept  # circular: what `keep` gives
    from skyward.wire.payloads.payload import (
        Packed,  # circular: a payload knows handles, and a handle is fetched as one
    )

__all__ = [
    *("CONTAINERS", "KEEP_FOR", "KeptInfo", "Shelf", "Surroundings"),
    *("keep", "keeps_containers", "set_shelf", "shelf", "stand_in", "the_shelf"),
]

CONTAINERS = frozenset({list, dict, set, frozenset, tuple, bytearray})
"""Types of which a pickler writes the objects without asking how."""

KEEP_FOR = 3600.0
"""Seconds after the last use of a value in which scaling down does not take its node, unless the user says else."""


@dataclass(frozen=True, slots=True)
class KeptInfo:
    """A value that a node keeps, as it is told.

    Attributes:
        key: its own.
        name: what the user calls it.
        kind: its type, for people.
        nbytes: its size, as far as that can be told.
        keep_for: seconds after its last use in which its node counts as busy.
        needs: of a value of a cell, names of the notebook that its functions use.
        classes: of a value of a cell, ids of the classes of the notebook that it refers to.
    """

    key: str
    name: str
    kind: str
    nbytes: int
    keep_for: float
    needs: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


class Surroundings(Protocol):
    """The cell that a value comes from."""

    def needs(self, value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the notebook that functions in a value use, and ids of the classes in it."""

    def pack(self, value: object, name: str, known: Collection[str]) -> "Packed":
        """A copy of a value, as it travels to where the classes of the ids `known` are."""


class Shelf(Protocol):
    """What a node keeps, by key."""

    def keep(self, value: object, name: str, keep_for: float, cell: "Surroundings | None" = None) -> Any:
        """Keep a value, and tell the client; what stands for it. `cell`: the one that it comes from."""

    def get(self, keys: tuple[str, ...], name: str) -> Any:
        """The value of the first of these keys that is kept here."""

    def pack(self, keys: Iterable[str], name: str, known: Collection[str] = ()) -> "Packed":
        """A copy of such a value, as it travels to where the classes of the ids `known` are."""

    def stand_in(self, value: object) -> Any:
        """What stands for a value that is kept here; None for any other."""

    def keeps_containers(self) -> bool:
        """Whether a value of one of `CONTAINERS` is kept here."""


_shelf: Shelf | None = None


def set_shelf(new: Shelf) -> None:
    """From now on, this process is on a node, which keeps values on `new`."""
    global _shelf
    _shelf = new


def the_shelf() -> Shelf | None:
    """Return where this process keeps values; None where it is not on a node."""
    return _shelf


def shelf() -> Shelf:
    """Return where this node keeps values.

    Raises:
        NotOnNodeError: this process is not on a node.
    """
    if _shelf is None:
        raise NotOnNodeError("`sky.keep` works in a task: a value that is here stays here.")
    return _shelf


def stand_in(value: object) -> Any:
    """Return what goes home in the place of a value that this node keeps; None for any other value."""
    return None if _shelf is None else _shelf.stand_in(value)


def keeps_containers() -> bool:
    """Return whether this node keeps a value of one of `CONTAINERS`."""
    return _shelf is not None and _shelf.keeps_containers()


def keep[T](value: T, name: str | None = None, *, keep_for: float = KEEP_FOR) -> "Kept[T]":
    """Keep a value in the memory of the node that runs this task; what is returned of it is a handle.

    Works for any object: it is not pickled. A task that is given the handle runs where the object is, and has the
    object itself.

    Args:
        value: the object; kept twice, it is kept once.
        name: what errors and `%sky kept` call it; its type, if not given.
        keep_for: seconds after its last use in which scaling down does not take its node.

    Raises:
        NotOnNodeError: not called in a task.
        SpecError: `keep_for` is no number of seconds.
        UsageError: the tasks of the node run in processes of their own (`executor="process"`).

    Example:
        @sky.function
        def load() -> sky.Kept[Model]:
            return sky.keep(Model().cuda(), "model")

        model = load() >> pool
        loss = train(model) >> pool  # runs where the model is
    """
    seconds(keep_for, "keep_for", zero=True)
    here: Kept[T] = shelf().keep(value, name or type(value).__name__, keep_for)
    return here
