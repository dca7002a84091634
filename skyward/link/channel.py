"""Messages to and from one node: numbered, acknowledged, sent again after a break, watched by a heartbeat of our own.

The engine's own heartbeats see neither a wedged worker nor a silent single member, so liveness is the answer to
`Collect`, which a node gives at least once a second.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from casty import ActorFailed, Client, NotStarted, Refused, Runtime, Unavailable

from skyward.errors import NodeStartError
from skyward.wire.mailbox import reference
from skyward.wire.messages import BATCH_BYTES, Blob, Code, Collect, Command, Commands, Event, Feed, Payload, Submit

__all__ = ["Channel", "engine_runtime"]

ANSWER_WITHIN = 4.0
"""Seconds a node may take to answer a `Collect`, which it holds for one at most."""

_RETRY = 0.1
_STALE = 1.0
_BROKEN = (Unavailable, NotStarted, ActorFailed, TimeoutError, ConnectionError)

_logger = logging.getLogger(__name__)
_runtime: Runtime | None = None


def engine_runtime() -> Runtime:
    """The engine's transport threads, shared by every channel of this process."""
    global _runtime
    if _runtime is None:
        _runtime = Runtime(threads=1)
    return _runtime


def _log(event: object) -> None:
    """What the engine reports is for debugging: a lost node is told by the pool, in its own words."""
    _logger.debug("engine: %s", event)


class Channel:
    """The messages of one node. Lives on the library's loop.

    Args:
        address: where to reach the node's mailbox.
        token: what proves that we belong to the pool.
        grace: seconds of silence after which the node counts as lost.
        on_event: takes each event once, in order.
        on_lost: told once why, when the node is lost.
    """

    def __init__(
        self,
        address: str,
        token: bytes,
        grace: float,
        on_event: Callable[[Event], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._address = address
        self._token = token
        self._grace = grace
        self._on_event = on_event
        self._on_lost = on_lost
        self._client = Client(seeds=(address,), runtime=engine_runtime(), observer=_log)
        self._unconfirmed: deque[Command] = deque()
        self._first = 1
        self._next = 1
        self._seen = 0
        self._confirmed_at = 0.0
        self._collecting: asyncio.Task[None] | None = None
        self._outgoing: list[Command] = []
        self._heard = 0.0
        self._asked = 0.0
        self._closed = False

    async def connect(self) -> None:
        """Reach the node.

        Raises:
            NodeStartError: it is not there, or refuses us.
        """
        try:
            async with asyncio.timeout(self._grace):
                await self._client.__aenter__()
        except (*_BROKEN, Refused) as error:
            raise NodeStartError(f"the worker at {self._address} cannot be reached: {error}") from error
        self._ref = reference(self._client, self._address)
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        self._collecting = loop.create_task(self._collect())
        loop.call_later(1.0, self._watch)

    def send(self, command: Command) -> None:
        """Send a command. Those sent before the loop comes round, or before `flush`, go as one message."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outgoing.append(command)

    def flush(self) -> None:
        """Send now what was given to `send`."""
        if not self._outgoing:
            return
        outgoing, self._outgoing = self._outgoing, []
        if not self._unconfirmed:
            self._confirmed_at = asyncio.get_running_loop().time()
        self._unconfirmed.extend(outgoing)
        self._tell(self._next, outgoing)
        self._next += len(outgoing)

    def _tell(self, first: int, commands: list[Command]) -> None:
        batch: list[Command] = []
        size = 0
        for command in commands:
            grown = size + _size(command)
            if batch and grown > BATCH_BYTES:
                self._ref.tell(Commands(self._token, first, tuple(batch)))
                first += len(batch)
                batch, grown = [], _size(command)
            batch.append(command)
            size = grown
        if batch:
            self._ref.tell(Commands(self._token, first, tuple(batch)))

    async def _collect(self) -> None:
        """Ask for events again and again, until the node is lost."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                batch = await self._ref.ask(Collect(self._token, self._seen))
            except _BROKEN as error:
                if self._is_silent(loop.time(), type(error).__name__):
                    return
                await asyncio.sleep(_RETRY)
                self._ref = reference(self._client, self._address)
                self._send_again()
                continue
            self._heard = loop.time()
            self._confirm(batch.received, self._heard)
            for number, event in enumerate(batch.events, batch.first):
                if number > self._seen:
                    self._seen = number
                    self._on_event(event)

    def _is_silent(self, now: float, sign: str) -> bool:
        """Whether the node has been silent for too long; says so once."""
        silent = now - self._heard
        if silent < self._grace or self._closed:
            return False
        self._closed = True
        self._on_lost(f"it has not answered for {silent:.0f} s ({sign})")
        return True

    def _watch(self) -> None:
        """Look once a second whether answers still come. A timer for each question would cost more than the question."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._closed or self._is_silent(now, "no answer"):
            return
        if now - max(self._heard, self._asked) > ANSWER_WITHIN and self._collecting is not None:
            self._collecting.cancel()
            self._asked = now
            self._ref = reference(self._client, self._address)
            self._collecting = loop.create_task(self._collect())
            self._send_again()
        loop.call_later(1.0, self._watch)

    def _confirm(self, received: int, now: float) -> None:
        if received >= self._first:
            self._confirmed_at = now
        while self._unconfirmed and self._first <= received:
            self._unconfirmed.popleft()
            self._first += 1
        if self._unconfirmed and now - self._confirmed_at > _STALE:
            self._confirmed_at = now
            self._send_again()

    def _send_again(self) -> None:
        if self._unconfirmed:
            self._tell(self._first, list(self._unconfirmed))

    async def close(self) -> None:
        """Send what is left and let go of the node. Twice does no harm."""
        self._closed = True
        if self._outgoing:
            self.flush()
            await asyncio.sleep(0)
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)
            self._collecting = None
            await self._client.__aexit__(None, None, None)


def _size(command: Command) -> int:
    match command:
        case Submit():
            return 160 + _payload_size(command.call)
        case Code(_, payload):
            return 64 + _payload_size(payload)
        case Feed(_, _, items):
            return 64 + sum(32 + _payload_size(item) for item in items)
    return 64


def _payload_size(payload: Payload) -> int:
    return sum(64 if isinstance(part, Blob) else len(part) for part in (payload.data, *payload.buffers))
