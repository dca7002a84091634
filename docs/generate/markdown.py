"""Text in Markdown pages."""

import re
from collections.abc import Iterable, Sequence

__all__ = ["cell", "entry", "prose", "table"]

_CODE_OR_FLAG = re.compile(r"(`+).+?\1|(?<![\w-])--[a-z][\w-]*")


def cell(text: object) -> str:
    """Return a text for a cell of a table, in which a bar would end the cell."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def entry(kind: str, name: str, rest: str, *text: str) -> str:
    """Return an entry of the Skyward domain, with its text in Markdown."""
    heading = f"{name} | {rest}" if rest else name
    return "\n".join((f"````{{sky:{kind}}} {heading}", *text, "````", ""))


def prose(text: str) -> str:
    """Return a sentence of the code for a page: with a capital, a full stop, and flags as code."""
    text = _CODE_OR_FLAG.sub(lambda found: found[0] if found[1] else f"`{found[0]}`", text.strip())
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""
