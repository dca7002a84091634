"""Parsers of option values: numbers, durations, sizes, lists of packages.

Each function raises `ValueError` if the text is malformed; `SpecError`, a subclass, explains why.
"""

import re
from collections.abc import Callable

from skyward.errors import SpecError
from skyward.values import limits
from skyward.values.validation import seconds

__all__ = [
    *("count", "duration", "gigabytes", "lifetime", "number", "one_of", "packages", "parts", "size", "variable"),
]

_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d)?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b?)", re.IGNORECASE)
_GIGABYTES = re.compile(r"(\d+(?:\.\d+)?)\s*(?:gi?b?)?", re.IGNORECASE)

_BETWEEN_PACKAGES = re.compile(r",(?![^\[\]]*\])(?=\s*[A-Za-z./])")
"""A comma between packages, but not one inside `pkg[a,b]` or `pkg>=1,<2`."""


def duration(text: str) -> float:
    """Parse a positive duration into seconds: `90`, `90s`, `5m`, `1h`."""
    return _above_zero(lifetime(text))


def lifetime(text: str) -> float:
    """Parse a duration, which may be 0, into seconds."""
    number, unit = parts(_DURATION, text)
    found = float(number) * _SECONDS[(unit or "s").lower()]
    seconds(found, "a duration", zero=True)
    return found


def size(text: str) -> int:
    """Parse a size into bytes: `500MB` (decimal), `2GiB` or `2G` (binary), `1048576`."""
    number, prefix, binary, unit = parts(_SIZE, text)
    scale = _BYTES[prefix.lower()]
    if unit and prefix and not binary:
        scale = 1000 ** (scale.bit_length() // 10)
    found = float(number) * scale
    if found > limits.GIB * 2**30:
        raise SpecError(f"a size must be at most {limits.GIB:,} GiB, but got {text}: lower it.")
    return int(found)


def gigabytes(text: str) -> float:
    """Parse a positive number of GiB: `16`, `16GiB`; `16GB` means the same, as providers use it."""
    return _above_zero(float(parts(_GIGABYTES, text)[0]))


def number(text: str) -> float:
    """Parse a positive number."""
    return _above_zero(float(text))


def count(text: str) -> int:
    """Parse a positive whole number."""
    return _above_zero(int(text))


def packages(text: str) -> tuple[str, ...]:
    """Parse comma-separated packages; the commas of `pkg[a,b]` and `pkg>=1,<2` are part of a package."""
    return tuple(part for part in (part.strip(" ,") for part in _BETWEEN_PACKAGES.split(text)) if part)


def variable(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`, where the value may be empty or contain `=`."""
    name, equals, value = text.partition("=")
    if not equals or not name.isascii() or not name.isidentifier():
        raise ValueError(name)
    return name, value


def one_of(*allowed: str) -> Callable[[str], str]:
    """Return a parser that accepts only the texts `allowed`."""

    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return read


def parts(form: re.Pattern[str], text: str) -> tuple[str, ...]:
    """Return the groups of a pattern that matches the whole text.

    Raises:
        ValueError: it does not match.
    """
    found = form.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    return found.groups()


def _above_zero[N: (int, float)](value: N) -> N:
    if not 0 < value < float("inf"):
        raise ValueError(value)
    return value
