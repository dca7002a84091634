"""Finalizers that must not run for copies of the notebook's objects on a node.

The `__del__` of an object removes a file, or closes a resource, when the last reference to it is dropped. A node drops
its copies of the notebook's objects when the cell has ended, and so it does with new objects that it has returned. Both
kinds live on in the notebook and are finalized there. Objects that only the cell used are finalized as usual.
"""

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from tempfile import TemporaryDirectory
from typing import Any

from cloudpickle import cloudpickle as inner

from skyward.wire.objects.cell_end import CellEnd
from skyward.wire.payloads.modules import local_modules
from skyward.worker.code.local_modules import installed_names

__all__ = ["SuppressedFinalizers"]


class SuppressedFinalizers:
    """Objects on a node that live on in the notebook, so that their finalizers must not run here."""

    def __init__(self) -> None:
        self._objects: list[Any] = []

    def add(self, side: CellEnd, objects: Callable[[], Iterable[Any]]) -> None:
        """Keep the objects that have a finalizer alive until `release`.

        Args:
            side: the node's end of the cell.
            objects: returns the objects. Called only if there are finalizers, because there may be very many objects.
        """
        watched = {id(each) for each in map(_object_of, _pending()) if _is_watched(each)}
        if not watched and not any(hasattr(kind, "__del__") for kind in _kinds_of_user(side)):
            return
        found = list(objects())
        kinds = {kind for kind in set(map(type, found)) if _finalizing(kind) is not None}
        self._objects += (each for each in found if type(each) in kinds or id(each) in watched)

    def release(self) -> None:
        """Drop the objects without running their finalizers."""
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
    """Return all live `weakref.finalize` objects."""
    return list(weakref.finalize._registry)  # type: ignore[attr-defined]  # no public API lists them


def _object_of(finalizer: Any) -> Any:
    known = finalizer.peek()
    return None if known is None else known[0]


def _is_watched(value: object) -> bool:
    return isinstance(value, TemporaryDirectory) or (value is not None and _is_of_user(type(value)))


def _kinds_of_user(side: CellEnd) -> Iterator[type]:
    yield from side.classes.values()
    for module in map(sys.modules.get, _local_names()):
        yield from (each for each in list(vars(module).values() if module else ()) if isinstance(each, type))


def _local_names() -> frozenset[str]:
    """Return the names of the user's local modules."""
    return installed_names().union(module.__name__ for module in local_modules())


def _finalizing(kind: type) -> type | None:
    """Return the user's class whose `__del__` finalizes objects of `kind`; None if there is none."""
    owner = next((base for base in kind.__mro__ if "__del__" in vars(base)), None)
    return owner if owner is not None and _is_of_user(owner) else None


def _is_of_user(kind: type) -> bool:
    return not inner._should_pickle_by_reference(kind) or kind.__module__ in _local_names()


class _Guard:
    """A `__del__` that skips some objects. It is pickled as the original."""

    def __init__(self, original: Any) -> None:
        self.original = original
        self.spared: set[int] = set()

    def __get__(self, instance: Any, owner: type) -> Any:
        if id(instance) in self.spared:
            self.spared.discard(id(instance))
            return _skip
        return self.original.__get__(instance, owner)

    def __reduce__(self) -> Any:
        return _original_of, (self.original,)


def _guard(kind: type) -> _Guard:
    known = vars(kind)["__del__"]
    if isinstance(known, _Guard):
        return known
    guard = _Guard(known)
    type.__setattr__(kind, "__del__", guard)  # a metaclass may forbid assignments
    return guard


def _skip() -> None:
    """Do nothing, in place of the `__del__` of an object that lives on in the notebook."""


def _original_of(method: Any) -> Any:
    return method
