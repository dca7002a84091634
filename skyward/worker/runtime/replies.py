"""Answers to the client: its exchanges wait here until there are events to send, or a heartbeat is due.

Two threads answer: the engine's loop, and that of a task which has just ended. The latter saves a wake-up of the loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from threading import RLock  # tasks may replace the attributes of the module
from typing import TYPE_CHECKING

from skyward.errors import PayloadError
from skyward.process.clock import clock
from skyward.wire.protocol.messages import Batch, Exchange, Finished, NodeReport, Output, WorkerEvent
from skyward.wire.protocol.text import with_encodable_text
from skyward.worker.events.backlog import Backlog
from skyward.worker.events.outbox import Outbox
from skyward.worker.tasks.exceptions import failed

if TYPE_CHECKING:
    from casty import Ref

__all__ = ["Replies"]

HOLD = 1.0
"""Seconds after which an `Exchange` is answered even without events: the heartbeat of the node."""

BURST = 32
"""Number of events between two answers from which on further events wait for the next tick, and are sent together."""

ACKNOWLEDGED_WITHIN = 1.0
"""Seconds that a worker which ends waits for the client's acknowledgement."""

LISTENS_FOR = 10.0
"""Seconds without an exchange after which no client listens. A client sends one every five, even over a slow link."""

_POLL_EVERY = 0.02
"""Seconds between polls for acknowledgements."""


class Replies:
    """Open exchanges of the client, and the events that answer them.

    Args:
        loop: the engine's loop.
        backlog: takes the events while no client listens.
        report: makes the first event for a client that knows nothing of this worker.
        for_next_client: returns the events to send to it in place of those that its predecessor got.

    Attributes:
        received: the number of the last command that was received.
        outbox: the events.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        backlog: Backlog,
        report: Callable[[], NodeReport],
        for_next_client: Callable[[list[WorkerEvent]], list[WorkerEvent]] = list,
    ) -> None:
        self.received = 0
        self.outbox = Outbox(self._wake, lambda: self.has_listener, backlog)
        self._loop = loop
        self._report = report
        self._for_next_client = for_next_client
        self._waiting: deque[Ref[Batch]] = deque()
        # Answers leave in the order of their numbers: the client takes a gap for a lost answer.
        self._answer_lock = RLock()
        self._answered = 0.0
        self._flushing = False
        self._emitted = 0
        self._burst = False
        self._parts: list[list[WorkerEvent]] = []

    def park(self, exchange: Exchange) -> None:
        """Keep an exchange open until there are events. At most two are open.

        An exchange without numbers is from a new client, and is answered at once: with a report, which has no number,
        and then with the elements that its predecessor has not consumed.
        """
        with self._answer_lock:
            self.outbox.acknowledge(exchange.acknowledged)
            if exchange.again:
                self.outbox.rewind()
                self._waiting.clear()
            if not exchange.first:
                if not exchange.part:
                    self._parts = [
                        [with_encodable_text(self._report())],
                        *map(self._for_next_client, self.outbox.unconsumed()),
                    ]
                part = self._parts[exchange.part] if exchange.part < len(self._parts) else []
                exchange.reply_to.tell(Batch(self.outbox.first - 1, tuple(part), self.received))
                return
            self._parts.clear()
            self._waiting.append(exchange.reply_to)
            if len(self._waiting) > 2:
                self._answer()

    def put(self, event: WorkerEvent) -> None:
        """Queue an event to be sent soon."""
        self.outbox.put(event, urgent=True, wait=False)

    def say(self, event: WorkerEvent) -> None:
        """Send an event now, from this thread. For threads that cannot be interrupted."""
        self.outbox.put(event, urgent=False, wait=False)
        self.flush()

    def emit(self, event: WorkerEvent) -> None:
        """Queue an event of a running task; block while the client is too far behind."""
        self._emitted += 1
        self.outbox.put(event, urgent=not self._burst, wait=True)

    def flush(self) -> None:
        """Send pending events. For threads that cannot be interrupted."""
        self._flushing = False
        with self._answer_lock:
            while self._waiting and self.outbox.pending:
                self._answer()

    def _wake(self, urgent: bool) -> None:
        if urgent and not self._flushing:
            self._flushing = True
            self._loop.call_soon_threadsafe(self.flush)

    def _answer(self) -> None:
        first, events = self.outbox.take()
        self._answered = clock.monotonic()
        self._burst, self._emitted = self._emitted > BURST, 0
        reply_to = self._waiting.popleft()
        try:
            reply_to.tell(Batch(first, events, self.received))
        except Exception as error:  # an event that cannot be sent ends its task, not the node
            reply_to.tell(Batch(first, tuple(_unsendable(event, error) for event in events), self.received))

    def beat(self) -> None:
        """Answer after `HOLD` seconds without an answer, repeatedly. One timer: a timer per answer costs more."""
        with self._answer_lock:
            if self._waiting and clock.monotonic() - self._answered >= HOLD:
                self._answer()
        self._loop.call_later(HOLD / 2, self.beat)

    @property
    def has_listener(self) -> bool:
        """True if a client has an open exchange, or had one a moment ago. Thread-safe."""
        return bool(self._waiting) or clock.monotonic() - self._answered < LISTENS_FOR

    def wait_acknowledged(self) -> None:
        """Wait until the client has acknowledged all events, or seems not to listen."""
        deadline = clock.monotonic() + ACKNOWLEDGED_WITHIN
        while self.outbox.unacknowledged and clock.monotonic() < deadline:
            self._answer_all()
            clock.sleep(_POLL_EVERY)

    def _answer_all(self) -> None:
        """Answer all open exchanges, so that the client sends its acknowledgements."""
        with self._answer_lock:
            while self._waiting:
                self._answer()


def _unsendable(event: WorkerEvent, error: Exception) -> WorkerEvent:
    """Return the substitute for an event whose batch could not be sent."""
    reason = f"could not be sent to the client: {type(error).__name__}: {error!r}"
    if isinstance(event, Finished):
        return failed(event.task, PayloadError(reason), seconds=event.seconds)
    return with_encodable_text(Output(event.task, "stderr", f"[A {type(event).__name__} event {reason}]\n"))
