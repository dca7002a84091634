"""Interleaving of output of several nodes: complete lines are labelled with their node; an open line is shown live.

The members of a gang may share a node, so that their lines are labelled with their rank in the gang, too.

This module decides what to write, and does no I/O. A progress bar is a line that is rewritten after each carriage
return: the task has drawn it, so neither rich nor tqdm can. On a terminal and in a notebook, the bar of the lowest rank
is redrawn at the end of the output; elsewhere, only its last version is written, once it is complete.

Lines keep the order in which they were completed, across both streams. A live line on one stream is erased before lines
are written to the other.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from skyward.events.output import StreamName

__all__ = ["LabelledLines", "Piece", "Source", "last_version"]

type Piece = tuple[StreamName, str]
"""A stream, and what to write to it."""


class Source(NamedTuple):
    """A writer of output.

    Attributes:
        node: rank of its node.
        member: its rank in its gang; -1 for none.
    """

    node: int
    member: int = -1

    @property
    def label(self) -> str:
        """The label of a line: `[node 0]`, or `[node 0, rank 2]` for a member of a gang."""
        return f"[node {self.node}]" if self.member < 0 else f"[node {self.node}, rank {self.member}]"


type Columns = Callable[[StreamName], int]
"""Function that returns the width of a live line on a stream; 0 if it cannot have one."""

LONGEST = 65536
"""Length of an open line at which it is written as a line."""

EVERY = 0.1
"""Seconds between two updates of a bar."""


def _no_live_line(_: StreamName) -> int:
    return 0


class LabelledLines:
    """Assembles labelled lines from the output of nodes.

    Args:
        now: returns the seconds of a monotonic clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._open: dict[tuple[Source, StreamName], str] = {}
        self._drawn: Piece = ("stdout", "")
        self._drawn_at = float("-inf")

    def add(self, source: Source, stream: StreamName, text: str, *, columns: Columns = _no_live_line) -> list[Piece]:
        """Add output; return the pieces to write now, in order."""
        whole, newline, rest = (self._open.pop((source, stream), "") + text).rpartition("\n")
        if len(rest) > LONGEST:
            whole, newline, rest = whole + newline + rest, "\n", ""
        if rest:
            self._open[source, stream] = _latest(rest)
        lines = "".join(f"{source.label} {last_version(line)}\n" for line in whole.split("\n")) if newline else ""
        return self._drawing([(stream, lines)] if lines else [], columns)

    def finish(self, source: Source | None = None, *, columns: Columns = _no_live_line) -> list[Piece]:
        """Complete the open lines of a source, or of all; return the pieces to write, in order."""
        ended = sorted((key for key in self._open if source in (None, key[0])), key=lambda key: key[0])
        if not ended:
            return []
        lines: list[Piece] = []
        for each, stream in ended:
            text = last_version(self._open.pop((each, stream)))
            if text.strip():
                lines.append((stream, f"{each.label} {text}\n"))
        return self._drawing(lines, columns, now=True)

    def begun(self, source: Source, stream: StreamName) -> bool:
        """Return whether a source has an open line on a stream."""
        return (source, stream) in self._open

    def _drawing(self, lines: Sequence[Piece], columns: Columns, *, now: bool = False) -> list[Piece]:
        """Return `lines`, with the live line erased before them and redrawn after them.

        If they are on the other stream, it is redrawn only when the next update is due: each switch of streams makes a
        new box in a notebook.
        """
        is_due = now or self._now() >= self._drawn_at + EVERY
        if not lines and not is_due:
            return []
        stream, drawn = self._drawn
        live = self._live(columns)
        if not lines and live == self._drawn:
            return []
        pieces = [(stream, f"\r{' ' * len(drawn)}\r")] if drawn else []
        pieces += lines
        self._drawn = ("stdout", "")
        if live[1] and (is_due or all(name == live[0] for name, _ in lines)):
            pieces.append(live)
            self._drawn, self._drawn_at = live, self._now()
        return _joined(pieces)

    def _live(self, columns: Columns) -> Piece:
        """Return the live line and its stream."""
        latest = ((key, last_version(text)) for key, text in sorted(self._open.items()))
        shown = [(*key, text, width) for key, text in latest if text.strip() and (width := columns(key[1]))]
        if not shown:
            return "stdout", ""
        source, stream, text, width = shown[0]
        others = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
        return stream, f"{source.label} {text}"[: max(1, width - len(others))] + others


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Merge adjacent pieces of the same stream."""
    joined: list[Piece] = []
    for stream, text in pieces:
        if joined and joined[-1][0] == stream:
            joined[-1] = stream, joined[-1][1] + text
        else:
            joined.append((stream, text))
    return joined


def last_version(line: str) -> str:
    r"""Return the visible part of a line that was overwritten with `\r`."""
    return line.rstrip("\r").rpartition("\r")[2]


def _latest(line: str) -> str:
    """Return `line` without its overwritten versions."""
    text = line.rstrip("\r")
    return text.rpartition("\r")[2] + line[len(text) :]
