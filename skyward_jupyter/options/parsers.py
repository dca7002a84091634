"""Parsers of values of the options of cells: nodes, names, amounts.

Each function raises `ValueError` if the text is malformed; `SpecError`, a subclass, explains why.
"""

from keyword import iskeyword
from typing import TYPE_CHECKING

from skyward.frontends.commands import number
from skyward.frontends.configuration import GANG_PLACEMENTS, FrozenMap, capability_set, limits, resource_map

if TYPE_CHECKING:
    from skyward.frontends.configuration import GangPlacement

__all__ = [
    "amounts",
    "capabilities",
    "gang_size",
    "identifier",
    "names",
    "placement",
    "retries",
]


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


def identifier(text: str) -> str:
    """Parse one Python identifier."""
    if not text.isidentifier() or iskeyword(text):
        raise ValueError(text)
    return text


def names(text: str) -> tuple[str, ...]:
    """Parse comma-separated Python identifiers."""
    return tuple(identifier(part.strip()) for part in text.split(",") if part.strip())


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
