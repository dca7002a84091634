"""What the command line asked for."""

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure.

    Attributes:
        quick: fewer rounds, and nothing of a gigabyte.
        peers: whether the peers are measured too.
    """

    quick: bool = False
    peers: bool = True
