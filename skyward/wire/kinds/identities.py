"""Pickling of objects that code recognises by identity: NaN in containers, and sentinels of modules.

A dict finds `numpy.nan` by its identity, and code tests `field.default is dataclasses.MISSING`. NaN that both ends have
is pickled by name, any other NaN by a key under which both ends find the same object from then on. A sentinel, which is
an object without attributes that is a variable of a module, is pickled by its name there.
"""

import importlib
import math
import sys
import threading
import uuid
from collections import OrderedDict
from types import ModuleType
from typing import Any

from cloudpickle import cloudpickle as inner

__all__ = ["NanKeys", "Sentinels", "has_nan", "nan_of", "the_sentinel"]

_NAMED = ("numpy", "math")
"""Modules that have a `nan`."""
_MOST = 4096
_MOST_OF_PICKLE = 256
"""Unnamed NaN objects whose identity is kept: the most recently used of the process, and as many in one pickle."""
_HEAP_TYPE = 1 << 9

_process = uuid.uuid4().hex
_known: OrderedDict[str, float] = OrderedDict()
_keys: dict[int, str] = {}
_lock = threading.Lock()


def has_nan(data: bytes) -> bool:
    """Return whether a pickle may contain NaN."""
    return b"G\x7f\xf8" in data or b"G\xff\xf8" in data


class NanKeys:
    """Assigns each NaN of one pickle the key by which the other end finds it."""

    def __init__(self) -> None:
        modules = ((name, sys.modules.get(name)) for name in _NAMED)
        self._named = {id(module.nan): name for name, module in modules if isinstance(module, ModuleType)}
        self._left = _MOST_OF_PICKLE

    def of(self, nan: float) -> str | None:
        """Return the key; None if there are too many."""
        name = self._named.get(id(nan))
        if name is not None:
            return name
        if (known := _keys.get(id(nan))) is None:
            if not self._left:
                return None
            self._left -= 1
            known = f"{_process}:{uuid.uuid4().hex}"
        _remember(known, nan)
        return known


def nan_of(key: str) -> float:
    """Return the NaN of this key."""
    if key in _NAMED:
        try:
            nan: float = importlib.import_module(key).nan
            return nan
        except ImportError:
            return math.nan
    return _remember(key, float("nan"))


def _remember(key: str, nan: float) -> float:
    """Return the NaN known by this key; register and return `nan` if there is none."""
    with _lock:
        nan = _known.setdefault(key, nan)
        _known.move_to_end(key)
        _keys[id(nan)] = key
        if len(_known) > _MOST:
            _, oldest = _known.popitem(last=False)
            del _keys[id(oldest)]
        return nan


class Sentinels:
    """Finds the module variables that sentinels are, for one pickle."""

    def __init__(self) -> None:
        self._kinds: dict[type, dict[int, tuple[str, str]]] = {}

    def place_of(self, value: object) -> tuple[str, str] | None:
        """Return the names of the module and the variable of a sentinel; None for other values."""
        kind = type(value)
        places = self._kinds.get(kind)
        if places is None:
            places = self._kinds[kind] = _places(kind) if _may_be_sentinel(kind) else {}
        place = places.get(id(value)) if places else None
        return place if place is not None and object.__getstate__(value) is None else None


def the_sentinel(module: str, name: str) -> Any:
    """Return a sentinel. Called by pickles."""
    return getattr(importlib.import_module(module), name)


def _may_be_sentinel(kind: Any) -> bool:
    is_python = kind is object or (kind.__flags__ & _HEAP_TYPE and "__module__" in vars(kind))
    own = kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__
    return bool(is_python) and not own and kind.__module__ != "__main__" and not issubclass(kind, type)


def _places(kind: type) -> dict[int, tuple[str, str]]:
    """Return the variables of the modules that hold objects of `kind`, by identity; for `object`, of all modules."""
    names = list(sys.modules) if kind is object else [kind.__module__]
    found: dict[int, tuple[str, str]] = {}
    for name in names:
        module = sys.modules.get(name)
        if name in ("__main__", "__mp_main__") or not isinstance(module, ModuleType):
            continue
        if inner._is_registered_pickle_by_value(module):
            continue
        for variable, value in list(vars(module).items()):
            if type(value) is kind:
                found.setdefault(id(value), (name, variable))
    return found
