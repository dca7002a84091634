"""Formatters of text for users: sizes, money, durations, times, nodes and lists.

The panel has the same formatters in TypeScript; `tests/cases/formats.json` checks that both return the same.
"""

import re
import shlex
import time
from collections.abc import Collection, Iterable

__all__ = [
    *("WORK_ENDED", "asked_to_stop", "clock_text", "count_text", "duration_text", "first_line", "joined"),
    *("money_text", "nodes_text", "option_text", "raised_text", "share_text", "size_text"),
]

WORK_ENDED = "the work had already finished"
"""Result of a request to stop work that was over."""


def joined(words: Iterable[str], most: int | None = None) -> str:
    """Return words as a list in a sentence: `a`, `a and b`, `a, b and c`; empty for none.

    Beyond `most` words, the list ends with the number of the others: `a, b and 3 more`.
    """
    found = list(words)
    if most is not None and len(found) > most:
        found[most:] = [f"{len(found) - most} more"]
    *before, last = found or [""]
    return f"{', '.join(before)} and {last}" if before else last


def nodes_text(ranks: Collection[int]) -> str:
    """Return the nodes of these ranks for a sentence: `node 3`, or `nodes 0, 1 and 4`; empty for none."""
    distinct = sorted(set(ranks))
    return f"node{'s' * (len(distinct) > 1)} {joined(map(str, distinct))}" if distinct else ""


def count_text(count: object, what: str = "node") -> str:
    """Return a count with its noun: `1 node`, `3 tasks`, `2:8 nodes`."""
    return f"{count} {what}{'' if str(count) == '1' else 's'}"


_LONGEST_LINE = 200
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank: without colours, controls as `?`, at most 200 characters."""
    lines = _COLOURS.sub("", text[: 50 * _LONGEST_LINE]).splitlines()
    line = next((" ".join(words) for each in lines if (words := each.split())), "")
    line = "".join(each if each.isprintable() else "?" for each in line)
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def raised_text(kind: str, reason: str) -> str:
    """Return an exception's type and the first line of its text as Python shows them: `ValueError: no`."""
    return f"{kind}: {reason}" if reason else kind


def asked_to_stop(ranks: Collection[int], within: str = "yet") -> str:
    """Return a sentence, without its full stop, about nodes that have not confirmed a cancellation.

    Args:
        within: the time they had, such as `within 5 s`.
    """
    was, has = ("was", "has") if len(ranks) == 1 else ("were", "have")
    return f"{nodes_text(ranks)} {was} asked to stop the work, and {has} not confirmed it {within}"


def option_text(option: str, path: str) -> str:
    """Return an option with a path as it is typed on the line of a magic: `--file 'my data.csv'`, `--file=-x.csv`."""
    path = f"./{path}" if path.startswith("~") else path
    return f"{option}{'=' if path.startswith('-') else ' '}{shlex.quote(path)}"


def size_text(nbytes: float) -> str:
    """Return a number of bytes in powers of 1024: `512 B`, `1.5 MiB`, `2.0 GiB`."""
    if nbytes < 1024:
        return f"{nbytes:.0f} B"
    for unit in ("KiB", "MiB"):
        nbytes /= 1024
        if nbytes < 1023.95:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1024:,.1f} GiB"


def money_text(usd: float) -> str:
    """Return an amount of USD: `$1,204.00`; below ten cents with four decimals, `$0.0124`."""
    if 0 < usd < 0.00005:
        return "<$0.0001"
    return f"${usd:.4f}" if usd and abs(usd) < 0.1 else f"${usd:,.2f}"


def share_text(part: float | None) -> str:
    """Return a share from 0 to 1 as a percentage: `91%`; empty if it is unknown."""
    return "" if part is None else f"{part:.0%}"


def clock_text(at: float) -> str:
    """Return a Unix time as the local time of day: `12:04:31`."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def duration_text(seconds: float) -> str:
    """Return a duration for people: `4.2 s`, `41 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
