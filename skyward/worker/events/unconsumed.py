"""Elements of generators that the client has not consumed: kept on the node, for the next client if this one dies.

A client acknowledges elements when they arrive, and grants credit for them once they are consumed. The credit that a
generator gets bounds the elements kept of it; those of ended generators have one limit together. An element that was
consumed, but not credited yet, counts as not consumed.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from skyward.wire.protocol.flow import UNIT_BYTES, WINDOW, cost
from skyward.wire.protocol.messages import BATCH_BYTES, Blob, Finished, Payload, WorkerEvent, Yielded

__all__ = ["ENDED_LIMIT", "Unconsumed"]

ENDED_LIMIT = 4 * WINDOW
"""Units of credit, as elements cost them, that are kept of all ended generators together: the last ended."""

_REMEMBERED = 4096
"""Number of streams that are remembered; beyond it, the oldest without elements are forgotten."""


@dataclass(slots=True)
class _Stream:
    """Stream of one task: elements that have arrived at the client, in groups, each with its cost in credit.

    `credit` is what was granted for consumed elements, less the cost of the groups that were forgotten.
    """

    groups: deque[tuple[tuple[Payload, ...], int]] = field(default_factory=deque)
    credit: int = 0
    cancelled: bool = False
    finished: Finished | None = None

    def forget(self) -> None:
        """Forget the groups that were consumed as a whole."""
        while self.groups and self.credit >= self.groups[0][1]:
            self.credit -= self.groups.popleft()[1]

    @property
    def units(self) -> int:
        """Cost of the kept elements."""
        return sum(units for _, units in self.groups)

    def items(self) -> Iterator[Payload]:
        """Yield the elements that were not consumed."""
        credit = self.credit
        for items, _ in self.groups:
            for item in items:
                if credit > 0:
                    credit -= cost(item)
                else:
                    yield item


class Unconsumed:
    """Streams with elements that the client has and has not consumed, by task. The outbox's lock protects it."""

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}

    def delivered(self, event: WorkerEvent) -> None:
        """Keep an event that has arrived: elements, or the end of a task that some are kept of."""
        if isinstance(event, Yielded):
            stream = self._stream(event.task)
            stream.groups.append((event.items, _units(event.items)))
            stream.forget()
        elif isinstance(event, Finished) and (ended := self._streams.get(event.task)) is not None:
            ended.finished = event
            if not ended.groups or ended.cancelled or event.outcome == "cancelled":
                del self._streams[event.task]
            else:
                self._enforce_limit()

    def credit(self, task: int, units: int) -> None:
        """Forget the elements of a task that were consumed. The credit may come before the note of their arrival."""
        stream = self._stream(task)
        stream.credit += units
        stream.forget()
        if stream.finished is not None and not stream.groups:
            del self._streams[task]

    def cancel(self, task: int) -> None:
        """Forget a task that the client has stopped, at once or when it ends."""
        if (stream := self._streams.get(task)) is not None:
            stream.cancelled = True
            if stream.finished is not None:
                del self._streams[task]

    def _stream(self, task: int) -> _Stream:
        if (stream := self._streams.get(task)) is None:
            stream = self._streams[task] = _Stream()
            if len(self._streams) > _REMEMBERED:
                for old in [each for each, stream in self._streams.items() if not stream.groups and each != task]:
                    del self._streams[old]
        return stream

    def _enforce_limit(self) -> None:
        """Forget the ended streams that ended first, beyond the limit; never the last."""
        ended = self.tasks
        total = sum(self._streams[task].units for task in ended)
        for task in ended[:-1]:
            if total <= ENDED_LIMIT:
                return
            total -= self._streams.pop(task).units

    @property
    def tasks(self) -> list[int]:
        """Tasks that have ended, and whose end has arrived."""
        return [task for task, stream in self._streams.items() if stream.finished is not None]

    def messages(self) -> list[list[WorkerEvent]]:
        """Return the events that have arrived at the former client, in messages of about `BATCH_BYTES`."""
        messages: list[list[WorkerEvent]] = [[]]
        room = BATCH_BYTES
        for task, stream in self._streams.items():
            chosen: list[Payload] = []
            for item in stream.items():
                chosen.append(item)
                room -= _size(item)
                if room <= 0:
                    messages[-1].append(Yielded(task, tuple(chosen)))
                    messages.append([])
                    chosen, room = [], BATCH_BYTES
            if chosen:
                messages[-1].append(Yielded(task, tuple(chosen)))
            if stream.finished is not None:
                messages[-1].append(stream.finished)
        return [message for message in messages if message]


def _units(items: tuple[Payload, ...]) -> int:
    """Return the cost of elements, as `cost` counts it; quickly for small ones."""
    units = 0
    for item in items:
        data = item.data
        units += 1 if type(data) is bytes and len(data) < UNIT_BYTES and not item.buffers else cost(item)
    return units


def _size(payload: Payload) -> int:
    parts = (payload.data, *payload.buffers)
    return 64 + sum(len(part) for part in parts if not isinstance(part, Blob))
