"""Validation of untrusted input: each value has exactly its type and is within bounds, or is refused."""

from collections.abc import Callable
from math import isfinite
from typing import Any, NoReturn, get_args

from skyward.values.validation import FrozenMap

__all__ = [
    "Malformed",
    "amount",
    "amounts",
    "boolean",
    "host",
    "named",
    "names",
    "one_of",
    "optional",
    "sentence",
    "several",
    "text",
    "whole",
    "wrong",
]

_LONGEST = 1024
_LONGEST_SENTENCE = 4096
_MOST = 1000


class Malformed(ValueError):
    """Input is invalid. The message is a sentence with the reason."""


def wrong(name: str, what: str) -> NoReturn:
    """Raise `Malformed`."""
    raise Malformed(f"{name} is not {what}.")


def text(value: object, name: str) -> str:
    """Return a one-line text."""
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        wrong(name, f"a text of at most {_LONGEST} printable characters")
    return value


def named(value: object, name: str) -> str:
    """Return a text that is not empty."""
    return text(value, name) or wrong(name, "a name: it is empty")


def sentence(value: object, name: str) -> str:
    """Return a text that may have several lines."""
    if not isinstance(value, str) or len(value) > _LONGEST_SENTENCE or not value.replace("\n", "").isprintable():
        wrong(name, f"a text of at most {_LONGEST_SENTENCE} characters")
    return value


def optional[T](read: Callable[[object, str], T]) -> Callable[[object, str], T | None]:
    """Return a reader for None or what `read` accepts."""
    return lambda value, name: None if value is None else read(value, name)


def amount(value: object, name: str) -> float:
    """Return a number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15 or not isfinite(value):
        wrong(name, "a number of at least 0")
    return float(value)


def whole(least: int, most: int = 2**31 - 1) -> Callable[[object, str], int]:
    """Return a reader for whole numbers within bounds."""

    def read(value: object, name: str) -> int:
        if type(value) is not int or not least <= value <= most:
            wrong(name, f"a whole number from {least} to {most}")
        return value

    return read


def boolean(value: object, name: str) -> bool:
    """Return True or False."""
    return value if isinstance(value, bool) else wrong(name, "true or false")


def one_of(alias: Any) -> Callable[[object, str], Any]:
    """Return a reader for the values of a literal type."""
    allowed = get_args(alias.__value__)
    return lambda value, name: (
        value if isinstance(value, str) and value in allowed else wrong(name, f"one of {', '.join(allowed)}")
    )


def several[T](read: Callable[[object, str], T]) -> Callable[[object, str], tuple[T, ...]]:
    """Return a reader for lists of what `read` accepts."""

    def each(value: object, name: str) -> tuple[T, ...]:
        if not isinstance(value, list) or len(value) > _MOST:
            wrong(name, f"a list of at most {_MOST}")
        return tuple(read(item, f"an entry of {name}") for item in value)

    return each


def names(value: object, name: str) -> frozenset[str]:
    """Return a set of names."""
    return frozenset(several(named)(value, name))


def amounts(value: object, name: str) -> FrozenMap[str, float]:
    """Return amounts by name."""
    if not isinstance(value, dict) or len(value) > _MOST:
        wrong(name, f"an object of at most {_MOST} amounts")
    return FrozenMap({named(key, f"a name in {name}"): amount(each, name) for key, each in value.items()})


def host(value: object, name: str) -> str:
    """Return a host or user name: nothing that a program could parse as an option."""
    found = named(value, name)
    if found.startswith("-") or any(each.isspace() for each in found):
        wrong(name, "a name without spaces that does not start with '-'")
    return found
