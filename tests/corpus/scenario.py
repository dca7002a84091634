"""What a scenario is."""

import re
import textwrap
from dataclasses import dataclass

__all__ = ["Cell", "Scenario"]

_BETWEEN = re.compile(r"^ *# %%\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a notebook.

    Attributes:
        source: what it is in the notebook.
        sky: what it is under `%%sky`, magic and all; None for a cell that is plain in both runs.
    """

    source: str
    sky: str | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Cells as people write them, some of which are run under `%%sky`.

    Texts have several cells where a line `# %%` parts them.

    Attributes:
        name: what is tried.
        before: cells that run in the notebook first.
        sky: cells that run under `%%sky`.
        after: cells that run in the notebook afterwards.
        given: a cell that several scenarios begin with.
        plain: what `sky` is in the notebook, if it cannot be the same (a cell that yields).
        told: names whose values may be others than in the notebook, if the run says so and names them. A cell may also
            be refused with a sentence that names one of them; then all must be as if it had not been run.
        follows: names whose values follow from one of `told`, and may differ once that is told.
        absent: names that may be missing without a word: files that a `with` has closed.
        raises: the names of the errors that are raised in the notebook, cell by cell.
        refused: the error that the notebook raises, if the cell may be refused with it before any of it is run.
        raises_there: the name of the error of the cell under `%%sky`, if it is to be another.
        options: of `%%sky`.
    """

    name: str
    before: str
    sky: str
    after: str = ""
    given: str = ""
    plain: str | None = None
    told: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    raises: tuple[str, ...] = ()
    refused: str = ""
    raises_there: str = ""
    options: str = ""

    @property
    def cells(self) -> list[Cell]:
        """The cells in their order."""
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
