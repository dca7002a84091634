"""Process-wide objects: generators of random numbers, the context of `decimal`, and settings of libraries.

A cell continues with the state of the notebook's, and the notebook with the cell's. So they are sent as references with
a state, and become the other process's own object.
"""

import importlib
import pickle
import random
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

from skyward.wire.objects.library_settings import LibrarySettings, settings_named, settings_used_by

__all__ = [
    "generators_used_by",
    "name_of",
    "object_named",
    "set_state",
    "settings_used_by",
    "state_of",
    "state_test",
    "title_of",
]

_USERS = {"random": {"random"}, "numpy.random": {"numpy", "pandas", "scipy", "sklearn"}, "decimal": {"decimal"}}
"""Packages that use a process-wide object, by the module that owns it."""

_KINDS = {"Random": "random", "RandomState": "numpy.random", "Context": "decimal"}
"""The module that owns a process-wide object, by the name of the object's type."""

_SETTINGS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def generators_used_by(packages: Collection[str]) -> Iterator[Any]:
    """Yield the generators, and the context of `decimal`, that code which uses `packages` may use."""
    for name, users in _USERS.items():
        if not users.isdisjoint(packages) and name in sys.modules:
            yield object_named(name)


def object_named(name: str) -> Any:
    """Return the process-wide object with a name from `name_of`."""
    if (settings := settings_named(name)) is not None:
        return settings
    module = importlib.import_module(name)
    match name:
        case "random":
            return random.random.__self__  # type: ignore[attr-defined]  # a method of the one instance
        case "numpy.random":
            return module.rand.__self__
        case _:
            return module.getcontext()


def name_of(value: Any) -> str:
    """Return the name of a process-wide object; an empty string for any other object."""
    if isinstance(value, LibrarySettings):
        return value.name
    name = _KINDS.get(type(value).__name__, "")
    return name if name in sys.modules and value is object_named(name) else ""


def title_of(value: Any) -> str:
    """Return the name of a process-wide object for a sentence; an empty string for any other object."""
    if isinstance(value, LibrarySettings):
        return value.title
    return "the random numbers" if name_of(value) else ""


def state_of(value: Any) -> Any:
    """Return the state of a process-wide object."""
    if isinstance(value, LibrarySettings):
        return value.get()
    match name_of(value) or _KINDS[type(value).__name__]:
        case "random":
            return value.getstate()
        case "numpy.random":
            return value.get_state(legacy=False)
        case _:
            return [getattr(value, name) for name in _SETTINGS], dict(value.flags), dict(value.traps)


def set_state(value: Any, state: Any) -> None:
    """Set the state of a process-wide object. Called by pickles."""
    if isinstance(value, LibrarySettings):
        value.put(state)
        return
    match _KINDS[type(value).__name__]:
        case "random":
            value.setstate(state)
        case "numpy.random":
            value.set_state(state)
        case _:
            settings, flags, traps = state
            for name, setting in zip(_SETTINGS, settings, strict=True):
                setattr(value, name, setting)
            value.flags.update(flags)
            value.traps.update(traps)


def state_test(value: Any) -> Callable[[], bool]:
    """Return a function that tells, later, whether the state of `value` is the same as now."""
    if isinstance(value, LibrarySettings):
        as_they_came = value.get()
        return lambda: value.get() == as_they_came  # they may hold functions, whose pickles differ
    before = pickle.dumps(state_of(value))
    return lambda: pickle.dumps(state_of(value)) == before
