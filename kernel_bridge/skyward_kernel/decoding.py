"""Decoding of the panel's messages into commands."""

from collections.abc import Mapping
from dataclasses import fields

from skyward.errors import UsageError
from skyward.wire.protocol.decoding import Malformed, Reader, record
from skyward_kernel.protocol import COMMANDS, Command

__all__ = ["decode"]

_READERS: Mapping[object, Reader[Command]] = {
    next(field.default for field in fields(kind) if field.name == "kind"): record(kind, exact=False)
    for kind in COMMANDS
}


def decode(message: object) -> Command:
    """Decode a JSON message into a command.

    Raises:
        UsageError: the message is not a valid command.
    """
    if not isinstance(message, Mapping):
        raise UsageError("Invalid message: not a JSON object.")
    kind = message.get("kind")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise UsageError(f"Unknown command {str(kind)[:40]!r}.")
    try:
        return read(message, "the message")
    except Malformed as error:
        raise UsageError(f"Invalid message: {error}") from None
