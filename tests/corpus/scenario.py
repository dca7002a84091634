"""Scenarios: the cells of a notebook, and the differences that are allowed under `%%sky`."""

import re
import textwrap
from dataclasses import dataclass

__all__ = ["Cell", "Scenario"]

_BETWEEN = re.compile(r"^ *# %%\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a notebook.

    Attributes:
        source: its text in the notebook.
        sky: its text under `%%sky`, with the magic; None for a cell that is plain in both runs.
    """

    source: str
    sky: str | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Cells as people write them, some of which are run under `%%sky`.

    Texts are split into cells at lines `# %%`.

    Attributes:
        name: the topic and the case.
        before: cells that run in the notebook first.
        sky: cells that run under `%%sky`.
        after: cells that run in the notebook afterwards.
        given: a first cell that several scenarios share.
        plain: the text of `sky` in the notebook, if it must differ (a cell that yields).
        reported: names whose values may differ from the notebook, if a notice names them. A cell may also be refused
            with a sentence that names one of them; then all values must be as if it had not been run.
        follows: names whose values depend on one of `reported`, and may differ once that is in a notice.
        absent: names that may be missing without a notice: files that a `with` has closed.
        raises: the names of the errors that are raised in the notebook, cell by cell.
        refused: the error that the notebook raises, if the cell may be refused with it before any of it is run.
        raises_there: the name of the error of the cell under `%%sky`, if it differs.
        options: options of `%%sky`.
    """

    name: str
    before: str
    sky: str
    after: str = ""
    given: str = ""
    plain: str | None = None
    reported: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    raises: tuple[str, ...] = ()
    refused: str = ""
    raises_there: str = ""
    options: str = ""

    @property
    def cells(self) -> list[Cell]:
        """The cells in order."""
        sky = _cells(self.sky)
        plain = sky if self.plain is None else _cells(self.plain)
        magic = f"%%sky {self.options}".rstrip()
        return [
            *map(Cell, [*_cells(self.given), *_cells(self.before)]),
            *(Cell(here, f"{magic}\n{there}") for here, there in zip(plain, sky, strict=True)),
            *map(Cell, _cells(self.after)),
        ]


def _cells(text: str) -> list[str]:
    cells = [textwrap.dedent(cell).strip("\n") for cell in _BETWEEN.split(text)]
    return [cell for cell in cells if cell.strip()]
