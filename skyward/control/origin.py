"""Which cell of a notebook a task comes from. Whoever runs cells says so; the library only carries it."""

from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["Origin", "current_origin"]


@dataclass(frozen=True, slots=True)
class Origin:
    """One cell, as it ran once.

    Attributes:
        number: of its execution, as the notebook shows it in brackets.
        cell: its id in the notebook; empty where the front end told none.
        code: its first line.
    """

    number: int
    cell: str = ""
    code: str = ""


current_origin: ContextVar[Origin | None] = ContextVar("skyward_origin", default=None)
"""The cell that runs now. Tasks take it when they are made, so those of a cell's own threads have it too."""
