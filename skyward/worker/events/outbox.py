"""Events for the client: numbered, kept until acknowledged, merged where possible, bounded.

`put` is called by every thread of the worker; the rest by the agent's loop. A writer of output or of stream elements
blocks while the client is more than `LIMIT` bytes behind, so a node's memory is bounded whatever a task prints. While
no client listens, writers do not block: queued events move to the disk (`backlog`), and are read back for the client.

Output gets its offset in its stream in_memory, where all of it passes, also that of short-lived processes.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from skyward.process.conditions import LockedCondition
from skyward.wire.protocol.messages import (
    BATCH_BYTES,
    UNKNOWN_OFFSET,
    Blob,
    Display,
    Finished,
    Metrics,
    OfNode,
    Output,
    Payload,
    WorkerEvent,
    Yielded,
)
from skyward.wire.protocol.text import encodable, with_encodable_text
from skyward.wire.protocol.volumes import VolumesFlushed, VolumeStates
from skyward.worker.events.backlog import Backlog, StreamTails
from skyward.worker.events.unconsumed import Unconsumed

__all__ = ["LIMIT", "Outbox"]

LIMIT = 16 * 1024 * 1024
"""Bytes of events that may wait for the client before writers block; the limit in memory where no client listens."""

_POLL_EVERY = 0.5
"""Seconds between checks by a blocked writer that the client still listens."""

_OVERHEAD = 64
"""Bytes counted for an event in addition to its data."""

_PIECE = BATCH_BYTES // 4
"""Characters of one text that are sent together, so that a long one delays nothing else."""

_STREAMS = 2048
"""Number of streams whose lengths are remembered: those written to last."""


@dataclass(slots=True)
class _Entry:
    """An event that can still be extended: by text of the same stream, or by elements of the same task."""

    event: WorkerEvent
    more: list[str] | list[Payload]
    size: int

    def close(self) -> WorkerEvent:
        match self.event:
            case Output(task, stream, text, offset) if self.more:
                return Output(task, stream, "".join((text, *self.more)), offset)
            case Yielded(task, items) if self.more:
                return Yielded(task, (*items, *self.more))
        return self.event


class Outbox:
    """Event queue of one worker.

    Args:
        wake: called on the putting thread when there is something to send, with True if it is urgent.
        listened: returns whether a client listens, even over a slow link.
        backlog: takes events beyond the memory limit while no client listens.
    """

    def __init__(self, wake: Callable[[bool], None], listened: Callable[[], bool], backlog: Backlog) -> None:
        self._wake = wake
        self._listened = listened
        self._backlog = backlog
        self._spilled = False
        self._tails = StreamTails()
        self._unconsumed = Unconsumed()
        self._ready = LockedCondition()
        self._entries: deque[_Entry] = deque()
        self._latest: dict[type, WorkerEvent] = {}
        self._lengths: dict[tuple[int, str], int] = {}
        self._forgotten = -1
        self._first = 1
        self._sent = 0
        self._bytes = 0
        self._closed = False

    def put(self, event: WorkerEvent, *, urgent: bool, wait: bool) -> None:
        """Queue `event`. With `wait`, first wait until a listening client has caught up."""
        if wait and isinstance(event, Output) and len(event.text) > _PIECE:
            for start in range(0, len(event.text), _PIECE):
                self.put(Output(event.task, event.stream, event.text[start : start + _PIECE]), urgent=urgent, wait=True)
            return
        if isinstance(event, OfNode):  # `Output` is text of tasks, and cleaned below; the others hold bytes only
            event = with_encodable_text(event)
        elif isinstance(event, Output) and (text := encodable(event.text)) is not event.text:
            event = Output(event.task, event.stream, text)
        with self._ready.lock:
            room = not wait or self._bytes <= LIMIT or self._find_room()
            start = self._advance(event) if isinstance(event, Output) else UNKNOWN_OFFSET
            if not room and self._tails.add_event(event, start):
                return
            if self._tails.streams:
                self._queue_tails(event.task)
            if isinstance(event, Finished | VolumesFlushed):
                self._queue_latest()  # who hears that a task has ended must not find the state from before
            if not self._merge(event):
                self._append(event, start)
        self._wake(urgent)

    def _append(self, event: WorkerEvent, start: int) -> None:
        if isinstance(event, Output):
            event = Output(event.task, event.stream, event.text, start)
        size = _size(event)
        self._entries.append(_Entry(event, [], size))
        self._bytes += size

    def _find_room(self) -> bool:
        """Wait until the client has caught up, or no longer listens; return whether there is room for more output."""
        while self._bytes > LIMIT and not self._closed:
            if self._listened():
                self._ready.wait(_POLL_EVERY)
                continue
            if self._in_memory > LIMIT and not self._backlog.full:
                self._spill()
            return self._in_memory <= LIMIT
        return True

    @property
    def _in_memory(self) -> int:
        return self._bytes - self._backlog.size

    def _spill(self) -> None:
        """Move queued events to the disk, batched as they will be sent, as far as it has room."""
        self._spilled = True
        while self._entries:
            chosen, size = self._message(0)
            if not self._backlog.add(self._first, chosen, size):
                return
            for _ in chosen:
                self._entries.popleft()
            self._first += len(chosen)

    def _queue_tails(self, task: int | None = None) -> None:
        """Queue the kept end of the output of a task, or of all tasks."""
        for event in self._tails.drain(task):
            self._append(event, event.offset if isinstance(event, Output) else UNKNOWN_OFFSET)

    def put_latest(self, event: Metrics | VolumeStates) -> None:
        """Send `event` with the next events, in place of an earlier one of its type that was not sent.

        It is sent before the end of a task that is put later.
        """
        with self._ready.lock:
            self._latest[type(event)] = event

    def _queue_latest(self) -> None:
        for latest in self._latest.values():
            self._entries.append(_Entry(latest, [], _OVERHEAD))
            self._bytes += _OVERHEAD
        self._latest.clear()

    def _advance(self, output: Output) -> int:
        """Return the offset of `output` in its stream, and advance it; `UNKNOWN_OFFSET` for a forgotten stream."""
        key = output.task, output.stream
        start = self._lengths.pop(key, UNKNOWN_OFFSET if output.task <= self._forgotten else 0)
        self._lengths[key] = UNKNOWN_OFFSET if start == UNKNOWN_OFFSET else start + len(output.text)
        if len(self._lengths) > _STREAMS:
            oldest = next(iter(self._lengths))
            del self._lengths[oldest]
            self._forgotten = max(self._forgotten, oldest[0])
        return start

    def _merge(self, event: WorkerEvent) -> bool:
        """Extend the last entry by `event`, if it has not been sent and is of the same kind. Return whether it did."""
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
        """Tasks whose last event is not acknowledged, or that yielded elements which were not consumed."""
        with self._ready.lock:
            in_memory = [entry.event.task for entry in self._entries if isinstance(entry.event, Finished)]
            return self._backlog.ended + in_memory + self._unconsumed.tasks

    @property
    def pending(self) -> bool:
        """True if there are events that were never sent."""
        return self._first + len(self._entries) - 1 > self._sent

    @property
    def unacknowledged(self) -> bool:
        """True if there are events that the client has not acknowledged."""
        return bool(self._entries) or self._spilled

    def acknowledge(self, number: int) -> None:
        """Drop the events up to `number`, which have arrived, and queue the kept end of other output."""
        with self._ready.lock:
            if self._spilled:
                for event in self._backlog.streamed(number):
                    self._unconsumed.delivered(event)
                self._bytes -= self._backlog.forget(number)
                self._spilled = bool(self._backlog)
            while self._entries and self._first <= number:
                entry = self._entries.popleft()
                self._bytes -= entry.size
                self._first += 1
                if isinstance(entry.event, (Yielded, Finished)):
                    self._unconsumed.delivered(entry.close())
            self._sent = max(self._sent, number)
            if self._tails.streams:
                self._queue_tails()
            self._ready.notify_all()

    def consumed(self, task: int, units: int) -> None:
        """Forget elements of a task that the client has consumed, and granted `units` of credit for."""
        with self._ready.lock:
            self._unconsumed.credit(task, units)

    def cancelled(self, task: int) -> None:
        """Forget the elements of a task that the client has stopped."""
        with self._ready.lock:
            self._unconsumed.cancel(task)

    def unconsumed(self) -> list[list[WorkerEvent]]:
        """Return the elements that arrived and were not consumed, and the ends of their tasks, as messages."""
        with self._ready.lock:
            return self._unconsumed.messages()

    def rewind(self) -> None:
        """Send unacknowledged events again."""
        with self._ready.lock:
            self._sent = self.first - 1

    @property
    def first(self) -> int:
        """Number of the first event that is not acknowledged, or of the next event."""
        return self._backlog.first if self._spilled and self._backlog else self._first

    def take(self) -> tuple[int, tuple[WorkerEvent, ...]]:
        """Return the next events to send, up to `BATCH_BYTES` of them, and the number of the first."""
        with self._ready.lock:
            self._queue_latest()
            start = self._sent + 1
            in_memory = start >= self._first
            events = tuple(self._message(start - self._first)[0]) if in_memory else self._backlog.read(start)
            self._sent += len(events)
            return start, events

    def _message(self, start: int) -> tuple[list[WorkerEvent], int]:
        """Return the next message from the events in memory, from `start` on, and its size."""
        chosen: list[WorkerEvent] = []
        size = 0
        for index in range(start, len(self._entries)):
            entry = self._entries[index]
            if chosen and size + entry.size > BATCH_BYTES:
                break
            chosen.append(entry.close())
            size += entry.size
        return chosen, size

    def close(self) -> None:
        """Release all blocked writers; the worker ends."""
        with self._ready.lock:
            self._closed = True
            self._ready.notify_all()


def _payload_size(payload: Payload) -> int:
    parts = (payload.data, *payload.buffers)
    return _OVERHEAD + sum(len(part) for part in parts if not isinstance(part, Blob))


def _size(event: WorkerEvent) -> int:
    match event:
        case Output(text=text):
            return _OVERHEAD + len(text)
        case Yielded(_, items):
            return _OVERHEAD + sum(map(_payload_size, items))
        case Display(_, payload):
            return _payload_size(payload)
    return _OVERHEAD
