"""Tables drawn with rich: as plain text, or with colours in a terminal. rich loads only when something is drawn."""

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from skyward.views.status import Label, Tone

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["grid", "plain", "printable", "style_of", "table"]

_STYLES: Final[Mapping[Tone, str]] = {"good": "green", "busy": "yellow", "bad": "red", "quiet": ""}

_WIDE: Final = 100_000
"""Columns of plain text, which is never wrapped or cut."""


def grid(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    right: Collection[str] | None = None,
    *,
    cut: Collection[str] = (),
) -> "Table":
    """Return rows under a header, in columns. A label is drawn as its word, in the colour of its tone.

    Args:
        right: the headers of right-aligned columns; None for the columns of whole numbers.
        cut: the headers of columns that are cut off first, the widest first, where there is no room for all.
    """
    from rich.table import Table
    from rich.text import Text

    body = list(rows)
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    columns = []
    for index, name in enumerate(header):
        values = [row[index] for row in body]
        words = [printable(value.word if isinstance(value, Label) else str(value)) for value in values]
        is_right = name in right if right is not None else bool(words) and all(map(str.isdigit, words))
        # rich cuts the columns that may wrap before the others. The texts do not: their lines are the rows.
        justify: Literal["left", "right"] = "right" if is_right else "left"
        drawn.add_column(Text(name, no_wrap=True, overflow="ellipsis"), justify=justify, no_wrap=name not in cut)
        column, at = Text("\n".join(words), no_wrap=True, overflow="ellipsis"), 0
        for value, word in zip(values, words, strict=True):
            if isinstance(value, Label):
                column.stylize(style_of(value), at, at + len(word))
            at += len(word) + 1
        columns.append(column)
    if body:
        drawn.add_row(*columns)  # one row of long cells: rich takes four times as long for a row of each
    return drawn


def style_of(label: Label) -> str:
    """Return the style of rich in which a label is drawn."""
    return _STYLES[label.tone]


def plain(drawn: "RenderableType") -> str:
    """Return what is drawn as text without control sequences, and without spaces at the ends of lines."""
    from rich.console import Console

    out = io.StringIO()
    # A notebook or a terminal must not be detected: this text is returned, not shown.
    console = Console(file=out, width=_WIDE, color_system=None, force_terminal=False, force_jupyter=False)
    console.print(drawn)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def table(header: Sequence[str], rows: Iterable[Sequence[object]], right: Collection[str] | None = None) -> str:
    """Return `grid` as plain text."""
    return plain(grid(header, rows, right))


def printable(text: str) -> str:
    """Return a text in which tabs and the like are spaces, and control characters are `?`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
