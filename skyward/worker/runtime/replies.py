"""Answering the client: its questions wait here until there are events for it to hear, or a sign of life is due.

Two threads answer: the engine's loop, and that of a task which has just ended. The latter spares the loop being woken.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from threading import RLock  # tasks may replace the attributes of the module
from typing import TYPE_CHECKING

from skyward.errors import PayloadError
from skyward.process.clock import clock
from skyward.wire.protocol.messages import Batch, Event, Exchange, Finished, Output, Reported
from skyward.wire.protocol.text import with_encodable_text
from skyward.worker.events.backlog import Backlog
from skyward.worker.events.outbox import Outbox
from skyward.worker.tasks.exceptions import failed

if TYPE_CHECKING:
    from casty import Ref

__all__ = ["Replies"]

HOLD = 1.0
"""Seconds after which an `Exchange` is answered even with nothing to say: the heartbeat of the node."""

BURST = 32
"""Events between two answers from which on those that follow wait for the next tick, and go together."""

HEARD = 1.0
"""Seconds that a worker which ends waits for the client to have heard it."""

UNHEARD = 10.0
"""Seconds without a question after which nobody listens. A client asks anew every five, however slow its link is."""

_LOOK = 0.02
"""Seconds between its looks."""


class Replies:
    """The questions of the client, and the events that answer them.

    Args:
        loop: the engine's loop.
        backlog: takes the events while nobody listens.
        report: what a client that knows nothing of this worker hears first.

    Attributes:
        received: the number of the last command that has come.
        outbox: the events.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, backlog: Backlog, report: Callable[[], Reported]) -> None:
        self.received = 0
        self.outbox = Outbox(self._wake, lambda: self.listened_to, backlog)
        self._loop = loop
        self._report = report
        self._waiting: deque[Ref[Batch]] = deque()
        # Answers leave in the order of their numbers, or the client takes one to be lost.
        self._answering = RLock()
        self._answered = 0.0
        self._flushing = False
        self._emitted = 0
        self._burst = False

    def park(self, exchange: Exchange) -> None:
        """Keep the client's wish for an answer until there are events. It has two of them here at most.

        One that knows no numbers is new, and hears first what there is: ahead of all events, and not numbered as one.
        """
        with self._answering:
            self.outbox.acknowledge(exchange.acknowledged)
            if exchange.again:
                self.outbox.rewind()
                self._waiting.clear()
            if not exchange.first:
                report = with_encodable_text(self._report())
                exchange.reply_to.tell(Batch(self.outbox.first - 1, (report,), self.received))
                return
            self._waiting.append(exchange.reply_to)
            if len(self._waiting) > 2:
                self._answer()

    def put(self, event: Event) -> None:
        """Queue an event that the client is to hear soon."""
        self.outbox.put(event, urgent=True, wait=False)

    def say(self, event: Event) -> None:
        """Have the client hear an event now, from this thread; for any where no interrupt can land."""
        self.outbox.put(event, urgent=False, wait=False)
        self.flush()

    def emit(self, event: Event) -> None:
        """Queue an event of a running task; waits while the client is too far behind."""
        self._emitted += 1
        self.outbox.put(event, urgent=not self._burst, wait=True)

    def flush(self) -> None:
        """Answer with what there is to say. For any thread where no interrupt can land."""
        self._flushing = False
        with self._answering:
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
        except Exception as error:  # whatever it is: it ends its task, not the node
            reply_to.tell(Batch(first, tuple(_unsendable(event, error) for event in events), self.received))

    def beat(self) -> None:
        """Answer when nothing was said for `HOLD`; again and again. One timer: one for each answer costs more."""
        with self._answering:
            if self._waiting and clock.monotonic() - self._answered >= HOLD:
                self._answer()
        self._loop.call_later(HOLD / 2, self.beat)

    @property
    def listened_to(self) -> bool:
        """Whether a client asks for events, or has done so a moment ago. For any thread."""
        return bool(self._waiting) or clock.monotonic() - self._answered < UNHEARD

    def be_heard(self) -> None:
        """Wait until the client has all events, or seems not to listen."""
        deadline = clock.monotonic() + HEARD
        while self.outbox.unheard and clock.monotonic() < deadline:
            self._press()
            clock.sleep(_LOOK)

    def _press(self) -> None:
        """Answer whatever was asked, for the next question to say what has been heard."""
        with self._answering:
            while self._waiting:
                self._answer()


def _unsendable(event: Event, error: Exception) -> Event:
    """Return what is sent in the place of an event that went with one which cannot be sent."""
    why = f"could not be sent to the client: {type(error).__name__}: {error!r}"
    if isinstance(event, Finished):
        return failed(event.task, PayloadError(why), seconds=event.seconds)
    return with_encodable_text(Output(event.task, "stderr", f"[A {type(event).__name__} event {why}]\n"))
