"""Parsers of option values: numbers, durations, sizes, lists of packages.

Each function raises `ValueError` if the text is malformed; `SpecError`, a subclass, explains why.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from skyward.errors import SpecError
from skyward.values import limits
from skyward.values.validation import seconds

if TYPE_CHECKING:
    from skyward.specs.placement import On

__all__ = [
    *("PLACES", "count", "duration", "gigabytes", "lifetime", "number", "one_of", "packages", "parts", "path", "place"),
    *("rank", "size", "variable", "whole"),
]

_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d)?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b?)", re.IGNORECASE)
_GIGABYTES = re.compile(r"(\d+(?:\.\d+)?)\s*(?:gi?b?)?", re.IGNORECASE)

_GROUP = re.compile(r"\w[\w.-]*", re.ASCII)
_RANKS = re.compile(r"([0-9]+)(?::([0-9]+))?")

PLACES = "one, all, head, ranks such as 3, 0,2 or 0:4 (4 excluded), or the name of a group"
"""The values that `place` parses, for error messages."""

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


def whole(text: str) -> int:
    """Parse a whole number."""
    return int(text)


def rank(text: str) -> int:
    """Parse the rank of a node: a whole number that is not negative."""
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def packages(text: str) -> tuple[str, ...]:
    """Parse comma-separated packages; the commas of `pkg[a,b]` and `pkg>=1,<2` are part of a package."""
    return tuple(part for part in (part.strip(" ,") for part in _BETWEEN_PACKAGES.split(text)) if part)


def variable(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE`, where the value may be empty or contain `=`."""
    name, equals, value = text.partition("=")
    if not equals or not name.isascii() or not name.isidentifier():
        raise ValueError(name)
    return name, value


def place(text: str) -> "On":
    """Parse the nodes to run on: `one`, `all`, `head`, a rank, ranks such as `0,2` or `0:4`, or a group's name."""
    if (where := text.lower()) in ("one", "all", "head"):
        return where
    if text.isascii() and text.isdigit():
        return int(text)
    if _GROUP.fullmatch(text):
        return text
    ranks: set[int] = set()
    for part in text.split(","):
        first, last = parts(_RANKS, part)
        end = int(last or int(first) + 1)
        if not int(first) < end <= limits.NODES:
            raise ValueError(text)
        ranks.update(range(int(first), end))
    return tuple(sorted(ranks))


def path(text: str) -> tuple[str, ...]:
    """Parse one path, or a pattern of paths."""
    if not text.strip() or "\0" in text:
        raise ValueError(text)
    return (text,)


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
