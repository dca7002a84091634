"""Pickling of objects whose class has a `__getattr__`.

pickle looks special methods up on the object, and a `__getattr__` answers for those that the class lacks: it fails,
because the copy has no attributes yet, or returns something else. Here they are looked up on the class.
"""

import copyreg
from typing import Any

__all__ = ["reduce_dynamic", "reduced_of", "set_state_of"]

_ASKED = ("__getnewargs__", "__getnewargs_ex__", "__setstate__")


def reduce_dynamic(value: Any) -> Any:
    """Return how to rebuild `value`; None if pickle handles it correctly."""
    kind: Any = type(value)
    if not hasattr(kind, "__getattr__") or any(hasattr(kind, name) for name in _ASKED):
        return None
    if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
        return None
    if kind in copyreg.dispatch_table or isinstance(value, (type, *_WITH_ITEMS)) or not _is_python(kind):
        return None
    make = copyreg.__newobj__  # type: ignore[attr-defined]  # missing in typeshed
    state = kind.__getstate__(value)
    return (make, (kind,)) if state is None else (make, (kind,), state, None, None, set_state_of)


_WITH_ITEMS = (list, dict)


def reduced_of(value: Any) -> Any:
    """Return how pickle would rebuild `value`."""
    found = reduce_dynamic(value)
    return value.__reduce_ex__(5) if found is None else found[:3]


def _is_python(kind: type) -> bool:
    """Return whether objects of `kind` have only attributes and slots of Python classes."""
    return all(base is object or "__module__" in vars(base) for base in kind.__mro__)


def set_state_of(value: Any, state: Any) -> None:
    """Set the attributes of a new object. Called by pickles."""
    attributes, in_slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        value.__dict__.update(attributes)
    for name, each in (in_slots or {}).items():
        object.__setattr__(value, name, each)
