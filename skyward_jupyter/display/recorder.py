"""Recorder of the output of a background cell, so that it can be shown again."""

import itertools
from collections import deque
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

from skyward.frontends.views import screen

__all__ = ["OutputRecorder"]

LONGEST = 1 << 20
"""Maximum number of characters of text that are kept: the last ones."""

MOST = 100
"""Maximum number of displays that are kept: the last ones."""


@dataclass(frozen=True, slots=True)
class _Display:
    data: dict[str, Any]
    metadata: dict[str, Any]
    display_id: str | None


@dataclass(slots=True)
class _Text:
    stream: Literal["stdout", "stderr"]
    parts: list[str]


class OutputRecorder:
    """Record of texts, up to `longest` characters, and displays, in order. Thread-safe."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._pieces: deque[_Text | _Display] = deque()
        self._length = 0
        self._displays = 0
        self._cut = False
        self._lock = Lock()

    def text(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Record text that the cell wrote."""
        with self._lock:
            last = self._pieces[-1] if self._pieces else None
            if isinstance(last, _Text) and last.stream == stream and len(last.parts) < 100:
                last.parts.append(text)
            else:
                self._pieces.append(_Text(stream, [text]))
            self._length += len(text)
            self._shorten()

    def display(self, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool) -> None:
        """Record a display of the cell, or the update of one."""
        new = _Display(data, metadata, display_id)
        with self._lock:
            if update:
                known = (n for n, old in enumerate(self._pieces) if isinstance(old, _Display))
                for position in [n for n in known if self._pieces[n].display_id == display_id]:  # type: ignore[union-attr]  # displays only
                    self._pieces[position] = new
                return
            self._pieces.append(new)
            self._displays += 1
            self._shorten()

    def clear(self) -> None:
        """Drop the record: the cell cleared its output."""
        with self._lock:
            self._pieces.clear()
            self._length = self._displays = 0
            self._cut = False

    def pieces(self) -> "list[tuple[Literal['stdout', 'stderr', 'display'], str | dict[str, Any]]]":
        """Return the record in order: texts with their stream, and the data of displays."""
        with self._lock:
            kept, cut = tuple(self._pieces), self._cut
        found: list[tuple[Literal["stdout", "stderr", "display"], str | dict[str, Any]]] = []
        if cut:
            found.append(("stdout", "[... earlier output was dropped]\n"))
        for stream, group in itertools.groupby(kept, key=_stream):
            if stream == "display":
                found.extend((stream, piece.data) for piece in group if isinstance(piece, _Display))
            else:
                texts = (part for piece in group if isinstance(piece, _Text) for part in piece.parts)
                found.append((stream, "".join(texts)))
        return found

    def replay(self, publisher: Any) -> None:
        """Show the whole record again, in the current cell."""
        for stream, content in self.pieces():
            if isinstance(content, str):
                screen.put("stderr" if stream == "stderr" else "stdout", content, self)
            else:
                publisher.publish(data=content, metadata={})

    def _shorten(self) -> None:
        while len(self._pieces) > 1 and (self._length > self._longest or self._displays > MOST):
            dropped = self._pieces.popleft()
            self._cut = True
            if isinstance(dropped, _Text):
                self._length -= sum(map(len, dropped.parts))
            else:
                self._displays -= 1


def _stream(piece: _Text | _Display) -> Literal["stdout", "stderr", "display"]:
    return piece.stream if isinstance(piece, _Text) else "display"
