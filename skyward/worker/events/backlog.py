"""What nobody has listened to yet, beyond what memory holds: on the node's disk, up to a limit; then the last of it.

A task whose client has gone is not to wait for it: it has ten minutes to finish, and its result is worth more than its
printing. So what it prints while nobody listens goes to a file. Beyond the limit of that file (1 GiB, unless the pool
says otherwise: ten million lines, which as a rule are one line again and again) its first part is kept, and its last;
what was in between is left out, and a line says so in its place. That is what one reads of a long log: how it began
and how it ended; of its displays, the last. Results, and elements of generators, are kept in any case.
"""

import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from skyward.process.scratch import ScratchFile
from skyward.wire.protocol.messages import NOWHERE, Display, Event, Finished, Output

__all__ = ["LAST", "Backlog", "LastWords"]

LAST = 64 * 1024
"""Characters of each stream that are kept of what there is no other room for: the last ones."""

_SHARE = 2
"""Of the disk's free room, one part in so many may be taken."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Events in the file that are sent as one message: `count` of them, from number `first` on."""

    first: int
    count: int
    size: int
    start: int
    length: int
    ended: tuple[int, ...]


class Backlog:
    """Events in a file, in order, which a client takes from its front.

    Args:
        limit: bytes from which on the file is full.
        directory: where it is to be.

    Attributes:
        size: bytes of the events in it, as the outbox counts them.
    """

    def __init__(self, limit: int, directory: Path | None) -> None:
        self.size = 0
        self._limit = self._allowed = limit
        self._directory = directory
        self._file: ScratchFile | None = None
        self._batches: deque[_Batch] = deque()
        self._forgotten = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def first(self) -> int:
        """The number of the first event."""
        return max(self._batches[0].first, self._forgotten + 1)

    @property
    def full(self) -> bool:
        """Whether there is no room for output."""
        return self._allowed <= (0 if self._file is None else self._file.size)

    @property
    def ended(self) -> list[int]:
        """The tasks whose end is in it."""
        return [task for batch in self._batches for task in batch.ended]

    def add(self, first: int, events: Sequence[Event], size: int) -> bool:
        """Append events, `first` being the number of the first; False where the disk has no room for them."""
        try:
            if self._file is None:
                self._file = ScratchFile(self._directory)
            if not self._batches:
                self._allowed = min(self._limit, self._file.free // _SHARE)
            data = pickle.dumps(tuple(events), 5)
            start = self._file.append(data)
        except OSError:
            self._allowed = 0
            return False
        ended = tuple(event.task for event in events if isinstance(event, Finished))
        self._batches.append(_Batch(first, len(events), size, start, len(data), ended))
        self.size += size
        return True

    def read(self, number: int) -> tuple[Event, ...]:
        """The events from `number` on that go as one message."""
        batch = next(each for each in self._batches if number < each.first + each.count)
        assert self._file is not None
        events: tuple[Event, ...] = pickle.loads(self._file.read(batch.start, batch.length))
        return events[number - batch.first :]

    def forget(self, number: int) -> int:
        """Drop the events up to `number`; the bytes that were counted for the batches that are gone with them."""
        before, self._forgotten = self.size, number
        while self._batches and self._batches[0].first + self._batches[0].count - 1 <= number:
            self.size -= self._batches.popleft().size
        if not self._batches and self._file is not None:
            self._file.clear()
            self._allowed = self._limit
        return before - self.size


@dataclass(slots=True)
class _Last:
    """The last of one stream: texts from `offset` on, so many characters, and what was left out before them."""

    offset: int
    length: int = 0
    omitted: int = 0
    texts: list[str] = field(default_factory=list)
    display: Display | None = None
    displays: int = 0

    def add(self, text: str) -> None:
        self.texts.append(text)
        self.length += len(text)
        if self.length <= 2 * LAST:
            return
        kept = "".join(self.texts)[-LAST:]
        gone = self.length - len(kept)
        self.texts, self.length, self.omitted = [kept], len(kept), self.omitted + gone
        if self.offset != NOWHERE:
            self.offset += gone


class LastWords:
    """The last of each stream, and of each task's displays, that there is no other room for.

    Attributes:
        streams: those that there is something of; read it only.
    """

    def __init__(self) -> None:
        self.streams: dict[tuple[int, Literal["stdout", "stderr"]], _Last] = {}

    def take_in(self, event: Event, start: int) -> bool:
        """Keep output, which begins at `start` in its stream, or a display; False for anything else."""
        match event:
            case Output(task, stream, text):
                self._last(task, stream, start).add(text)
            case Display(task):
                last = self._last(task, "stdout", NOWHERE)
                last.displays += last.display is not None
                last.display = event
            case _:
                return False
        return True

    def _last(self, task: int, stream: Literal["stdout", "stderr"], start: int) -> _Last:
        return self.streams.setdefault((task, stream), _Last(start))

    def give(self, task: int | None = None) -> Iterator[Event]:
        """All of it, or that of one task; each stream after a line that says what is missing there, if anything is."""
        for key in [each for each in self.streams if task is None or each[0] == task]:
            last = self.streams.pop(key)
            if last.omitted or last.displays:
                yield Output(*key, _left_out(last.omitted, last.displays))
            if last.texts:
                yield Output(*key, "".join(last.texts), last.offset)
            if last.display is not None:
                yield last.display


def _left_out(characters: int, displays: int) -> str:
    counts = ((characters, "character"), (displays, "display"))
    what = " and ".join(f"{count:,} {kind}{'s' * (count > 1)}" for count, kind in counts if count)
    return f"\n[Skyward left out {what} here, which came while nobody listened: there was no more room on the node.]\n"
