"""The notebook cell that a task comes from. Front ends set it; the library only passes it on."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self

from skyward.wire.protocol.text import encodable

__all__ = ["CELL_FUNCTIONS", "Origin", "current_origin"]

CELL_FUNCTIONS = frozenset({"run_cell", "stream_cell"})
"""Names of the functions that run cells."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One execution of a cell.

    Attributes:
        number: execution count, as the notebook shows it in brackets.
        cell: id in the notebook; empty if the front end gave none.
        code: first line of its code.
        former: True if it ran in an earlier kernel, whose pool this one has taken over.

    Example:
        >>> {task.number: task.origin for task in pool.report().tasks}
    """

    number: int
    cell: str = ""
    code: str = ""
    former: bool = False

    @property
    def label(self) -> str:
        """Label that a node stores with a task, for a later client."""
        return encodable(f"{self.number} {self.cell} {self.code}")

    @classmethod
    def of_former(cls, label: str) -> Self | None:
        """Return the cell of an earlier client from the label of its task; None if there was no cell."""
        number, _, rest = label.partition(" ")
        cell, _, code = rest.partition(" ")
        return cls(int(number), cell, code, former=True) if number.isdecimal() else None


current_origin: ContextVar[Origin | None] = ContextVar("skyward_origin", default=None)
"""The running cell. Tasks take it when they are created, also those of a cell's own threads."""
