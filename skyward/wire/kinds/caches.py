"""Pickling of functions decorated with `functools.lru_cache` or `functools.cache`.

Where other functions are pickled by value, these are too, with an empty cache. On a node the cache is kept between
calls, for the life of the worker process: scripts rely on it to keep a model or a connection. If a call could change a
cache other than by calling its function, that cache is not kept: each call has its own, as it has its own globals.

In a cell, a function of the notebook starts with an empty cache, and what the cell adds to it is not returned. Clearing
it on the node clears the notebook's.
"""

import threading
from collections.abc import Callable
from typing import Any

from cloudpickle import cloudpickle as inner

from skyward.wire.kinds.versions import note_version

__all__ = [
    *("Caches", "attributes_of_cached", "clear_cache", "is_found_by_name", "reduce_cached", "restore_cached"),
    *("was_cleared", "watch_clearing"),
]

_MADE_HERE = ("__wrapped__", "cache_parameters")


class Caches:
    """The cached functions that a node keeps, the newest of each name."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, Any]] = {}
        self._lock = threading.Lock()

    def keep(self, name: str, version: str, function: Any) -> Any:
        """Return the kept function of this name and version; keep and return `function` if there is none."""
        with self._lock:
            known = self._kept.get(name)
            if known is None or known[0] != version:
                known = self._kept[name] = (version, function)
                note_version(function, version)
            return known[1]


def reduce_cached(function: Any, make: Callable[..., Any], more: object) -> Any:
    """Return how to rebuild a cached function by a call of `make`; NotImplemented if it is pickled by name.

    Args:
        function: the cached function.
        make: takes the wrapped function, the parameters of its cache, its name, and `more`.
        more: see `make`.
    """
    if is_found_by_name(function):
        return NotImplemented
    name = f"{function.__module__}.{function.__qualname__}"
    arguments = (function.__wrapped__, function.cache_parameters(), name, more)
    return make, arguments, attributes_of_cached(function), None, None, restore_cached


def is_found_by_name(function: Any) -> bool:
    """Return whether a cached function belongs to a module that the other end has, too."""
    found = inner._lookup_module_and_qualname(function)
    return found is not None and not inner._is_registered_pickle_by_value(found[0])


def attributes_of_cached(function: Any) -> dict[str, Any]:
    """Return the attributes that the user has set on a cached function."""
    return {
        name: value
        for name, value in vars(function).items()
        if name not in _MADE_HERE and not isinstance(value, _Clearing)
    }


def restore_cached(function: Any, attributes: dict[str, Any]) -> None:
    """Set attributes of the user's on a cached function. Called by pickles."""
    vars(function).update(attributes)


class _Clearing:
    """The method `cache_clear` of a function; records that it was called."""

    def __init__(self, function: Any) -> None:
        self._clear = function.cache_clear
        self.is_done = False

    def __call__(self) -> None:
        self.is_done = True
        self._clear()


def watch_clearing(function: Any) -> None:
    """Record from now on whether the cache of `function` is cleared."""
    function.cache_clear = _Clearing(function)


def was_cleared(function: Any) -> bool:
    """Return whether the cache of a watched function was cleared."""
    clearing = vars(function).get("cache_clear")
    return isinstance(clearing, _Clearing) and clearing.is_done


def clear_cache(function: Any) -> None:
    """Clear the cache of a function, whatever attributes the user has set on it."""
    type(function).cache_clear(function)
