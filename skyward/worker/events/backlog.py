"""Events that wait for a client that does not listen, beyond the memory limit: on the node's disk, up to a limit.

A task whose client has gone does not wait for it: it has ten minutes to finish, and its result is worth more than its
output. So output that is printed while no client listens goes to a file. Once that file is full (1 GiB, unless the pool
sets another limit), the output in it is kept, and the end of each stream; the middle is omitted, and a line in its
place says so. So a reader sees how a long log began and how it ended; of displays, the last. Results and elements of
generators are always kept.
"""

import pickle
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from skyward.process.scratch import ScratchFile
from skyward.wire.protocol.messages import UNKNOWN_OFFSET, Display, Finished, Output, WorkerEvent, Yielded

__all__ = ["TAIL", "Backlog", "StreamTails"]

TAIL = 64 * 1024
"""Characters of each stream that are kept once the file is full: the last ones."""

_PART = 2
"""Divisor of the disk's free space: the file may take this part."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Events in the file that are sent as one message: `count` events, numbered from `first` on."""

    first: int
    count: int
    size: int
    start: int
    length: int
    ended: tuple[int, ...]
    streams: bool


class Backlog:
    """Events in a file, in order, which the client consumes from the front.

    Args:
        limit: bytes at which the file is full.
        directory: directory of the file.

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
        """Number of the first event."""
        return max(self._batches[0].first, self._forgotten + 1)

    @property
    def full(self) -> bool:
        """True if there is no room for output."""
        return self._allowed <= (0 if self._file is None else self._file.size)

    @property
    def ended(self) -> list[int]:
        """Tasks whose last event is in the file."""
        return [task for batch in self._batches for task in batch.ended]

    def add(self, first: int, events: Sequence[WorkerEvent], size: int) -> bool:
        """Append events, `first` being the number of the first; return False if the disk has no room for them."""
        try:
            if self._file is None:
                self._file = ScratchFile(self._directory)
            if not self._batches:
                self._allowed = min(self._limit, self._file.free // _PART)
            data = pickle.dumps(tuple(events), 5)
            start = self._file.append(data)
        except OSError:
            self._allowed = 0
            return False
        ended = tuple(event.task for event in events if isinstance(event, Finished))
        streams = any(isinstance(event, Yielded | Finished) for event in events)
        self._batches.append(_Batch(first, len(events), size, start, len(data), ended, streams))
        self.size += size
        return True

    def read(self, number: int) -> tuple[WorkerEvent, ...]:
        """Return the events from `number` on that are sent as one message."""
        batch = next(each for each in self._batches if number < each.first + each.count)
        return self._load(batch)[number - batch.first :]

    def _load(self, batch: _Batch) -> tuple[WorkerEvent, ...]:
        assert self._file is not None
        events: tuple[WorkerEvent, ...] = pickle.loads(self._file.read(batch.start, batch.length))
        return events

    def streamed(self, number: int) -> Iterator[WorkerEvent]:
        """Yield the elements of generators and the ends of tasks among the events up to `number`."""
        for batch in self._batches:
            if batch.first > number:
                return
            if batch.streams:
                for place, event in enumerate(self._load(batch), batch.first):
                    if self._forgotten < place <= number and isinstance(event, Yielded | Finished):
                        yield event

    def forget(self, number: int) -> int:
        """Drop the events up to `number`; return the counted bytes of the batches dropped."""
        before, self._forgotten = self.size, number
        while self._batches and self._batches[0].first + self._batches[0].count - 1 <= number:
            self.size -= self._batches.popleft().size
        if not self._batches and self._file is not None:
            self._file.clear()
            self._allowed = self._limit
        return before - self.size


@dataclass(slots=True)
class _Tail:
    """The end of one stream: texts from `offset` on, their length, and the number of omitted characters."""

    offset: int
    length: int = 0
    omitted: int = 0
    texts: list[str] = field(default_factory=list)
    display: Display | None = None
    displays: int = 0

    def add(self, text: str) -> None:
        self.texts.append(text)
        self.length += len(text)
        if self.length <= 2 * TAIL:
            return
        kept = "".join(self.texts)[-TAIL:]
        gone = self.length - len(kept)
        self.texts, self.length, self.omitted = [kept], len(kept), self.omitted + gone
        if self.offset != UNKNOWN_OFFSET:
            self.offset += gone


class StreamTails:
    """The end of each stream, and of each task's displays, for which there is no other room.

    Attributes:
        streams: streams that are not empty, by task and name. Read-only.
    """

    def __init__(self) -> None:
        self.streams: dict[tuple[int, Literal["stdout", "stderr"]], _Tail] = {}

    def add_event(self, event: WorkerEvent, start: int) -> bool:
        """Keep output, which begins at `start` in its stream, or a display; return False for any other event."""
        match event:
            case Output(task, stream, text):
                self._tail(task, stream, start).add(text)
            case Display(task):
                last = self._tail(task, "stdout", UNKNOWN_OFFSET)
                last.displays += last.display is not None
                last.display = event
            case _:
                return False
        return True

    def _tail(self, task: int, stream: Literal["stdout", "stderr"], start: int) -> _Tail:
        return self.streams.setdefault((task, stream), _Tail(start))

    def drain(self, task: int | None = None) -> Iterator[WorkerEvent]:
        """Yield all of it, or that of one task; a stream with omissions begins with a line that says so."""
        for key in [each for each in self.streams if task is None or each[0] == task]:
            last = self.streams.pop(key)
            if last.omitted or last.displays:
                yield Output(*key, _omission_text(last.omitted, last.displays))
            if last.texts:
                yield Output(*key, "".join(last.texts), last.offset)
            if last.display is not None:
                yield last.display


def _omission_text(characters: int, displays: int) -> str:
    counts = ((characters, "character"), (displays, "display"))
    what = " and ".join(f"{count:,} {kind}{'s' * (count > 1)}" for count, kind in counts if count)
    return f"\n[Skyward left out {what} here: no client was listening, and the node's output buffer was full.]\n"
