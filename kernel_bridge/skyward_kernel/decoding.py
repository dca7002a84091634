"""Commands of the panel: from what arrived to values as the schema has them, or an error that says what is wrong."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from skyward.errors import UsageError
from skyward_kernel.protocol import COMMANDS, Command

__all__ = ["LONGEST", "decode"]

LONGEST: Final = 10_000
"""Characters of a text, and entries of a mapping, that are taken."""

_KINDS = {next(field.default for field in fields(kind) if field.name == "kind"): kind for kind in COMMANDS}
_TYPES = {kind: get_type_hints(kind) for kind in COMMANDS}


def decode(message: object) -> Command:
    """The command that `message`, of JSON, is.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(message, Mapping):
        raise UsageError("The message is no command: it is no object.")
    kind = message.get("kind")
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise UsageError(f"The message is no command: there is none called {str(kind)[:40]!r}.")
    values: dict[str, Any] = {}
    for each in fields(known):
        if each.name not in message:
            if each.default is MISSING:
                raise UsageError(f"The command {kind} has no {each.name!r}.")
        elif not _fits(message[each.name], _TYPES[known][each.name]):
            raise UsageError(f"The {each.name!r} of the command {kind} is not what it must be.")
        else:
            values[each.name] = message[each.name]
    return known(**values)


def _fits(value: object, wanted: Any) -> bool:
    if wanted is str:
        return isinstance(value, str) and len(value) <= LONGEST
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53
    if wanted is NoneType:
        return value is None
    if get_origin(wanted) is UnionType:
        return any(_fits(value, each) for each in get_args(wanted))
    if get_origin(wanted) is Mapping:
        _, inner = get_args(wanted)
        if not isinstance(value, Mapping) or len(value) > LONGEST:
            return False
        return all(_fits(key, str) and _fits(item, inner) for key, item in value.items())
    return value in get_args(wanted)
