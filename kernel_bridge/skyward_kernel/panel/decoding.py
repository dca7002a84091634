"""Validation of the panel's messages: decodes JSON into requests, or raises an error that names the invalid field."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from skyward.commands.messages import LONGEST, validate_arguments
from skyward.errors import UsageError
from skyward_kernel.commands.registry import COMMANDS
from skyward_kernel.panel.protocol import REQUESTS, Request, Run, Value

__all__ = ["decode"]

_KINDS = {next(field.default for field in fields(kind) if field.name == "kind"): kind for kind in REQUESTS}
_TYPES = {kind: get_type_hints(kind) for kind in REQUESTS}


def decode(message: object) -> Request:
    """Decode a JSON message into a request.

    Raises:
        UsageError: the message is not a valid request.
    """
    if not isinstance(message, Mapping):
        raise UsageError("Invalid message: not a JSON object.")
    kind = message.get("kind")
    request = _KINDS.get(kind) if isinstance(kind, str) else None
    if request is None:
        raise UsageError(f"Unknown request {str(kind)[:40]!r}.")
    values: dict[str, Any] = {}
    for each in fields(request):
        if each.name not in message:
            if each.default is MISSING:
                raise UsageError(f"Request {kind}: missing field {each.name!r}.")
        elif not _fits(message[each.name], _TYPES[request][each.name]):
            raise UsageError(f"Request {kind}: invalid value for field {each.name!r}.")
        else:
            values[each.name] = message[each.name]
    if request is Run:
        name = values["command"]
        if name not in COMMANDS:
            raise UsageError(f"Unknown command {name[:40]!r}.")
        validate_arguments(COMMANDS[name], values["arguments"])
    return request(**values)


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
        if inner is Value:
            return isinstance(value, Mapping)  # the arguments of a command, which the registry validates
        if not isinstance(value, Mapping) or len(value) > LONGEST:
            return False
        return all(_fits(key, str) and _fits(item, inner) for key, item in value.items())
    return value in get_args(wanted)
