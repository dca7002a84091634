"""Pickling of enums of a script or notebook, with the effects of their `__new__` and `__init__` on the members.

cloudpickle makes the members again from their values, without these methods. Here each member is made from its content,
and gets its attributes.
"""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from cloudpickle import cloudpickle as inner

__all__ = ["attributes_of_members", "is_machinery", "reduce_enum", "restore_members"]

_OF_MEMBERS = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_"})
"""Attributes that `enum` sets itself."""
_MACHINERY = re.compile(r"_[^_].*_")
_DATA: dict[type, Any] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda member: bytes.__getitem__(member, slice(None)),
    tuple: lambda member: tuple.__getitem__(member, slice(None)),
}
"""Readers of a member's content, by the built-in class that its enum derives from."""

type _Member = tuple[object, Any]


def reduce_enum(kind: Any, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how to rebuild an enum, given how cloudpickle would; `restore_members` completes it."""
    _, (bases, name, qualname, members, *rest), (attributes, _), *others = reduced
    native = kind._member_type_
    if native not in _DATA and native.__new__ is not object.__new__:
        return reduced
    take = _DATA.get(native)
    members = {
        each: (None if take is None else take(member), member._value_) for each, member in kind.__members__.items()
    }
    attributes = {key: value for key, value in attributes.items() if key not in members}
    return _make_enum, (bases, name, qualname, members, *rest), (attributes, attributes_of_members(kind)), *others


def _make_enum(bases: Any, name: str, qualname: str, members: Mapping[str, _Member], *rest: Any) -> Any:
    native: Any = next((base for base in _DATA if any(issubclass(each, base) for each in bases)), None)

    def make(kind: Any, part: _Part) -> Any:
        data, value = part.member
        member = object.__new__(kind) if native is None else native.__new__(kind, data)
        member._value_ = value
        return member

    parts: dict[str, Any] = {each: _Part(member) for each, member in members.items()}
    module, _, _ = rest
    metaclass: Any = type(bases[-1])
    namespace = metaclass.__prepare__(name, bases)
    namespace |= {"__new__": make, "__init__": _ignore}
    for each, part in parts.items():
        namespace[each] = part
    made = metaclass.__new__(metaclass, name, bases, namespace)
    for own in ("__init__", "__new_member__"):
        if own in vars(made):
            delattr(made, own)
    made.__module__, made.__qualname__ = module, qualname
    return inner._lookup_class_or_track(rest[1], made)


class _Part:
    """The content that a member of an enum is made from."""

    def __init__(self, member: _Member) -> None:
        self.member = member


def _ignore(*_: object) -> None:
    """Replace the `__init__` of an enum whose members exist already."""


def attributes_of_members(kind: Any) -> dict[str, dict[str, Any]]:
    """Return the attributes that the user has set on the members, by name of the member."""
    found = {}
    for name, member in kind.__members__.items():
        own = {key: value for key, value in vars(member).items() if key not in _OF_MEMBERS}
        if own and name == member._name_:
            found[name] = own
    return found


def restore_members(kind: type, attributes: Mapping[str, Mapping[str, Any]]) -> None:
    """Set these attributes on the members of an enum, and remove all others of the user's."""
    if not issubclass(kind, Enum):
        return
    for member in kind:
        own, new = vars(member), attributes.get(member._name_, {})
        for key in own.keys() - new.keys() - _OF_MEMBERS:
            del own[key]
        own.update(new)


def is_machinery(kind: type, name: str) -> bool:
    """Return whether an attribute of an enum is internal to `enum`."""
    return name in getattr(kind, "__members__", {}) or _MACHINERY.fullmatch(name) is not None
