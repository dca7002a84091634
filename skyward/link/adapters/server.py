"""Server for worker adapters: applies the decisions of the `AdapterRegistry`; and the connection, for both ends."""

import asyncio
import hmac
import itertools
import logging
import secrets
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from skyward.errors import ProvisioningError
from skyward.link.adapters import registry
from skyward.link.adapters.registry import SILENCE, AdapterRegistry, GroupRequirements
from skyward.providers.protocol import Instance
from skyward.wire.protocol.adapter import (
    CODE_BYTES,
    GREETING_BYTES,
    LINE_BYTES,
    AdapterMessage,
    Challenge,
    Goodbye,
    Heartbeat,
    Malformed,
    Proof,
    Seal,
    UnknownCommand,
    Welcome,
    decode,
    encode,
    proof_of,
)

__all__ = ["AdapterServer", "AuthenticationError", "MessageStream", "dial"]

_HANDSHAKE = 5.0
_MOST_UNPROVEN = 64
_LIMIT = CODE_BYTES + LINE_BYTES
_MOST_UNSENT = 1024 * 1024

_logger = logging.getLogger(__name__)


class AuthenticationError(Exception):
    """Raised when the other end refuses us, or is not the expected one. The message says why."""


class MessageStream:
    """One connection, as a stream of messages. Lives on one loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._seals: tuple[Seal, Seal] | None = None

    def seal(self, ours: Seal, theirs: Seal) -> None:
        """Sign each sent line from now on, and accept none without a valid code: both ends are authenticated."""
        self._seals = ours, theirs

    async def read(self) -> AdapterMessage | UnknownCommand:
        """Return the next message.

        Raises:
            ConnectionError: the connection ended.
            Malformed: the line is not a valid message.
        """
        try:
            line = await self._reader.readline()
        except ValueError:
            raise Malformed(f"A line is longer than {LINE_BYTES} bytes.") from None
        if not line.endswith(b"\n"):
            raise ConnectionError("the connection ended")
        if self._seals is not None:
            return decode(self._seals[1].open(line))
        if len(line) > GREETING_BYTES:
            raise Malformed(f"A line before authentication is longer than {GREETING_BYTES} bytes.")
        return decode(line)

    def send(self, message: AdapterMessage) -> None:
        """Send a message, unless the connection is broken or the other end does not read."""
        line = encode(message)
        if self._seals is not None:
            line = self._seals[0].close(line)
        if self._writer.transport.get_write_buffer_size() > _MOST_UNSENT:
            self._writer.transport.abort()
        elif not self._writer.is_closing():
            self._writer.write(line)

    def hang_up(self, reason: str, *, ends_groups: bool = False) -> None:
        """Send a goodbye and end the connection."""
        self.send(Goodbye(reason, ends_groups))
        self._writer.close()

    async def close(self) -> None:
        """End the connection once everything is sent, within a second. Idempotent."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
                return
        self._writer.transport.abort()


async def dial(host: str, port: int, token: str) -> MessageStream:
    """Connect to a controller; both ends are authenticated by the token.

    Raises:
        AuthenticationError: one end did not authenticate.
        OSError: there is no controller, or the connection ended.
    """
    reader, writer = await asyncio.open_connection(host, port, limit=_LIMIT)
    lines, nonce = MessageStream(reader, writer), secrets.token_hex(16)
    try:
        async with asyncio.timeout(_HANDSHAKE):
            challenge = await lines.read()
            if not isinstance(challenge, Challenge):
                raise ConnectionError("the peer is not a controller")
            lines.send(Proof(proof_of(token, "adapter", challenge.nonce, nonce), nonce))
            welcome = await lines.read()
        if isinstance(welcome, Goodbye):
            raise AuthenticationError(welcome.reason)
        expected = proof_of(token, "controller", nonce, challenge.nonce)
        if not isinstance(welcome, Welcome) or not hmac.compare_digest(welcome.proof.encode(), expected.encode()):
            raise AuthenticationError("the peer does not know the token")
        nonces = (challenge.nonce, nonce)
        lines.seal(Seal(token, "adapter", *nonces), Seal(token, "controller", *nonces))
    except BaseException as error:
        await lines.close()
        if isinstance(error, Malformed):
            raise ConnectionError("the peer is not a controller") from None
        raise
    return lines


class AdapterServer:
    """The controller's end of every worker adapter. Lives on one loop.

    Args:
        token: secret that adapters must know.
        silence: seconds without a heartbeat after which an adapter is lost.
    """

    def __init__(self, token: str, silence: float = SILENCE) -> None:
        self._token = token
        self._registry = AdapterRegistry(secrets.token_hex(8), silence)
        self._numbers = itertools.count(1)
        self._links: dict[int, MessageStream] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._unproven: dict[int, asyncio.StreamWriter] = {}
        self._closed = False
        self._starting: dict[str, asyncio.Future[Instance]] = {}
        self._ending: dict[str, asyncio.Future[None]] = {}
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None

    async def open(self, listening: socket.socket) -> None:
        """Serve connections to a listening socket, which the server owns from now on."""
        self._server = await asyncio.start_server(self._serve, sock=listening, limit=_LIMIT)

    async def close(self) -> None:
        """Disconnect every adapter, which ends the groups that it has for us. Idempotent."""
        self._closed = True
        self._set_timer()
        if self._server is not None:
            self._server.close()
        for lines in self._links.values():
            lines.hang_up("the controller is closing", ends_groups=True)
        for task in tuple(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
        for starting in self._starting.values():
            starting.cancel()
        for ending in self._ending.values():
            ending.cancel()

    # Requests of the provider.

    async def adapters(self, wanted: GroupRequirements | None, within: float) -> Sequence[Heartbeat]:
        """Return the heartbeats of adapters with such groups, waiting up to `within` seconds for the first one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while not self._registry.adapters(wanted):
                    await self._changed.wait()
        return self._registry.adapters(wanted)

    async def start(self, wanted: GroupRequirements) -> Instance:
        """Start a group and return its machine.

        Raises:
            ProvisioningError: no group could be started. The message says why.
        """
        request, effects = self._registry.start(wanted, _now())
        if request is None:
            raise ProvisioningError(self._registry.why_none(wanted))
        future: asyncio.Future[Instance] = asyncio.get_running_loop().create_future()
        self._starting[request] = future
        try:
            self._perform(effects)
            return await future
        except asyncio.CancelledError:
            self._registry.abandon(request)
            if future.done() and not future.cancelled() and future.exception() is None:
                self._perform(self._registry.shutdown(future.result().id, _now()))
            raise
        finally:
            del self._starting[request]

    def instance(self, group: str) -> Instance | None:
        """Return the machine of a group; None if it is gone."""
        return self._registry.instance(group)

    async def shutdown(self, group: str) -> None:
        """Shut a group down; return when it has ended. Idempotent."""
        future = self._ending.setdefault(group, asyncio.get_running_loop().create_future())
        self._perform(self._registry.shutdown(group, _now()))
        await asyncio.shield(future)

    # Application of effects.

    def _perform(self, effects: Sequence[registry.Effect]) -> None:
        for effect in effects:
            match effect:
                case registry.SendFrame(link, message):
                    if link in self._links:
                        self._links[link].send(message)
                case registry.Close(link, reason):
                    self._end(link, reason)
                case registry.AdapterJoined(adapter):
                    _logger.info("adapter %s has connected", adapter)
                case registry.AdapterLost(adapter, reason):
                    _logger.warning("adapter %s is lost: %s", adapter, reason)
                case registry.GroupLost(group, reason):
                    _logger.warning("worker group %s is lost: %s", group, reason)
                case registry.GroupReturned(group):
                    _logger.warning("worker group %s is back", group)
                case registry.GroupStarted(request, instance):
                    if (future := self._waiting(request)) is not None:
                        future.set_result(instance)
                case registry.GroupRefused(request, reason):
                    if (future := self._waiting(request)) is not None:
                        future.set_exception(ProvisioningError(reason))
                case registry.GroupEnded(group):
                    ending = self._ending.pop(group, None)
                    if ending is not None and not ending.done():
                        ending.set_result(None)
        self._changed.set()
        self._changed = asyncio.Event()
        self._set_timer()

    def _waiting(self, request: str) -> asyncio.Future[Instance] | None:
        future = self._starting.get(request)
        return None if future is None or future.done() else future

    def _end(self, link: int, reason: str) -> None:
        lines = self._links.pop(link, None)
        if lines is not None:
            lines.hang_up(reason)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._registry.next_tick()
        if at is not None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - _now()), self._tick)

    def _tick(self) -> None:
        self._perform(self._registry.tick(_now()))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines, task, link = MessageStream(reader, writer), asyncio.current_task(), next(self._numbers)
        if task is None or self._closed:
            writer.transport.abort()
            return
        if len(self._unproven) >= _MOST_UNPROVEN:
            self._unproven.pop(next(iter(self._unproven))).transport.abort()  # the oldest
        self._unproven[link] = writer
        self._serving.add(task)
        try:
            if await self._authenticate(link, lines):
                self._links[link] = lines
                self._perform(self._registry.connected(link, _now()))
                while link in self._links:
                    self._perform(self._registry.handle(link, await lines.read(), _now()))
        except Malformed as error:
            _logger.warning("disconnected an adapter: %s", error)
            lines.hang_up(str(error))
        except (OSError, TimeoutError):
            pass  # the connection is closed
        finally:
            self._links.pop(link, None)
            self._perform(self._registry.disconnected(link))
            await lines.close()
            self._serving.discard(task)

    async def _authenticate(self, link: int, lines: MessageStream) -> bool:
        """Authenticate a new connection; return whether its peer knows the token. Other messages are refused."""
        nonce = secrets.token_hex(16)
        try:
            async with asyncio.timeout(_HANDSHAKE):
                lines.send(Challenge(nonce))
                proof = await lines.read()
        finally:
            self._unproven.pop(link, None)
        expected = proof_of(self._token, "adapter", nonce, proof.nonce) if isinstance(proof, Proof) else ""
        if not isinstance(proof, Proof) or not hmac.compare_digest(proof.proof.encode(), expected.encode()):
            _logger.warning("disconnected an adapter: it does not know the token")
            lines.hang_up("the token is wrong")
            return False
        lines.send(Welcome(proof_of(self._token, "controller", proof.nonce, nonce)))
        nonces = (nonce, proof.nonce)
        lines.seal(Seal(self._token, "controller", *nonces), Seal(self._token, "adapter", *nonces))
        return True


def _now() -> float:
    return time.monotonic()
