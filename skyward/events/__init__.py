"""Typed events of a pool: `for event in pool.events(): ...`. See docs/use/events.md.

The kinds are loaded on first use: a node loads this package for its metrics only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyward.events import kinds
    from skyward.events.kinds import *  # noqa: F403  # each kind is listed once, in `kinds.__all__`
    from skyward.events.stream import EventStream

    __all__ = ["EventStream"]
    __all__ += kinds.__all__


def __getattr__(name: str) -> Any:
    """Load all public names when one is first used."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)
    found = import_module("skyward.events.kinds")
    names = globals()
    names.update({each: getattr(found, each) for each in found.__all__})
    names["EventStream"] = import_module("skyward.events.stream").EventStream
    names["__all__"] = ["EventStream", *found.__all__]
    if name not in names["__all__"] and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return names[name]
