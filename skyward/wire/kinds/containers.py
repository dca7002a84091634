"""Pickling of objects whose Python classes derive from the built-in containers.

pickle fills a copy through the methods of its class, which the class may override: a `__setitem__` that converts, an
`append` that counts. Their results would be converted or counted again. Here a copy is filled through the methods of
the built-in class, without a call of `__init__`. A class with its own `__reduce__` is left to that.
"""

import copyreg
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from types import BuiltinFunctionType
from typing import Any

import cloudpickle

from skyward.wire.kinds.dynamic_attributes import set_state_of

__all__ = ["CONTAINERS", "Filling", "filling_of", "is_own_dict", "reduce_container", "refill"]

CONTAINERS = (dict, list, set, deque)

type Filling = tuple[Any, Any, Any, bool]
"""The items, the default factory, the state, and whether the object is its own `__dict__`."""

_NATIVE: tuple[type, ...] = (OrderedDict, defaultdict, *CONTAINERS)
_REDUCES = tuple(kind.__reduce__ for kind in (object, OrderedDict, defaultdict, Counter, set, deque))
_OWN_WAYS = frozenset({"__setitem__", "items", "append", "extend", "__iter__"})
"""Methods by which pickle reads a dict or a list, and fills its copy."""

_natives: "weakref.WeakKeyDictionary[type, type | None]" = weakref.WeakKeyDictionary()


def reduce_container(value: Any) -> Any:
    """Return how to rebuild `value`; None if pickle handles it correctly."""
    native = _native_of(value)
    if native is None:
        return None
    maxlen = value.maxlen if native is deque else None
    return _blank, (type(value), native, maxlen), _filling(value, native), None, None, _fill


def filling_of(value: Any) -> Filling | None:
    """Return the content of `value`, if `reduce_container` handles it."""
    native = _native_of(value)
    return None if native is None else _filling(value, native)


def refill(value: Any, items: Any, factory: Any) -> None:
    """Replace the items of `value`."""
    native: Any = _native_of(value) or next(kind for kind in _NATIVE if isinstance(value, kind))
    native.clear(value)
    if native is list or native is deque:
        native.extend(value, items)
    elif native is set:
        set.update(value, items)
    else:
        put = OrderedDict.__setitem__ if native is OrderedDict else dict.__setitem__
        for key, each in items.items():
            put(value, key, each)
    if native is defaultdict:
        _FACTORY.__set__(value, factory)


_FACTORY: Any = vars(defaultdict)["default_factory"]


def _native_of(value: Any) -> type | None:
    """Return the built-in class to fill `value` by; None if pickle handles it correctly."""
    kind = type(value)
    if kind in _NATIVE or kind is Counter:
        return None
    if kind not in _natives:
        _natives[kind] = _find_native(kind)
    native = _natives[kind]
    if native in (dict, list) and _by_pickle(kind):
        return native if is_own_dict(value) or hasattr(kind, "__getattr__") else None
    return native


def _find_native(kind: Any) -> type | None:
    native: type = next(base for base in kind.__mro__ if base in _NATIVE)
    maker = next(base for base in kind.__mro__ if isinstance(vars(base).get("__new__"), BuiltinFunctionType))
    if not (issubclass(native, maker) and kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ in _REDUCES):
        return None
    is_registered = kind in copyreg.dispatch_table or kind in cloudpickle.Pickler.dispatch_table
    return None if is_registered else native


def _by_pickle(kind: type) -> bool:
    """Return whether pickle calls no method of a Python class for the items of a dict or list."""
    own = [base for base in kind.__mro__ if "__module__" in vars(base)]
    return not any(_OWN_WAYS & vars(base).keys() for base in own) and not issubclass(kind, Counter)


def _filling(value: Any, native: type) -> Filling:
    items: Any
    if native is OrderedDict:
        items = {key: dict.__getitem__(value, key) for key in OrderedDict.__iter__(value)}
    elif issubclass(native, dict):
        items = dict(dict.items(value))
    else:
        items = tuple(native.__iter__(value))  # type: ignore[attr-defined]  # a list, a set or a deque
    factory = value.default_factory if native is defaultdict else None
    kind: Any = type(value)
    is_own = is_own_dict(value)
    return items, factory, None if is_own else kind.__getstate__(value), is_own


def is_own_dict(value: Any) -> bool:
    """Return whether the attributes of a dict are its items."""
    return type(value).__dictoffset__ != 0 and value.__dict__ is value


def _blank(kind: type, native: Any, maxlen: int | None) -> Any:
    made = native.__new__(kind)
    if maxlen is not None:
        deque.__init__(made, (), maxlen)
    return made


def _fill(value: Any, filling: Filling) -> None:
    items, factory, state, is_own = filling
    refill(value, items, factory)
    if is_own:
        value.__dict__ = value
    elif state is not None and hasattr(type(value), "__setstate__"):
        value.__setstate__(state)
    elif state is not None:
        set_state_of(value, state)
