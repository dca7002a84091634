"""Lines that several nodes write at once: each is shown whole, with its node; one that is not ended is shown live.

Decides only, and writes nothing. A progress bar is a line that is written anew after each carriage return. On a
terminal and in a notebook the bar of the lowest node stands at the end of the output, drawn over itself; elsewhere its
last version is a line once the bar is done.

Lines keep the order in which they were ended, whichever stream they are on. A live line that stands on one stream is
erased before lines are written to the other.
"""

from collections.abc import Callable, Sequence
from typing import Literal

__all__ = ["LabelledLines", "Piece", "StreamName", "last_version"]

type StreamName = Literal["stdout", "stderr"]

type Piece = tuple[StreamName, str]
"""A stream, and what to write to it."""

type Columns = Callable[[StreamName], int]
"""Gives the characters that a live line may have on a stream; 0 where there is none."""

LONGEST = 65536
"""Characters of a line that is not ended after which what there is of it is a line."""

EVERY = 0.1
"""Seconds between two drawings of a bar."""


def _no_live_line(_: StreamName) -> int:
    return 0


class LabelledLines:
    """Lines of nodes, put together from what they write.

    Args:
        now: gives the time in seconds of a steady clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._open: dict[tuple[int, StreamName], str] = {}
        self._drawn: Piece = ("stdout", "")
        self._drawn_at = float("-inf")

    def add(self, node: int, stream: StreamName, text: str, *, columns: Columns = _no_live_line) -> list[Piece]:
        """Take what a node wrote; return what to write now, in order."""
        whole, newline, rest = (self._open.pop((node, stream), "") + text).rpartition("\n")
        if len(rest) > LONGEST:
            whole, newline, rest = whole + newline + rest, "\n", ""
        if rest:
            self._open[node, stream] = _latest(rest)
        lines = "".join(f"[node {node}] {last_version(line)}\n" for line in whole.split("\n")) if newline else ""
        return self._drawing([(stream, lines)] if lines else [], columns)

    def finish(self, node: int | None = None, *, columns: Columns = _no_live_line) -> list[Piece]:
        """End the lines that a node, or any, has not ended; return what to write for them, in order."""
        ended = sorted((key for key in self._open if node in (None, key[0])), key=lambda key: key[0])
        if not ended:
            return []
        lines: list[Piece] = []
        for rank, stream in ended:
            text = last_version(self._open.pop((rank, stream)))
            if text.strip():
                lines.append((stream, f"[node {rank}] {text}\n"))
        return self._drawing(lines, columns, now=True)

    def begun(self, node: int, stream: StreamName) -> bool:
        """Return whether a node has written to a line that is not ended."""
        return (node, stream) in self._open

    def _drawing(self, lines: Sequence[Piece], columns: Columns, *, now: bool = False) -> list[Piece]:
        """Return `lines`, with the live line erased before them and drawn again after them.

        Where they are on the other stream, it is drawn again when it is next due: a notebook shows what alternates
        between the streams in as many boxes.
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
        """Return the live line, and the stream that it belongs on."""
        there = ((key, last_version(text)) for key, text in sorted(self._open.items()))
        shown = [(*key, text, width) for key, text in there if text.strip() and (width := columns(key[1]))]
        if not shown:
            return "stdout", ""
        node, stream, text, width = shown[0]
        others = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
        return stream, f"[node {node}] {text}"[: max(1, width - len(others))] + others


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Return `pieces`, those of one stream that follow each other as one."""
    joined: list[Piece] = []
    for stream, text in pieces:
        if joined and joined[-1][0] == stream:
            joined[-1] = stream, joined[-1][1] + text
        else:
            joined.append((stream, text))
    return joined


def last_version(line: str) -> str:
    r"""Return what is left of a line that was overwritten with `\r`."""
    return line.rstrip("\r").rpartition("\r")[2]


def _latest(line: str) -> str:
    """Return `line` without the versions that were overwritten."""
    text = line.rstrip("\r")
    return text.rpartition("\r")[2] + line[len(text) :]
