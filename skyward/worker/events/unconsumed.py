"""Elements of generators that the client has not consumed: kept on the node, for the next client if this one dies.

A client acknowledges elements when they arrive, and grants credit for them once they are consumed. The credit that a
generator gets bounds the elements kept of it; those of ended generators have one limit together. An element that was
consumed, but not credited yet, counts as not consumed.
"""

from collections import deque
from dataclasses import dataclass, field

from skyward.wire.protocol.flow import WINDOW, cost
from skyward.wire.protocol.messages import BATCH_BYTES, Blob, Finished, Payload, WorkerEvent, Yielded

__all__ = ["ENDED_LIMIT", "Unconsumed"]

ENDED_LIMIT = 4 * WINDOW
"""Units of credit, as elements cost them, that are kept of all ended generators together: the last ended."""


@dataclass(slots=True)
class _Stream:
    """Stream of one task: its elements from number `consumed` on, of which those before `delivered` have arrived."""

    items: deque[Payload] = field(default_factory=deque)
    consumed: int = 0
    delivered: int = 0
    cancelled: bool = False
    finished: Finished | None = None

    def credit(self, units: int) -> None:
        """Forget the elements that `units` of credit pay for."""
        while units > 0 and self.items:
            units -= cost(self.items.popleft())
            self.consumed += 1


class Unconsumed:
    """Streams with elements that the client has not consumed, by task. The outbox's lock protects it."""

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}
        self._ended: dict[int, int] = {}

    def put(self, event: Yielded | Finished) -> None:
        """Keep the elements of an event, or the end of a stream that has some."""
        stream = self._streams.get(event.task)
        if isinstance(event, Yielded):
            if stream is None:
                stream = self._streams[event.task] = _Stream()
            stream.items.extend(event.items)
        elif stream is not None:
            stream.finished = event
            if stream.cancelled or event.outcome == "cancelled":
                del self._streams[event.task]

    def delivered(self, event: WorkerEvent) -> None:
        """Note that the client has an event."""
        stream = self._streams.get(event.task)
        if stream is None:
            return
        if isinstance(event, Yielded):
            stream.delivered += len(event.items)
        elif isinstance(event, Finished):
            if not stream.items:
                del self._streams[event.task]
                return
            self._ended[event.task] = sum(map(cost, stream.items))
            while len(self._ended) > 1 and sum(self._ended.values()) > ENDED_LIMIT:
                self._forget(next(iter(self._ended)))

    def credit(self, task: int, units: int) -> None:
        """Forget the elements of a task that were consumed."""
        stream = self._streams.get(task)
        if stream is None:
            return
        stream.credit(units)
        if task in self._ended:
            self._ended[task] -= units
            if not stream.items:
                self._forget(task)

    def cancel(self, task: int) -> None:
        """Forget a task that the client has stopped, at once or when it ends."""
        if (stream := self._streams.get(task)) is not None:
            stream.cancelled = True
            if stream.finished is not None:
                self._forget(task)

    def _forget(self, task: int) -> None:
        self._streams.pop(task, None)
        self._ended.pop(task, None)

    @property
    def tasks(self) -> list[int]:
        """Tasks that have ended, and whose end has arrived."""
        return list(self._ended)

    def again(self) -> list[list[WorkerEvent]]:
        """Return the events that have arrived at the former client, in messages of about `BATCH_BYTES`."""
        messages: list[list[WorkerEvent]] = [[]]
        room = BATCH_BYTES
        for task, stream in self._streams.items():
            chosen: list[Payload] = []
            for number, item in enumerate(stream.items, stream.consumed):
                if number >= stream.delivered:
                    break
                chosen.append(item)
                room -= _size(item)
                if room <= 0:
                    messages[-1].append(Yielded(task, tuple(chosen)))
                    messages.append([])
                    chosen, room = [], BATCH_BYTES
            if chosen:
                messages[-1].append(Yielded(task, tuple(chosen)))
            if task in self._ended and stream.finished is not None:
                messages[-1].append(stream.finished)
        return [message for message in messages if message]


def _size(payload: Payload) -> int:
    parts = (payload.data, *payload.buffers)
    return 64 + sum(len(part) for part in parts if not isinstance(part, Blob))
