"""Lines that several nodes write at once: each is shown whole, with its node; one that is not ended is shown live.

Decides only, and writes nothing. A progress bar is a line that is written anew after each carriage return. On a
terminal and in a notebook the bar of the lowest node stands at the end of the output, drawn over itself; elsewhere its
last version is a line once the bar is done.
"""

from collections.abc import Callable
from typing import Literal

__all__ = ["LabelledLines", "last_version"]

type StreamName = Literal["stdout", "stderr"]

LONGEST = 65536
"""Characters of a line that is not ended after which what there is of it is a line."""

EVERY = 0.1
"""Seconds between two drawings of a bar."""


class LabelledLines:
    """Lines of nodes, put together from what they write.

    Args:
        now: gives the time in seconds of a steady clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._open: dict[tuple[int, StreamName], str] = {}
        self._drawn: dict[StreamName, str] = {}
        self._drawn_at = float("-inf")

    def add(self, node: int, stream: StreamName, text: str, *, columns: int = 0) -> str:
        """Take what a node wrote; return what to write to that stream now.

        Args:
            columns: characters that a live line may have; 0 where there is none.
        """
        whole, newline, rest = (self._open.pop((node, stream), "") + text).rpartition("\n")
        if len(rest) > LONGEST:
            whole, newline, rest = whole + newline + rest, "\n", ""
        if rest:
            self._open[node, stream] = _latest(rest)
        lines = "".join(f"[node {node}] {last_version(line)}\n" for line in whole.split("\n")) if newline else ""
        return self._drawing(stream, lines, columns)

    def finish(self, node: int | None = None, *, columns: int = 0) -> dict[StreamName, str]:
        """Return what to write, by stream, for the lines that a node, or any, has not ended; they are ended then."""
        ended: dict[StreamName, str] = {}
        for rank, stream in sorted(self._open):
            if node is None or rank == node:
                text = last_version(self._open.pop((rank, stream)))
                ended[stream] = ended.get(stream, "") + (f"[node {rank}] {text}\n" if text.strip() else "")
        return {stream: self._drawing(stream, lines, columns, now=True) for stream, lines in ended.items()}

    def begun(self, node: int, stream: StreamName) -> bool:
        """Return whether a node has written to a line that is not ended."""
        return (node, stream) in self._open

    def _drawing(self, stream: StreamName, lines: str, columns: int, *, now: bool = False) -> str:
        """Return `lines`, with the live line taken away before them and drawn anew after them."""
        drawn = self._drawn.get(stream, "")
        if not (lines or now) and self._now() < self._drawn_at + EVERY:
            return ""
        live = self._live(stream, columns) if columns else ""
        if not lines and live == drawn:
            return ""
        self._drawn[stream], self._drawn_at = live, self._now()
        erased = f"\r{' ' * len(drawn)}\r" if drawn else ""
        return f"{erased}{lines}{live}"

    def _live(self, stream: StreamName, columns: int) -> str:
        there = ((node, last_version(text)) for (node, name), text in sorted(self._open.items()) if name == stream)
        shown = [(node, text) for node, text in there if text.strip()]
        if not shown:
            return ""
        node, text = shown[0]
        others = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
        return f"[node {node}] {text}"[: max(1, columns - len(others))] + others


def last_version(line: str) -> str:
    r"""Return what is left of a line that was overwritten with `\r`."""
    return line.rstrip("\r").rpartition("\r")[2]


def _latest(line: str) -> str:
    """Return `line` without the versions that were overwritten."""
    text = line.rstrip("\r")
    return text.rpartition("\r")[2] + line[len(text) :]
