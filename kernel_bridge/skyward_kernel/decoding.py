"""Validation of the panel's messages: decodes JSON into commands, or raises an error that names the invalid field."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from skyward.errors import UsageError
from skyward_kernel.protocol import COMMANDS, Command

__all__ = ["LONGEST", "decode"]

LONGEST: Final = 10_000
"""Maximum number of characters of a text, and of entries of a mapping."""

_KINDS = {next(field.default for field in fields(kind) if field.name == "kind"): kind for kind in COMMANDS}
_TYPES = {kind: get_type_hints(kind) for kind in COMMANDS}


def decode(message: object) -> Command:
    """Decode a JSON message into a command.

    Raises:
        UsageError: the message is not a valid command.
    """
    if not isinstance(message, Mapping):
        raise UsageError("Invalid message: not a JSON object.")
    kind = message.get("kind")
    command = _KINDS.get(kind) if isinstance(kind, str) else None
    if command is None:
        raise UsageError(f"Unknown command {str(kind)[:40]!r}.")
    values: dict[str, Any] = {}
    for each in fields(command):
        if each.name not in message:
            if each.default is MISSING:
                raise UsageError(f"Command {kind}: missing field {each.name!r}.")
        elif not _fits(message[each.name], _TYPES[command][each.name]):
            raise UsageError(f"Command {kind}: invalid value for field {each.name!r}.")
        else:
            values[each.name] = message[each.name]
    return command(**values)


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
