"""Which cell of a notebook a task comes from. Whoever runs cells says so; the library only carries it."""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self

from skyward.wire.protocol.text import encodable

__all__ = ["Origin", "current_origin"]


@dataclass(frozen=True, slots=True)
class Origin:
    """One cell, as it ran once.

    Attributes:
        number: of its execution, as the notebook shows it in brackets.
        cell: its id in the notebook; empty where the front end told none.
        code: its first line.
        former: whether it ran in another kernel, whose pool this one has taken over.
    """

    number: int
    cell: str = ""
    code: str = ""
    former: bool = False

    @property
    def label(self) -> str:
        """What a node keeps of it, for the client that comes after this one."""
        return encodable(f"{self.number} {self.cell} {self.code}")

    @classmethod
    def of_former(cls, label: str) -> Self | None:
        """The cell of a client that was here before, by the label that its task was sent with; None for no cell."""
        number, _, rest = label.partition(" ")
        cell, _, code = rest.partition(" ")
        return cls(int(number), cell, code, former=True) if number.isdecimal() else None


current_origin: ContextVar[Origin | None] = ContextVar("skyward_origin", default=None)
"""The cell that runs now. Tasks take it when they are made, so those of a cell's own threads have it too."""
