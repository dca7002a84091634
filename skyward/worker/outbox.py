"""Events on their way to the client: numbered, kept until acknowledged, merged where they can be, bounded.

`put` is called by every thread of the worker; the rest by the agent's loop. A writer of output or of stream elements
waits while the client is more than `LIMIT` bytes behind, so a node's memory is bounded whatever a task prints.

Output is given its place in its stream here, where all of it comes by: also that of processes that come and go.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from skyward.wire.messages import (
    BATCH_BYTES,
    NOWHERE,
    Blob,
    Display,
    Event,
    Finished,
    Metrics,
    Output,
    Payload,
    Yielded,
)

__all__ = ["LIMIT", "Outbox"]

LIMIT = 16 * 1024 * 1024
"""Bytes of events that may wait for the client before writers wait too."""

_OVERHEAD = 64
"""Bytes counted for an event beside its data."""

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
    """The queue of one worker. `wake(urgent)` is called, on the putting thread, when there is something to send."""

    def __init__(self, wake: Callable[[bool], None]) -> None:
        self._wake = wake
        self._ready = threading.Condition()
        self._entries: deque[_Entry] = deque()
        self._latest: Metrics | None = None
        self._lengths: dict[tuple[int, str], int] = {}
        self._forgotten = -1
        self._first = 1
        self._sent = 0
        self._bytes = 0
        self._closed = False

    def put(self, event: Event, *, urgent: bool, wait: bool) -> None:
        """Queue `event`. With `wait`, wait first until the client has caught up."""
        with self._ready:
            while wait and self._bytes > LIMIT and not self._closed:
                self._ready.wait()
            start = self._advance(event) if isinstance(event, Output) else NOWHERE
            if not self._merge(event):
                if isinstance(event, Output):
                    event = Output(event.task, event.stream, event.text, start)
                size = _size(event)
                self._entries.append(_Entry(event, [], size))
                self._bytes += size
        self._wake(urgent)

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
        if last.size > BATCH_BYTES // 4:
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
            return [entry.event.task for entry in self._entries if isinstance(entry.event, Finished)]

    @property
    def pending(self) -> bool:
        """Whether there are events that were never sent."""
        return self._first + len(self._entries) - 1 > self._sent

    @property
    def unheard(self) -> bool:
        """Whether there are events that the client has not acknowledged."""
        return bool(self._entries)

    def acknowledge(self, number: int) -> None:
        """Forget the events up to `number`: they have arrived."""
        with self._ready:
            while self._entries and self._first <= number:
                self._bytes -= self._entries.popleft().size
                self._first += 1
            self._sent = max(self._sent, number)
            self._ready.notify_all()

    def rewind(self) -> None:
        """Send again what was sent and not acknowledged."""
        with self._ready:
            self._sent = self._first - 1

    def take(self) -> tuple[int, tuple[Event, ...]]:
        """The next events to send, up to `BATCH_BYTES` of them, and the number of the first."""
        with self._ready:
            if self._latest is not None:
                self._entries.append(_Entry(self._latest, [], _OVERHEAD))
                self._bytes += _OVERHEAD
                self._latest = None
            start = self._sent + 1
            chosen: list[Event] = []
            size = 0
            for index in range(start - self._first, len(self._entries)):
                entry = self._entries[index]
                if chosen and size + entry.size > BATCH_BYTES:
                    break
                chosen.append(entry.close())
                size += entry.size
            self._sent += len(chosen)
            return start, tuple(chosen)

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
