"""Attributes of objects and classes: which of them are content, and access to them without the user's hooks."""

import abc
import copyreg
import types
import weakref
from collections.abc import Mapping
from typing import Any

import cloudpickle

from skyward.kept.handles import Kept
from skyward.wire.kinds.stateless import OF_CLASSES
from skyward.wire.objects.library_settings import LibrarySettings
from skyward.wire.objects.mutability import FIXED_KINDS, WRAPPERS

__all__ = [
    "HEAP_TYPE",
    "OF_FUNCTIONS",
    "WEAK",
    "all_attributes",
    "attributes_in",
    "of_user",
    "registered_with",
    "remove_attribute",
    "set_attribute",
    "set_attributes",
    "slots_of",
]


WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
"""Types of collections of weak references."""

HEAP_TYPE = 1 << 9
"""Flag of types created by a `class` statement; some built-in types have it too."""

OF_FUNCTIONS = (
    *("__code__", "__defaults__", "__kwdefaults__", "__doc__", "__name__", "__qualname__", "__module__"),
    "__type_params__",
)
"""Settable attributes of any function, besides its annotations and its own attributes."""


def registered_with(kind: type) -> tuple[type, ...]:
    """Return the classes that are registered as subclasses of an abstract one."""
    if not isinstance(kind, abc.ABCMeta):
        return ()
    found = (reference() for reference in abc._get_dump(kind)[0])  # type: ignore[attr-defined]  # missing in typeshed
    return tuple(each for each in found if each is not None)


def of_user(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a class that the user may have set."""
    return {
        name: value
        for name, value in attributes.items()
        if name not in OF_CLASSES and not isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType))
    }


def attributes_in(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object that has nothing else and is pickled by default; None for any other."""
    kind = type(value)
    known = _ordinary.get(kind)
    if known is None:
        known = _ordinary[kind] = _is_ordinary(kind)
    return value.__dict__ if known else None


_ordinary: "weakref.WeakKeyDictionary[type, bool]" = weakref.WeakKeyDictionary()

_BUILT_IN = (object, types.SimpleNamespace)
"""Built-in bases of objects that have only attributes."""

_OWN_WAYS = ("__setstate__", "__getnewargs__", "__getnewargs_ex__")


def _is_ordinary(kind: type) -> bool:
    return (
        all(base in _BUILT_IN or _is_python(base) for base in kind.__mro__)
        and kind.__dictoffset__ != 0
        and all(
            any(getattr(kind, name) is getattr(base, name) for base in _BUILT_IN)
            for name in ("__reduce__", "__reduce_ex__", "__getstate__")
        )
        and not any(hasattr(kind, name) for name in _OWN_WAYS)
        and not slots_of(kind)
        and kind not in cloudpickle.Pickler.dispatch_table
        and not issubclass(kind, (*FIXED_KINDS, *WEAK, *WRAPPERS, Kept, LibrarySettings))
    )


def _is_python(kind: type) -> bool:
    return bool(kind.__flags__ & HEAP_TYPE) and "__module__" in vars(kind)


def all_attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, including those in slots."""
    slots = {name: getattr(value, name) for name in slots_of(type(value)) if hasattr(value, name)}
    return {**(value.__dict__ if type(value).__dictoffset__ else {}), **slots}


def set_attribute(value: Any, name: str, part: Any) -> None:
    """Set an attribute of an object. The class's `__setattr__` is bypassed: it may refuse."""
    if isinstance(value, type):
        setattr(value, name, part)
    elif name in slots_of(type(value)):
        object.__setattr__(value, name, part)
    else:
        value.__dict__[name] = part


def remove_attribute(value: Any, name: str) -> None:
    """Remove an attribute of an object, if present."""
    if isinstance(value, type):
        if name in value.__dict__:
            delattr(value, name)
    elif name not in slots_of(type(value)):
        value.__dict__.pop(name, None)
    elif hasattr(value, name):
        object.__delattr__(value, name)


def slots_of(kind: type) -> list[str]:
    return copyreg._slotnames(kind)  # type: ignore[attr-defined,no-any-return]  # as used by object.__getstate__


def set_attributes(value: Any, attributes: dict[str, Any]) -> None:
    """Replace the attributes of `value`. Called by pickles."""
    value.__dict__.clear()
    value.__dict__.update(attributes)
