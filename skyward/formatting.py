"""How nodes, sizes and lists are written in sentences: one wording for the library, the console and notebooks."""

import shlex
from collections.abc import Collection, Iterable

__all__ = ["asked_to_stop", "count_text", "joined", "nodes_text", "option_text", "size_text"]


def joined(words: Iterable[str]) -> str:
    """Return words as a sentence lists them: `a`, `a and b`, `a, b and c`; empty for none."""
    *before, last = list(words) or [""]
    return f"{', '.join(before)} and {last}" if before else last


def nodes_text(ranks: Collection[int]) -> str:
    """Return the nodes of these ranks as a sentence names them: `node 3`, or `nodes 0, 1 and 4`; empty for none."""
    return f"node{'s' * (len(ranks) > 1)} {joined(map(str, sorted(ranks)))}" if ranks else ""


def count_text(count: object, what: str = "node") -> str:
    """Return a number of things as a sentence has it: `1 node`, `3 tasks`, `2:8 nodes`."""
    return f"{count} {what}{'' if str(count) == '1' else 's'}"


def asked_to_stop(ranks: Collection[int], within: str = "yet") -> str:
    """Return the sentence, without its full stop, about nodes that were told to stop work and have not said so yet.

    Args:
        within: the time that they had, such as `within 5 s`.
    """
    was, has = ("was", "has") if len(ranks) == 1 else ("were", "have")
    return f"{nodes_text(ranks)} {was} asked to stop the work, and {has} not confirmed it {within}"


def option_text(option: str, path: str) -> str:
    """Return an option with a path as it is typed on the line of a magic: `--file 'my data.csv'`, `--file=-x.csv`."""
    path = f"./{path}" if path.startswith("~") else path
    return f"{option}{'=' if path.startswith('-') else ' '}{shlex.quote(path)}"


def size_text(nbytes: float) -> str:
    """Return a number of bytes for people: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"
