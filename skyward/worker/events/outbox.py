"""Events on their way to the client: numbered, kept until acknowledged, merged where they can be, bounded.

`put` is called by every thread of the worker; the rest by the agent's loop. A writer of output or of stream elements
waits while the client is more than `LIMIT` bytes behind, so a node's memory is bounded whatever a task prints. While
nobody listens it does not wait: what there is goes to the disk (`backlog`), and is read back when somebody does.

Output is given its place in its stream here, where all of it comes by: also that of processes that come and go.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition  # tasks may replace the attributes of the module

from skyward.wire.protocol.messages import (
    BATCH_BYTES,
    NOWHERE,
    Blob,
    Display,
    Event,
    Finished,
    Metrics,
    OfNode,
    Output,
    Payload,
    Yielded,
)
from skyward.wire.protocol.text import encodable, with_encodable_text
from skyward.worker.events.backlog import Backlog, LastWords

__all__ = ["LIMIT", "Outbox"]

LIMIT = 16 * 1024 * 1024
"""Bytes of events that may wait for the client before writers wait too; in memory, where nobody listens."""

_LOOK = 0.5
"""Seconds between looks of a writer that waits whether the client still listens."""

_OVERHEAD = 64
"""Bytes counted for an event beside its data."""

_PIECE = BATCH_BYTES // 4
"""Characters of one text that go together, so that a long one holds up nothing else."""

_STREAMS = 2048
"""Streams whose lengths are remembered: those that were written to last."""


@dataclass(slots=True)
class _Entry:
    """An event still open to more of its kind: texts of one stream, or elements of one task."""

    event: Event
    more: list[str] | list[Payload]
    size: int

    def close(self) -> Event:
        match self.event:
            case Output(task, stream, text, offset) if self.more:
                return Output(task, stream, "".join((text, *self.more)), offset)
            case Yielded(task, items) if self.more:
                return Yielded(task, (*items, *self.more))
        return self.event


class Outbox:
    """The queue of one worker.

    Args:
        wake: called on the putting thread when there is something to send, with whether that is urgent.
        listened: whether a client listens, however slowly.
        backlog: takes what memory does not hold while none does.
    """

    def __init__(self, wake: Callable[[bool], None], listened: Callable[[], bool], backlog: Backlog) -> None:
        self._wake = wake
        self._listened = listened
        self._backlog = backlog
        self._spilled = False
        self._last_words = LastWords()
        self._ready = Condition()
        self._entries: deque[_Entry] = deque()
        self._latest: Metrics | None = None
        self._lengths: dict[tuple[int, str], int] = {}
        self._forgotten = -1
        self._first = 1
        self._sent = 0
        self._bytes = 0
        self._closed = False

    def put(self, event: Event, *, urgent: bool, wait: bool) -> None:
        """Queue `event`. With `wait`, wait first until the client that listens has caught up."""
        if wait and isinstance(event, Output) and len(event.text) > _PIECE:
            for start in range(0, len(event.text), _PIECE):
                self.put(Output(event.task, event.stream, event.text[start : start + _PIECE]), urgent=urgent, wait=True)
            return
        if isinstance(event, OfNode):  # `Output` is text of tasks, and cleaned below; the others hold bytes only
            event = with_encodable_text(event)
        elif isinstance(event, Output) and (text := encodable(event.text)) is not event.text:
            event = Output(event.task, event.stream, text)
        with self._ready:
            room = not wait or self._bytes <= LIMIT or self._find_room()
            start = self._advance(event) if isinstance(event, Output) else NOWHERE
            if not room and self._last_words.take_in(event, start):
                return
            if self._last_words.streams:
                self._say_last_words(event.task)
            if not self._merge(event):
                self._append(event, start)
        self._wake(urgent)

    def _append(self, event: Event, start: int) -> None:
        if isinstance(event, Output):
            event = Output(event.task, event.stream, event.text, start)
        size = _size(event)
        self._entries.append(_Entry(event, [], size))
        self._bytes += size

    def _find_room(self) -> bool:
        """Wait until the client has caught up, or is known not to listen; whether there is room for more output."""
        while self._bytes > LIMIT and not self._closed:
            if self._listened():
                self._ready.wait(_LOOK)
                continue
            if self._in_memory > LIMIT and not self._backlog.full:
                self._spill()
            return self._in_memory <= LIMIT
        return True

    @property
    def _in_memory(self) -> int:
        return self._bytes - self._backlog.size

    def _spill(self) -> None:
        """Move what there is to the disk, in the messages that it will be sent as; as much as it has room for."""
        self._spilled = True
        while self._entries:
            chosen, size = self._message(0)
            if not self._backlog.add(self._first, chosen, size):
                return
            for _ in chosen:
                self._entries.popleft()
            self._first += len(chosen)

    def _say_last_words(self, task: int | None = None) -> None:
        """Queue what is kept of the last output of a task, or of all of them."""
        for event in self._last_words.give(task):
            self._append(event, event.offset if isinstance(event, Output) else NOWHERE)

    def put_latest(self, event: Metrics) -> None:
        """Have `event` go along with the next events that are sent, in place of the one before if that did not."""
        with self._ready:
            self._latest = event

    def _advance(self, output: Output) -> int:
        """Where `output` begins in its stream, which grows by it. A stream forgotten since then has no such place."""
        key = output.task, output.stream
        start = self._lengths.pop(key, NOWHERE if output.task <= self._forgotten else 0)
        self._lengths[key] = NOWHERE if start == NOWHERE else start + len(output.text)
        if len(self._lengths) > _STREAMS:
            oldest = next(iter(self._lengths))
            del self._lengths[oldest]
            self._forgotten = max(self._forgotten, oldest[0])
        return start

    def _merge(self, event: Event) -> bool:
        """Add `event` to the last entry, if that has not been sent and is its like."""
        if not self._entries or self._first + len(self._entries) - 1 <= self._sent:
            return False
        last = self._entries[-1]
        if last.size > _PIECE:
            return False
        match event, last.event:
            case Output(task, stream, text), Output(other, same) if task == other and stream == same:
                last.more.append(text)  # type: ignore[arg-type]  # the entry is one of texts
                added = len(text)
            case Yielded(task, items), Yielded(other, _) if task == other:
                last.more.extend(items)  # type: ignore[arg-type]  # the entry is one of payloads
                added = sum(map(_payload_size, items))
            case _:
                return False
        last.size += added
        self._bytes += added
        return True

    @property
    def ended(self) -> list[int]:
        """The tasks whose end has not been acknowledged."""
        with self._ready:
            here = [entry.event.task for entry in self._entries if isinstance(entry.event, Finished)]
            return self._backlog.ended + here

    @property
    def pending(self) -> bool:
        """Whether there are events that were never sent."""
        return self._first + len(self._entries) - 1 > self._sent

    @property
    def unheard(self) -> bool:
        """Whether there are events that the client has not acknowledged."""
        return bool(self._entries) or self._spilled

    def acknowledge(self, number: int) -> None:
        """Forget the events up to `number`: they have arrived, and somebody is there to hear what follows."""
        with self._ready:
            if self._spilled:
                self._bytes -= self._backlog.forget(number)
                self._spilled = bool(self._backlog)
            while self._entries and self._first <= number:
                self._bytes -= self._entries.popleft().size
                self._first += 1
            self._sent = max(self._sent, number)
            if self._last_words.streams:
                self._say_last_words()
            self._ready.notify_all()

    def rewind(self) -> None:
        """Send again what was sent and not acknowledged."""
        with self._ready:
            self._sent = self.first - 1

    @property
    def first(self) -> int:
        """The number of the first event that is not acknowledged, or of the next one."""
        return self._backlog.first if self._spilled and self._backlog else self._first

    def take(self) -> tuple[int, tuple[Event, ...]]:
        """The next events to send, up to `BATCH_BYTES` of them, and the number of the first."""
        with self._ready:
            if self._latest is not None:
                self._entries.append(_Entry(self._latest, [], _OVERHEAD))
                self._bytes += _OVERHEAD
                self._latest = None
            start = self._sent + 1
            held = start >= self._first
            events = tuple(self._message(start - self._first)[0]) if held else self._backlog.read(start)
            self._sent += len(events)
            return start, events

    def _message(self, start: int) -> tuple[list[Event], int]:
        """What goes as one message of what is in memory, from `start` on; and its size."""
        chosen: list[Event] = []
        size = 0
        for index in range(start, len(self._entries)):
            entry = self._entries[index]
            if chosen and size + entry.size > BATCH_BYTES:
                break
            chosen.append(entry.close())
            size += entry.size
        return chosen, size

    def close(self) -> None:
        """Let every waiting writer go; the worker ends."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()


def _payload_size(payload: Payload) -> int:
    parts = (payload.data, *payload.buffers)
    return _OVERHEAD + sum(len(part) for part in parts if not isinstance(part, Blob))


def _size(event: Event) -> int:
    match event:
        case Output(text=text):
            return _OVERHEAD + len(text)
        case Yielded(_, items):
            return _OVERHEAD + sum(map(_payload_size, items))
        case Display(_, payload):
            return _payload_size(payload)
    return _OVERHEAD
