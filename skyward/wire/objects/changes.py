"""The smallest change that a cell made to one object.

The node compares an object with the state in which it arrived. Differences are returned together with the previous
content, because the notebook's object may have changed meanwhile. Changes of both sides in different places are merged.
Where both changed the same place, the cell's change wins, and the notebook reports it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["NUMBERS", "Absent", "Change", "Location", "Opaque", "Same", "is_same_number"]

NUMBERS = frozenset({float, complex})
"""Types whose values may be NaN, or a negative zero."""

type Same = Callable[[Any, Any], bool]
"""Comparison of a value of the notebook with the stand-in of a value as it was sent."""


@dataclass(frozen=True, slots=True)
class Location:
    """Stand-in for an object of the notebook: the number of a captured part, and that of the object in it."""

    part: int
    number: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """Stand-in for a value that is only compared: its digest, or None without one."""

    digest: bytes | None


@dataclass(frozen=True, slots=True)
class Absent:
    """Stand-in for an absent value."""


class Change(NamedTuple):
    """One change of an object.

    Attributes:
        form: how it is applied to the object.
        now: the new content.
        before: the previous content, with a `Location` for each object of the notebook.
    """

    form: str
    now: Any
    before: Any


def is_same_number(one: Any, other: Any) -> bool:
    """Return whether two numbers are the same, with NaN equal to NaN, and 0.0 different from -0.0."""
    return bool(one == other and one) or repr(one) == repr(other)
