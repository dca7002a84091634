"""Objects that a process has for all: its generators of random numbers, and the context of `decimal`.

A cell that uses them goes on with the numbers of the notebook, and the notebook with those of the cell. So they travel
as what they are, with their state: the object that comes out on the other side is that of the other process.
"""

import pickle
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["name_of", "object_named", "objects_used_by", "set_state", "state_of", "state_test"]

_USERS = {"random": {"random"}, "numpy.random": {"numpy", "pandas", "scipy", "sklearn"}, "decimal": {"decimal"}}
"""By the module that has an object for all, packages that use it."""

_KINDS = {"Random": "random", "RandomState": "numpy.random", "Context": "decimal"}
"""By the name of its type, the module that has an object for all."""

_SETTINGS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def objects_used_by(modules: Iterable[str]) -> Iterator[Any]:
    """Yield the objects that code which uses `modules` may use, as far as they are there."""
    used = {module.partition(".")[0] for module in modules}
    for name, users in _USERS.items():
        if users & used and name in sys.modules:
            yield object_named(name)


def object_named(module: str) -> Any:
    """Return the object that `module` has for all."""
    match module:
        case "random":
            return random.random.__self__  # type: ignore[attr-defined]  # a method of the one instance
        case "numpy.random":
            return sys.modules[module].rand.__self__
        case _:
            return sys.modules[module].getcontext()


def name_of(value: Any) -> str:
    """Return the module that has `value` for all; an empty string for any other object."""
    name = _KINDS.get(type(value).__name__, "")
    return name if name in sys.modules and value is object_named(name) else ""


def state_of(value: Any) -> Any:
    """Return the state of an object that a process has for all."""
    match name_of(value) or _KINDS[type(value).__name__]:
        case "random":
            return value.getstate()
        case "numpy.random":
            return value.get_state(legacy=False)
        case _:
            return [getattr(value, name) for name in _SETTINGS], dict(value.flags), dict(value.traps)


def set_state(value: Any, state: Any) -> None:
    """Let an object that a process has for all go on from `state`. Called by pickles."""
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
    """Return what tells, later, that the state of `value` is as it is now."""
    before = pickle.dumps(state_of(value))
    return lambda: pickle.dumps(state_of(value)) == before
