"""Text for other processes: every string that leaves a node can be encoded as UTF-8."""

import base64
from dataclasses import fields, is_dataclass, replace
from math import isfinite
from typing import Any, cast

__all__ = ["encodable", "plain_json", "with_encodable_text"]

_DEEPEST = 50
"""Nesting depth of containers beyond which their `repr` replaces them."""


def encodable(text: str) -> str:
    r"""Return `text` with each lone surrogate written as a backslash escape, as ``\udc80``.

    Lone surrogates stand for bytes of file names that are not UTF-8 (`os.fsdecode`). No encoder of a message, a file
    or a terminal takes them. The result is always of type `str` itself.
    """
    if type(text) is not str:
        text = str.__str__(text)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def plain_json(value: object, inside: tuple[int, ...] = ()) -> Any:
    """Return `value` as JSON data for a Jupyter message, with only encodable text.

    Bytes become base64 text, as in Jupyter. What JSON cannot represent becomes its `repr`, and so does a container that
    contains itself.

    Args:
        value: the value.
        inside: ids of the enclosing containers.
    """
    inner = (*inside, id(value))
    open_for_more = len(inside) < _DEEPEST and id(value) not in inside
    match value:
        case None | bool():
            return value
        case str():
            return encodable(value)
        case int():
            return int(value)
        case float() if isfinite(value):
            return float(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case dict() if open_for_more:
            return {_key(key): plain_json(part, inner) for key, part in value.items()}
        case list() | tuple() if open_for_more:
            return [plain_json(part, inner) for part in value]
    return encodable(repr(value))


def _key(key: object) -> str:
    return encodable(key if isinstance(key, str) else str(key))


def with_encodable_text[T](value: T) -> T:
    """Return `value`, a message or a part of one, with `encodable` applied to every string in it.

    Strings are found in dataclasses and tuples, of which all messages consist.
    """
    result: Any = value
    if isinstance(value, str):
        result = encodable(value)
    elif isinstance(value, (int, float, bytes)) or value is None:
        pass
    elif isinstance(value, tuple):
        clean_parts = tuple(with_encodable_text(part) for part in value)
        if any(clean is not part for clean, part in zip(clean_parts, value, strict=True)):
            result = clean_parts
    elif is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        clean = {name: with_encodable_text(part) for name, part in parts.items()}
        if any(clean[name] is not part for name, part in parts.items()):
            result = replace(cast("Any", value), **clean)
    return cast("T", result)
