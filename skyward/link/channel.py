"""Messages to and from one node: numbered, acknowledged, sent again after a break, watched by our own heartbeat.

The engine's own heartbeats detect neither a hung worker nor a silent only member, so liveness depends on the answer to
each `Exchange`, which a node sends at least once a second.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import timedelta

from casty import ActorFailed, Client, MessageTooLarge, NotStarted, Refused, Runtime, Unavailable

from skyward.errors import NodeStartError
from skyward.wire.protocol.mailbox import LIMITS, reference
from skyward.wire.protocol.messages import (
    BATCH_BYTES,
    Batch,
    Blob,
    Code,
    Commands,
    Exchange,
    Feed,
    NodeCommand,
    Payload,
    Submit,
    WorkerEvent,
)
from skyward.wire.transport.trust import Credentials, presented

__all__ = ["Channel", "engine_runtime"]

ANSWER_WITHIN = 4.0
"""Seconds without an answer after which the exchange is repeated; a node answers at least once a second."""

_SYNC = timedelta(seconds=5)
_SYNC_TUNNELLED = timedelta(seconds=1)
"""Interval of the engine's membership checks, and so the delay until it notices that a broken tunnel is back."""

_RETRY = 0.1
_STALE = 1.0
_WATCH_EVERY = 1.0
_BROKEN = (Unavailable, NotStarted, ActorFailed, MessageTooLarge, TimeoutError, ConnectionError)

_logger = logging.getLogger(__name__)
_runtime: Runtime | None = None


def engine_runtime() -> Runtime:
    """Return the engine's transport threads, shared by all channels of this process."""
    global _runtime
    if _runtime is None:
        _runtime = Runtime(threads=1)
    return _runtime


def _log(event: object) -> None:
    """Log a report of the engine, for debugging: the pool itself reports a lost node."""
    _logger.debug("engine: %s", event)


class Channel:
    """Message channel to one node. Lives on the library's loop.

    The node always holds at least one unanswered `Exchange` of ours, so that it can send events at once; commands
    travel in exchanges too, which leaves one message in each direction for a task.

    Args:
        address: address of the node's mailbox.
        credentials: authenticate both ends.
        grace: seconds of silence after which the node counts as lost. Time in which this process was suspended, or its
            loop was blocked, does not count.
        on_event: called with each event once, in order.
        on_lost: called once with the reason when the node is lost.
        dial: returns the address through which `address` can be reached now; a tunnel may change it.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        grace: float,
        on_event: Callable[[WorkerEvent], None],
        on_lost: Callable[[str], None],
        dial: Callable[[str], str] = str,
    ) -> None:
        self._address = address
        self._credentials = credentials
        self._grace = grace
        self._on_event = on_event
        self._on_lost = on_lost
        self._dial = dial
        self._client: Client | None = None
        self._connected = False
        self._closed = False
        self._outgoing: list[NodeCommand] = []
        self._unconfirmed: deque[NodeCommand] = deque()
        self._first = 1
        self._next = 1
        self._seen = 0
        self._last_message_at = 0.0
        self._progress_at = 0.0
        self._watched_at = 0.0
        self._awaited: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._asking: set[asyncio.Task[None]] = set()
        self._unanswered = 0
        self._recovering = False

    @property
    def connected(self) -> bool:
        """True if the node was reached, and is not given up."""
        return self._connected and not self._closed

    @property
    def last_message_at(self) -> float:
        """Time of the node's last answer, on the clock of the loop."""
        return self._last_message_at

    async def connect(self, *, resume: bool = False) -> None:
        """Connect to the node.

        With `resume`, continue the numbering of another client; `on_event` gets `NodeReport` first.

        Raises:
            NodeStartError: the node cannot be reached, or refuses the connection.
        """
        try:
            async with asyncio.timeout(self._grace):
                self._client = await self._open()
        except (*_BROKEN, Refused) as error:
            raise NodeStartError(f"the worker at {self._address} cannot be reached: {error}") from error
        self._connected = True
        self._ref = reference(self._client, self._address)
        loop = asyncio.get_running_loop()
        self._last_message_at = loop.time()
        if resume:
            await self._resume()
        self._ask(())
        self._watched_at = loop.time()
        loop.call_later(_WATCH_EVERY, self._watch)

    async def _open(self) -> Client:
        with presented(self._credentials) as tls:
            client = Client(
                seeds=(self._address,),
                address_map=self._dial,
                sync_every=_SYNC if self._dial(self._address) == self._address else _SYNC_TUNNELLED,
                tls=tls,
                limits=LIMITS,
                runtime=engine_runtime(),
                observer=_log,
            )
            await client.__aenter__()
        return client

    async def _resume(self) -> None:
        """Adopt the numbering of both ends; handle the node's report, and what the former client has not consumed."""
        batch = await self._ask_part(0)
        self._first = self._next = batch.received + 1
        self._seen = batch.first
        part = 0
        while batch.events:
            for event in batch.events:
                self._on_event(event)
            part += 1
            batch = await self._ask_part(part)

    async def _ask_part(self, part: int) -> Batch:
        try:
            async with asyncio.timeout(self._grace):
                return await self._ref.ask(Exchange(again=True, part=part))
        except _BROKEN as error:
            raise NodeStartError(f"the worker at {self._address} does not answer: {type(error).__name__}") from error

    def send(self, command: NodeCommand) -> None:
        """Send a command. Commands sent before the loop's next turn, or before `flush`, go as one message."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outgoing.append(command)

    def confirmed(self) -> asyncio.Future[None]:
        """Return a future that ends when the node has all commands sent so far; cancelled when the node is lost."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.cancel()
        else:
            self._awaited.append((self._next + len(self._outgoing) - 1, future))
        return future

    def flush(self) -> None:
        """Send the queued commands now."""
        if not self._outgoing or not self._connected:
            return
        outgoing, self._outgoing = self._outgoing, []
        if not self._unconfirmed:
            self._progress_at = asyncio.get_running_loop().time()
        self._unconfirmed.extend(outgoing)
        self._tell(self._next, outgoing)
        self._next += len(outgoing)

    def _tell(self, first: int, commands: list[NodeCommand]) -> None:
        """Send commands in as few messages as their size allows, the last with an exchange."""
        batch: list[NodeCommand] = []
        size = 0
        for command in commands:
            grown = size + _size(command)
            if batch and grown > BATCH_BYTES:
                self._ref.tell(Commands(first, tuple(batch)))
                first += len(batch)
                batch, grown = [], _size(command)
            batch.append(command)
            size = grown
        if self._unanswered < 2:
            self._ask(tuple(batch), first)
        else:
            self._ref.tell(Commands(first, tuple(batch)))

    def _ask(self, commands: tuple[NodeCommand, ...], first: int = 0, *, again: bool = False) -> None:
        exchange = Exchange(self._seen, again, first or self._next, commands)
        self._unanswered += 1
        # Eager, so that it is sent now: later commands must not overtake it.
        task = asyncio.Task(self._exchange(exchange), loop=asyncio.get_running_loop(), eager_start=True)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _exchange(self, exchange: Exchange) -> None:
        try:
            batch = await self._ref.ask(exchange)
        except _BROKEN as error:
            self._recover(type(error).__name__)
            return
        self._unanswered -= 1
        self._last_message_at = now = asyncio.get_running_loop().time()
        self._confirm(batch.received, now)
        if batch.first > self._seen + 1:  # even if no event follows: the last ones may be lost
            self._recover("an answer was lost")
            return
        for number, event in enumerate(batch.events, batch.first):
            if number > self._seen:
                self._seen = number
                try:
                    self._on_event(event)
                except Exception:  # later events still count, and so does the node
                    _logger.exception("an event of the node at %s failed here", self._address)
        if not self._unanswered and not self._closed:
            self._ask(())

    def _confirm(self, received: int, now: float) -> None:
        if received >= self._first:
            self._progress_at = now
        while self._unconfirmed and self._first <= received:
            self._unconfirmed.popleft()
            self._first += 1
        while self._awaited and self._awaited[0][0] < self._first:
            _end(self._awaited.popleft()[1])

    def _watch(self) -> None:
        """Check once a second that answers still arrive. A timer for each exchange would cost more."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._closed:
            return
        if self._silence(now) > ANSWER_WITHIN:
            self._recover()
        elif self._unconfirmed and now - self._progress_at > _STALE:
            self._recover("a command was lost")
        self._watched_at = now
        loop.call_later(_WATCH_EVERY, self._watch)

    def _silence(self, now: float) -> float:
        """Return the seconds since the last answer, without those in which this process could not receive one."""
        stalled = now - self._watched_at - _WATCH_EVERY
        if stalled > ANSWER_WITHIN:
            self._watched_at += stalled
            self._last_message_at = min(now, self._last_message_at + stalled)
        return now - self._last_message_at

    def _recover(self, symptom: str = "") -> None:
        """Resynchronise with the node a little later; or give it up. `symptom` tells more than its silence."""
        if self._recovering or self._closed:
            return
        loop = asyncio.get_running_loop()
        silent = self._silence(loop.time())
        if silent >= self._grace:
            self._give_up()
            self._on_lost(f"no answer for {silent:.0f} s{symptom and f' ({symptom})'}")
            return
        self._recovering = True
        loop.call_later(_RETRY, self._resynchronise)

    def _resynchronise(self) -> None:
        self._recovering = False
        if self._closed:
            return
        for task in tuple(self._asking):
            task.cancel()
        self._asking.clear()
        self._unanswered = 0
        assert self._client is not None
        self._ref = reference(self._client, self._address)
        self._progress_at = asyncio.get_running_loop().time()
        self._ask((), again=True)
        if self._unconfirmed:
            self._tell(self._first, list(self._unconfirmed))

    def _give_up(self) -> None:
        self._closed = True
        while self._awaited:
            self._awaited.popleft()[1].cancel()

    async def close(self) -> None:
        """Send the queued commands and close the connection. Idempotent."""
        if self._closed and not self._connected:
            return
        self.flush()
        self._give_up()
        await asyncio.sleep(0)
        for task in tuple(self._asking):
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        client, self._client = self._client, None
        if self._connected and client is not None:
            self._connected = False
            await client.__aexit__(None, None, None)


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _size(command: NodeCommand) -> int:
    match command:
        case Submit():
            members = 0 if command.gang is None else len(command.gang.nodes)
            return 160 + _payload_size(command.call) + 4 * members
        case Code(_, payload):
            return 64 + _payload_size(payload)
        case Feed(_, _, items):
            return 64 + sum(32 + _payload_size(item) for item in items)
    return 64


def _payload_size(payload: Payload) -> int:
    return sum(64 if isinstance(part, Blob) else len(part) for part in (payload.data, *payload.buffers))
