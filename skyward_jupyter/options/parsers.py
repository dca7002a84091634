"""Parsers of values of the options of cells: nodes, names, amounts.

Each function raises `ValueError` if the text is malformed; `SpecError`, a subclass, explains why.
"""

import re
from keyword import iskeyword
from typing import TYPE_CHECKING

from skyward.frontends.commands import number, parts
from skyward.frontends.configuration import GANG_PLACEMENTS, FrozenMap, capability_set, limits, resource_map

if TYPE_CHECKING:
    from skyward.frontends.configuration import GangPlacement, On

__all__ = [
    "PLACES",
    "amounts",
    "capabilities",
    "gang_size",
    "identifier",
    "names",
    "path",
    "place",
    "placement",
    "retries",
]

_GROUP = re.compile(r"\w[\w.-]*", re.ASCII)
_RANKS = re.compile(r"([0-9]+)(?::([0-9]+))?")

PLACES = "one, all, head, ranks such as 3, 0,2 or 0:4 (4 excluded), or the name of a group"
"""The values that `place` parses, for error messages."""


def retries(text: str) -> int:
    """Parse a whole number that is not negative."""
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def gang_size(text: str) -> int:
    """Parse a number of members of a gang."""
    value = int(text)
    if not 0 < value <= limits.NODES:
        raise ValueError(text)
    return value


def placement(text: str) -> "GangPlacement":
    """Parse the placement of a gang; `strict-pack` is `strict_pack`."""
    for known in GANG_PLACEMENTS:
        if known == text.lower().replace("-", "_"):
            return known
    raise ValueError(text)


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


def identifier(text: str) -> str:
    """Parse one Python identifier."""
    if not text.isidentifier() or iskeyword(text):
        raise ValueError(text)
    return text


def names(text: str) -> tuple[str, ...]:
    """Parse comma-separated Python identifiers."""
    return tuple(identifier(part.strip()) for part in text.split(",") if part.strip())


def path(text: str) -> tuple[str, ...]:
    """Parse one path, or a pattern of paths."""
    if not text.strip() or "\0" in text:
        raise ValueError(text)
    return (text,)


def amounts(text: str) -> FrozenMap[str, float]:
    """Parse amounts by name: `CPU=4,GPU=1`. Each amount is positive, and no name is repeated."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    found = {name.strip(): number(value) for name, _, value in pairs}
    if len(found) < len(pairs):
        raise ValueError(text)
    return resource_map(found)


def capabilities(text: str) -> frozenset[str]:
    """Parse comma-separated names of capabilities."""
    return capability_set([part for part in text.split(",") if part.strip()])
