"""Settings of the command line."""

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run.

    Attributes:
        quick: fewer rounds, without the largest arrays.
        peers: True if the peers are measured too.
    """

    quick: bool = False
    peers: bool = True
