"""Finalizers of objects that the notebook has, which must not run for the copies on a node.

The `__del__` of an object removes a file, or closes what belongs to it, when nobody uses the object any more. A node
has copies of objects of the notebook, and drops them when the cell has ended; so it does with what the cell made and
sent home. Both live on in the notebook, and are finalized there. What the cell made and dropped is finalized as usual.
"""

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from tempfile import TemporaryDirectory
from typing import Any

from cloudpickle import cloudpickle as inner

from skyward.wire.objects.notebook import Side
from skyward.wire.payloads.modules import local_modules
from skyward.worker.cells.imports import installed_names

__all__ = ["Departing"]


class Departing:
    """Objects on a node that live on in the notebook."""

    def __init__(self) -> None:
        self._objects: list[Any] = []

    def add(self, side: Side, objects: Callable[[], Iterable[Any]]) -> None:
        """Keep those of the objects that have a finalizer, until `release`.

        Args:
            side: the node's end of the cell.
            objects: gives the objects; there may be very many, so that it is only called where there is a finalizer.
        """
        watched = {id(each) for each in map(_object_of, _pending()) if _is_watched(each)}
        if not watched and not any(hasattr(kind, "__del__") for kind in _kinds_of_user(side)):
            return
        found = list(objects())
        kinds = {kind for kind in set(map(type, found)) if _finalizing(kind) is not None}
        self._objects += (each for each in found if type(each) in kinds or id(each) in watched)

    def release(self) -> None:
        """Let go of the objects, and do not run their finalizers."""
        ids = set(map(id, self._objects))
        for each in _pending() if ids else ():
            if id(_object_of(each)) in ids:
                each.detach()
        for each in self._objects:
            owner = _finalizing(type(each))
            if owner is not None:
                _guard(owner).spared.add(id(each))
        self._objects.clear()


def _pending() -> list[Any]:
    """Return what `weakref.finalize` has made."""
    return list(weakref.finalize._registry)  # type: ignore[attr-defined]  # there is no other way to find them


def _object_of(finalizer: Any) -> Any:
    known = finalizer.peek()
    return None if known is None else known[0]


def _is_watched(value: object) -> bool:
    return isinstance(value, TemporaryDirectory) or (value is not None and _is_of_user(type(value)))


def _kinds_of_user(side: Side) -> Iterator[type]:
    yield from side.classes.values()
    for module in map(sys.modules.get, _local_names()):
        yield from (each for each in list(vars(module).values() if module else ()) if isinstance(each, type))


def _local_names() -> frozenset[str]:
    """Return the names of the modules of the user."""
    return installed_names().union(module.__name__ for module in local_modules())


def _finalizing(kind: type) -> type | None:
    """Return the class of the user whose `__del__` finalizes objects of `kind`."""
    owner = next((base for base in kind.__mro__ if "__del__" in vars(base)), None)
    return owner if owner is not None and _is_of_user(owner) else None


def _is_of_user(kind: type) -> bool:
    return not inner._should_pickle_by_reference(kind) or kind.__module__ in _local_names()


class _Guard:
    """A `__del__` that leaves some objects out. It is pickled as the one that it stands for."""

    def __init__(self, original: Any) -> None:
        self.original = original
        self.spared: set[int] = set()

    def __get__(self, instance: Any, owner: type) -> Any:
        if id(instance) in self.spared:
            self.spared.discard(id(instance))
            return _nothing
        return self.original.__get__(instance, owner)

    def __reduce__(self) -> Any:
        return _the_original, (self.original,)


def _guard(kind: type) -> _Guard:
    known = vars(kind)["__del__"]
    if isinstance(known, _Guard):
        return known
    guard = _Guard(known)
    type.__setattr__(kind, "__del__", guard)  # the class may refuse to be changed
    return guard


def _nothing() -> None:
    """Stand for the `__del__` of an object that lives on elsewhere."""


def _the_original(method: Any) -> Any:
    return method
