"""Decoding of the panel's messages into requests."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from skyward.errors import UsageError
from skyward.frontends.commands import Command, Json, Malformed, Reader, json_type, reader_of, record, sent_forms, wrong
from skyward_kernel.commands.registry import COMMANDS
from skyward_kernel.panel.protocol import REQUESTS, Request, RunCommand

__all__ = ["decode"]


def _true(value: object, name: str) -> bool:
    return True if value is True else wrong(name, "true")


_READERS: Mapping[object, Reader[Request]] = {
    next(field.default for field in fields(kind) if field.name == "kind"): record(kind, exact=False)
    for kind in REQUESTS
}
_ARGUMENTS: Mapping[Json, Reader[Any]] = {
    "text": reader_of(str),
    "number": reader_of(int),
    "true": _true,
    "texts": reader_of(tuple[str, ...]),
    "options": reader_of(Mapping[str, str]),
}


def decode(message: object) -> Request:
    """Decode a JSON message into a request.

    Raises:
        UsageError: the message is not a valid request.
    """
    if not isinstance(message, Mapping):
        raise UsageError("Invalid message: not a JSON object.")
    kind = message.get("kind")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise UsageError(f"Unknown request {str(kind)[:40]!r}.")
    try:
        request = read(message, "the message")
        if isinstance(request, RunCommand):
            command = COMMANDS.get(request.command)
            if command is None:
                raise UsageError(f"Unknown command {request.command[:40]!r}.")
            return replace(request, arguments=_decode_arguments(command, request.arguments))
        return request
    except Malformed as error:
        raise UsageError(f"Invalid message: {error}") from None


def _decode_arguments(command: Command, given: Mapping[str, object]) -> dict[str, Any]:
    """Decode the arguments of one form of a command.

    Raises:
        UsageError: the command has no such form.
        Malformed: a value has another type.
    """
    forms = [set(form.arguments) for form in sent_forms(command)]
    if not forms:
        raise UsageError(f"Command {command.name} cannot be sent to the kernel.")
    if set(given) not in forms:
        wanted = ", or ".join(", ".join(sorted(form)) for form in forms)
        raise UsageError(f"Command {command.name} takes the arguments {wanted}.")
    return {
        name: _ARGUMENTS[json_type(command, name)](value, f"{command.name}.{name}") for name, value in given.items()
    }
