"""Reading what a stranger may have written: each value is exactly of its kind and within bounds, or is refused."""

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
    """What was written is not what it should be. The sentence says why."""


def wrong(name: str, what: str) -> NoReturn:
    """Refuse."""
    raise Malformed(f"{name} is not {what}.")


def text(value: object, name: str) -> str:
    """A text for one line."""
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        wrong(name, f"a text of at most {_LONGEST} printable characters")
    return value


def named(value: object, name: str) -> str:
    """A text that is not empty."""
    return text(value, name) or wrong(name, "a name: it is empty")


def sentence(value: object, name: str) -> str:
    """A text that may have several lines."""
    if not isinstance(value, str) or len(value) > _LONGEST_SENTENCE or not value.replace("\n", "").isprintable():
        wrong(name, f"a text of at most {_LONGEST_SENTENCE} characters")
    return value


def optional[T](read: Callable[[object, str], T]) -> Callable[[object, str], T | None]:
    """None, or what `read` reads."""
    return lambda value, name: None if value is None else read(value, name)


def amount(value: object, name: str) -> float:
    """A number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15 or not isfinite(value):
        wrong(name, "a number of at least 0")
    return float(value)


def whole(least: int, most: int = 2**31 - 1) -> Callable[[object, str], int]:
    """A whole number within bounds."""

    def read(value: object, name: str) -> int:
        if type(value) is not int or not least <= value <= most:
            wrong(name, f"a whole number from {least} to {most}")
        return value

    return read


def boolean(value: object, name: str) -> bool:
    """True or False."""
    return value if isinstance(value, bool) else wrong(name, "true or false")


def one_of(alias: Any) -> Callable[[object, str], Any]:
    """One of the values of a literal type."""
    allowed = get_args(alias.__value__)
    return lambda value, name: (
        value if isinstance(value, str) and value in allowed else wrong(name, f"one of {', '.join(allowed)}")
    )


def several[T](read: Callable[[object, str], T]) -> Callable[[object, str], tuple[T, ...]]:
    """A list of what `read` reads."""

    def each(value: object, name: str) -> tuple[T, ...]:
        if not isinstance(value, list) or len(value) > _MOST:
            wrong(name, f"a list of at most {_MOST}")
        return tuple(read(item, f"an entry of {name}") for item in value)

    return each


def names(value: object, name: str) -> frozenset[str]:
    """A set of names."""
    return frozenset(several(named)(value, name))


def amounts(value: object, name: str) -> FrozenMap[str, float]:
    """Amounts by name."""
    if not isinstance(value, dict) or len(value) > _MOST:
        wrong(name, f"an object of at most {_MOST} amounts")
    return FrozenMap({named(key, f"a name in {name}"): amount(each, name) for key, each in value.items()})


def host(value: object, name: str) -> str:
    """A host or a user: nothing that a program could take for an option of its own."""
    found = named(value, name)
    if found.startswith("-") or any(each.isspace() for each in found):
        wrong(name, "a name without spaces that begins with no '-'")
    return found
