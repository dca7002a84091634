"""Reasons why a cell does not return a value, or the change of one."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Obstacle", "Unreturned"]

type Obstacle = Literal["size", "unbound", "nothing to keep", "other"]
"""Kinds of reasons, which have different fixes: the value is over a limit; the cell did not bind a name that is to be
returned, or to be kept."""


@dataclass(frozen=True, slots=True)
class Unreturned:
    """The reason why a value, or its change, was not returned.

    Attributes:
        reason: a clause for messages.
        obstacle: the kind of the reason.
    """

    reason: str
    obstacle: Obstacle = "other"
