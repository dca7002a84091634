"""Objects that cannot change, and the parts of immutable objects."""

import datetime
import decimal
import enum
import fractions
import functools
import gc
import pathlib
import re
import sys
import types
import uuid
import weakref
from collections.abc import Iterable
from typing import Any

from cloudpickle import cloudpickle as inner

from skyward.kept.handles import Kept
from skyward.kept.keep import stand_in
from skyward.wire.kinds.arrays import ArrayMemory
from skyward.wire.kinds.caches import is_found_by_name
from skyward.wire.kinds.stateless import CACHED
from skyward.wire.kinds.type_variables import TYPING

__all__ = [
    "FIXED_KINDS",
    "PLAIN_KINDS",
    "WRAPPERS",
    "behind_proxy",
    "is_fixed",
    "is_plain",
    "is_shared_visibly",
    "parts_of",
]


PLAIN_KINDS: frozenset[type] = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), range, slice}
    | {types.CodeType, re.Pattern}
    | {decimal.Decimal, fractions.Fraction, uuid.UUID, datetime.date, datetime.time, datetime.datetime}
    | {datetime.timedelta, datetime.timezone}
)
"""Types of objects whose identity is irrelevant."""

FIXED_KINDS = (pathlib.PurePath, enum.Enum, ArrayMemory)
"""Types that are fixed, with their subclasses."""

_NUMPY_FIXED = frozenset({"dtype", "generic", "ufunc"})

_ANNOTATIONS = frozenset({types.GenericAlias, types.UnionType})

WRAPPERS = (staticmethod, classmethod, property, functools.cached_property)
"""Types that wrap functions of a class."""

_fixed: "weakref.WeakKeyDictionary[type, bool]" = weakref.WeakKeyDictionary()


def is_plain(value: object) -> bool:
    """Return whether the identity of `value` is irrelevant."""
    return type(value) in PLAIN_KINDS


def is_fixed(value: Any) -> bool:
    """Return whether `value` and its parts cannot change, or whether it stays on its node if it does."""
    kind = type(value)
    if kind in PLAIN_KINDS or kind is Kept or stand_in(value) is not None:
        return True
    if isinstance(value, type):
        return value in inner._BUILTIN_TYPE_NAMES or not _is_by_value(value)
    if isinstance(value, types.FunctionType):
        return not _is_by_value(value)
    if kind is CACHED:
        return is_found_by_name(value)
    if kind is types.ModuleType:
        return sys.modules.get(value.__name__) is value
    if kind in _ANNOTATIONS:
        return all(map(is_fixed, _annotated(value)))
    if kind is types.BuiltinFunctionType:
        return isinstance(value.__self__, (types.ModuleType, type, type(None)))
    known = _fixed.get(kind)
    if known is None:
        known = _fixed[kind] = issubclass(kind, FIXED_KINDS) or any(
            base.__module__ == "numpy" and base.__name__ in _NUMPY_FIXED for base in kind.__mro__
        )
    return known


def is_shared_visibly(value: Any) -> bool:
    """Return whether code could observe, by a change or by identity, that two objects share `value`."""
    if is_fixed(value) or isinstance(value, type):
        return False
    return not isinstance(value, (tuple, frozenset)) or any(map(is_shared_visibly, value))


def _is_by_value(value: Any) -> bool:
    return not inner._should_pickle_by_reference(value)


def parts_of(value: Any) -> Iterable[Any] | None:
    """Return the parts of an immutable object; None for any other object."""
    kind = type(value)
    if isinstance(value, (tuple, frozenset)):
        return value
    if isinstance(value, TYPING):
        return ()
    if kind in _ANNOTATIONS:
        return _annotated(value)
    if kind is types.MethodType:
        return (value.__self__, value.__func__)
    if isinstance(value, WRAPPERS):
        return [part for part in vars(value).values() if part is not None] if kind not in WRAPPERS else _wrapped(value)
    if kind is types.BuiltinFunctionType or kind is types.MethodWrapperType:
        return (value.__self__,)
    if kind is types.MappingProxyType:
        return (behind_proxy(value),)
    if kind.__module__ == "numpy.random._generator" and kind.__name__ == "Generator":
        return (value.bit_generator,)
    return None


def _annotated(value: Any) -> tuple[Any, ...]:
    return (getattr(value, "__origin__", None), *value.__args__)


def behind_proxy(proxy: Any) -> Any:
    """Return the mapping behind a `MappingProxyType`."""
    return gc.get_referents(proxy)[0]


def _wrapped(value: Any) -> Iterable[Any]:
    match value:
        case property():
            return (value.fget, value.fset, value.fdel)
        case functools.cached_property():
            return (value.func,)
        case _:
            return (value.__func__,)
