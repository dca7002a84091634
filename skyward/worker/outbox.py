"""Events on their way to the client: numbered, kept until acknowledged, merged where they can be, bounded.

`put` is called by every thread of the worker; the rest by the agent's loop. A writer of output or of stream elements
waits while the client is more than `LIMIT` bytes behind, so a node's memory is bounded whatever a task prints.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from skyward.wire.messages import BATCH_BYTES, Blob, Display, Event, Finished, Output, Payload, Yielded

__all__ = ["LIMIT", "Outbox"]

LIMIT = 16 * 1024 * 1024
"""Bytes of events that may wait for the client before writers wait too."""

_OVERHEAD = 64
"""Bytes counted for an event beside its data."""


@dataclass(slots=True)
class _Entry:
    """An event still open to more of its kind: texts of one stream, or elements of one task."""

    event: Event
    more: list[str] | list[Payload]
    size: int

    def close(self) -> Event:
        match self.event:
            case Output(task, stream, text) if self.more:
                return Output(task, stream, "".join((text, *self.more)))
            case Yielded(task, items) if self.more:
                return Yielded(task, (*items, *self.more))
        return self.event


class Outbox:
    """The queue of one worker. `wake(urgent)` is called, on the putting thread, when there is something to send."""

    def __init__(self, wake: Callable[[bool], None]) -> None:
        self._wake = wake
        self._ready = threading.Condition()
        self._entries: deque[_Entry] = deque()
        self._first = 1
        self._sent = 0
        self._bytes = 0
        self._closed = False

    def put(self, event: Event, *, urgent: bool, wait: bool) -> None:
        """Queue `event`. With `wait`, wait first until the client has caught up."""
        with self._ready:
            while wait and self._bytes > LIMIT and not self._closed:
                self._ready.wait()
            if not self._merge(event):
                size = _size(event)
                self._entries.append(_Entry(event, [], size))
                self._bytes += size
        self._wake(urgent)

    def _merge(self, event: Event) -> bool:
        """Add `event` to the last entry, if that has not been sent and is its like."""
        if not self._entries or self._first + len(self._entries) - 1 <= self._sent:
            return False
        last = self._entries[-1]
        if last.size > BATCH_BYTES // 4:
            return False
        match event, last.event:
            case Output(task, stream, text), Output(other, same, _) if task == other and stream == same:
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
        case Output(_, _, text):
            return _OVERHEAD + len(text)
        case Yielded(_, items):
            return _OVERHEAD + sum(map(_payload_size, items))
        case Display(_, payload):
            return _payload_size(payload)
    return _OVERHEAD
