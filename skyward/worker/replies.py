"""Answering the client: its questions wait here until there are events for it to hear, or a sign of life is due.

Two threads answer: the engine's loop, and that of a task which has just ended. The latter spares the loop being woken.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from skyward.wire.messages import Batch, Event, Exchange, Reported
from skyward.worker.backlog import Backlog
from skyward.worker.outbox import Outbox

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
        self._answering = threading.RLock()
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
                exchange.reply_to.tell(Batch(self.outbox.first - 1, (self._report(),), self.received))
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
        self._answered = time.monotonic()
        self._burst, self._emitted = self._emitted > BURST, 0
        self._waiting.popleft().tell(Batch(first, events, self.received))

    def beat(self) -> None:
        """Answer when nothing was said for `HOLD`; again and again. One timer: one for each answer costs more."""
        with self._answering:
            if self._waiting and time.monotonic() - self._answered >= HOLD:
                self._answer()
        self._loop.call_later(HOLD / 2, self.beat)

    @property
    def listened_to(self) -> bool:
        """Whether a client asks for events, or has done so a moment ago. For any thread."""
        return bool(self._waiting) or time.monotonic() - self._answered < UNHEARD

    def be_heard(self) -> None:
        """Wait until the client has all events, or seems not to listen."""
        deadline = time.monotonic() + HEARD
        while self.outbox.unheard and time.monotonic() < deadline:
            self._press()
            time.sleep(_LOOK)

    def _press(self) -> None:
        """Answer whatever was asked, for the next question to say what has been heard."""
        with self._answering:
            while self._waiting:
                self._answer()
