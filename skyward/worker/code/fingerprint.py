"""Fingerprints of objects, to detect later whether their contents have changed. Calls no user code."""

import collections
import datetime
import decimal
import enum
import fractions
import itertools
import pathlib
import random
import types
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from skyward.wire.kinds.arrays import arrays_owned_by, is_array, is_derived_array
from skyward.wire.payloads.digest import content_address

__all__ = ["Fingerprint"]

_ATOMS = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type(...), range, uuid.UUID, decimal.Decimal}
    | {fractions.Fraction, datetime.date, datetime.time, datetime.datetime, datetime.timedelta}
)
_NAMED = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, enum.Enum, pathlib.PurePath)
_OPAQUE = frozenset({"logging", "threading", "_thread", "weakref"})
"""Packages whose objects change by mere use, or have no visible contents."""

_OBJECTS = 5_000
"""Limit on the objects whose contents are read."""

_ITEMS = 100_000
"""Limit on the items and attributes that are read, over all objects."""

_BYTES = 16 << 20
"""Limit on the bytes of arrays that are read, over all arrays."""

_LARGEST = 4 << 20
"""Limit on the bytes of one array; of a larger one, only the layout is recorded."""


class Fingerprint:
    """Records the contents of objects, within limits shared by all of them; beyond these, only identities."""

    def __init__(self) -> None:
        self._objects = _OBJECTS
        self._items = _ITEMS
        self._bytes = _BYTES

    def of(self, value: Any) -> list[Any]:
        """Return a list that compares equal to a later one if nothing that was read of `value` has changed."""
        found: list[Any] = []
        seen: dict[int, tuple[int, object]] = {}
        waiting: list[Any] = [value]
        while waiting:
            each = waiting.pop()
            kind = type(each)
            if kind in _ATOMS:
                found += (kind, each)
            elif kind.__module__ == "numpy" and hasattr(kind, "tobytes") and not is_array(each):
                found += (kind, each.tobytes())
            elif id(each) in seen:
                found.append(seen[id(each)][0])
            elif self._objects <= 0 or isinstance(each, _NAMED):
                found.append(id(each))
            else:
                seen[id(each)] = len(seen), each  # kept alive, so that no other object gets its id
                self._objects -= 1
                try:
                    parts = self._parts(each, kind)
                except Exception:  # unusual object, or another thread changes it
                    parts = None
                found += (kind, id(each) if parts is None else len(parts))
                self._add(parts or (), found, waiting)
        return found

    def _add(self, parts: Sequence[Any], found: list[Any], waiting: list[Any]) -> None:
        if len(parts) > self._items:
            parts = parts[: self._items]
        self._items -= len(parts)
        kinds = list(map(type, parts))
        if _ATOMS.issuperset(kinds):
            found += kinds
            found += parts
        else:
            waiting += parts

    def _parts(self, value: Any, kind: type) -> Sequence[Any] | None:
        """Return the contents of `value`; None if they cannot be read."""
        most = self._items
        if kind is dict:
            return [len(value), *islice(value, most), *islice(value.values(), most)]
        if kind is list or kind is tuple or kind is set:
            return [len(value), *islice(value, most)]
        if is_array(value) or is_derived_array(value):
            return self._of_array(value)
        read = _READ.get(kind) or _READ.get(f"{kind.__module__}.{kind.__qualname__}")
        if read is not None:
            return read(value)
        package = kind.__module__.partition(".")[0]
        if package == "pandas":
            arrays = arrays_owned_by(getattr(value, "_mgr", None))
            return [each for array in arrays for each in self._of_array(array)]
        return None if package in _OPAQUE else list(_contents(value, kind))

    def _of_array(self, array: Any) -> Sequence[Any]:
        layout = array.shape, str(array.dtype), array.flags.writeable
        if array.dtype.hasobject:
            return (*layout, *array.ravel()[: self._items].tolist())
        if array.nbytes > min(_LARGEST, self._bytes):
            return layout
        self._bytes -= array.nbytes
        return (*layout, content_address(memoryview(array.tobytes())))


_READ: dict[Any, Callable[[Any], Sequence[Any]]] = {
    bytearray: lambda value: (bytes(value),),
    itertools.count: lambda value: (repr(value),),
    random.Random: lambda value: (hash(value.getstate()),),
    "numpy.random._generator.Generator": lambda value: (value.bit_generator.state,),
    "numpy.random.mtrand.RandomState": lambda value: (value.get_state(legacy=False),),
    "torch.Tensor": lambda value: (value._version,),
    "torch.nn.parameter.Parameter": lambda value: (value._version,),
}
"""By type or full name of a type, the function that reads the contents of an object of exactly that type."""


def _contents(value: Any, kind: type) -> Iterator[Any]:
    """Yield the items of a container and the attributes of an object."""
    if isinstance(value, dict):
        yield from dict.keys(value)
        yield from dict.values(value)
    elif isinstance(value, list):
        yield from list.__iter__(value)
    elif isinstance(value, tuple):
        yield from tuple.__iter__(value)
    elif isinstance(value, set):
        yield from set.__iter__(value)
    elif isinstance(value, frozenset):
        yield from frozenset.__iter__(value)
    elif isinstance(value, collections.deque):
        yield from collections.deque.__iter__(value)
    try:
        attributes = object.__getattribute__(value, "__dict__") if kind.__dictoffset__ else None
    except AttributeError:
        attributes = None
    if type(attributes) is dict:
        yield from attributes.copy().values()
        yield from attributes
    for slot in _slots_of(kind):
        try:
            yield slot.__get__(value)
        except AttributeError:
            yield _UNSET


_UNSET = object()


@lru_cache(maxsize=1024)
def _slots_of(kind: type) -> tuple[Any, ...]:
    found = (each for base in kind.__mro__ for each in vars(base).values())
    return tuple(each for each in found if isinstance(each, types.MemberDescriptorType))
