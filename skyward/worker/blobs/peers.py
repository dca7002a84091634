"""Transfers of blobs between the nodes of a pool, so that the client sends each blob once."""

import contextlib
import json
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, Thread  # tasks may replace the attributes of the module

from blake3 import blake3

from skyward.process.clock import clock
from skyward.wire.payloads.digest import is_fresh
from skyward.wire.protocol.messages import Blob, Fetch, Fetched, Peered, Peering
from skyward.wire.transport.bulk import read_exactly, read_into
from skyward.wire.transport.peers import BEAT, FILE, FRAME, LENGTH, REQUEST, SHARE, STREAM, contexts, handshake
from skyward.wire.transport.trust import Credentials
from skyward.worker.blobs.gate import Gate
from skyward.worker.blobs.incoming import Arrival, BlobSource, IncomingBlobs
from skyward.worker.blobs.store import BlobLocation

__all__ = ["BlobFetch", "Peers", "share", "stream"]

CONNECT_WITHIN = 3.0
SILENCE = 10.0
"""Seconds without a frame after which the other node counts as gone. It sends one every `BEAT` seconds."""

STARVED = 300.0
"""Seconds of empty frames after which the other node's own source counts as broken."""


class Peers:
    """Server and client for blobs of other nodes; each transfer has a thread.

    Args:
        incoming: the blobs of this node.
        tell: sends a message to the client.

    Attributes:
        serve_file: sends the file of a key to another node.
    """

    def __init__(self, incoming: IncomingBlobs, tell: Callable[[Peered | Fetched], None]) -> None:
        self._incoming = incoming
        self._tell = tell
        self.serve_file: Callable[[ssl.SSLSocket, bytes], None] = lambda *_: None
        self._address = ""
        self._client_context: ssl.SSLContext | None = None
        self._attempts: dict[bytes, int] = {}
        self._lock = Lock()

    def apply(self, command: Peering | Fetch) -> None:
        """Start to serve blobs, or to fetch one. A repeated `Peering` is answered with the same address."""
        match command:
            case Peering():
                try:
                    self._address = self._address or self._open(command)
                    self._tell(Peered(self._address))
                except OSError as error:  # includes TLS errors
                    self._tell(Peered("", str(error)))
            case Fetch():
                with self._lock:
                    self._attempts[command.blob.key] = command.attempt
                Thread(target=self._fetch, args=(command,), name="skyward-peer-in", daemon=True).start()

    # Serving.

    def _open(self, peering: Peering) -> str:
        """Start to listen; return the address."""
        server_context, self._client_context = contexts(Credentials(peering.cert, peering.key, peering.ca))
        try:
            listener = socket.create_server((peering.host, 0))
        except OSError:  # an address of another machine: other nodes connect through a forwarded port
            listener = socket.create_server(("0.0.0.0", 0))

        def wrapped(plain: socket.socket) -> ssl.SSLSocket:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return server_context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)

        Gate(listener, handshake, self._serve, "skyward-peer-out", wrapped)
        return f"{peering.host}:{listener.getsockname()[1]}"

    def _serve(self, connection: ssl.SSLSocket) -> None:
        with contextlib.suppress(OSError, EOFError), connection:
            connection.settimeout(CONNECT_WITHIN)
            verb, key, offset = REQUEST.unpack(read_exactly(connection, REQUEST.size))
            connection.settimeout(SILENCE)
            if verb == FILE:
                self.serve_file(connection, key)
                return
            while True:
                with self._incoming.reading(key, BEAT) as source:
                    if source is not None:
                        (share if verb == SHARE else stream)(connection, source, offset)
                        return
                connection.sendall(LENGTH.pack(0))

    # Fetching.

    def _fetch(self, fetch: Fetch) -> None:
        key, attempt = fetch.blob.key, fetch.attempt
        getting = BlobFetch(self._incoming, fetch.blob, lambda: self._attempts.get(key) != attempt)
        failure = ""
        try:
            if not self._incoming.retain(key):
                getting.get(self.connect(fetch.source), near=fetch.near)
        except (OSError, EOFError, MemoryError) as error:
            failure = f"{fetch.source}: {error or type(error).__name__}"
        with self._lock:
            if self._attempts.get(key) == attempt:
                del self._attempts[key]
        self._tell(Fetched(key, attempt, failure, reached=not failure or getting.reached))

    def connect(self, source: str) -> ssl.SSLSocket:
        """Connect to the port of another node.

        Raises:
            OSError: that is not possible.
        """
        if self._client_context is None:
            raise ConnectionError("this node has no certificate")
        host, _, port = source.rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=CONNECT_WITHIN)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._client_context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise


def share(connection: ssl.SSLSocket, source: BlobSource, _: int) -> None:
    """Send the location of a blob, once it is complete; keep the blob until the other end has opened it."""
    while source.reached(source.blob.size - 1, BEAT) < source.blob.size:
        connection.sendall(LENGTH.pack(0))
    place = json.dumps(source.blob.place).encode()
    connection.sendall(LENGTH.pack(len(place)) + place)
    connection.recv(1)


def stream(connection: ssl.SSLSocket, source: BlobSource, offset: int) -> None:
    """Send the bytes that are here, and those that arrive."""
    blob = source.blob
    buffer = memoryview(bytearray(min(FRAME, blob.size)))
    while offset < blob.size:
        ready = source.reached(offset, BEAT) - offset
        if ready <= 0:
            connection.sendall(LENGTH.pack(0))
            continue
        count = os.preadv(blob.fd, [buffer[: min(ready, FRAME)]], blob.start + offset)
        connection.sendall(LENGTH.pack(count))
        connection.sendall(buffer[:count])
        offset += count


@dataclass(slots=True)
class BlobFetch:
    """One attempt to fetch a blob.

    Attributes:
        superseded: returns whether there is a later attempt.
        reached: True if the other node has answered.
    """

    incoming: IncomingBlobs
    blob: Blob
    superseded: Callable[[], bool]
    reached: bool = False

    def get(self, connection: ssl.SSLSocket, *, near: bool) -> None:
        """Fetch the blob.

        Raises:
            EOFError, OSError: the transfer was interrupted, or the content is not the blob's.
            MemoryError: there is not enough memory for it.
        """
        with connection:
            connection.settimeout(SILENCE)
            if near:
                self._adopt(connection)
                return
            with self.incoming.writing(self.blob.key, self.blob.size) as arrival:
                offset = arrival.reached
                connection.sendall(REQUEST.pack(STREAM, self.blob.key, offset))
                self._receive(connection, arrival, offset)
                self._verify(arrival)

    def _adopt(self, connection: ssl.SSLSocket) -> None:
        connection.sendall(REQUEST.pack(SHARE, self.blob.key, 0))
        place = BlobLocation(*json.loads(read_exactly(connection, self._length(connection))))
        if place.size != self.blob.size:
            raise EOFError("the location does not hold the blob")
        self.incoming.adopt(self.blob.key, place)

    def _receive(self, connection: ssl.SSLSocket, arrival: Arrival, at: int) -> None:
        buffer = memoryview(bytearray(min(FRAME, self.blob.size)))
        while at < self.blob.size:
            count = self._length(connection)
            if count > min(FRAME, self.blob.size - at):
                raise EOFError("peer sent more bytes than the blob's size")
            read_into(connection, buffer[:count])
            arrival.write(buffer[:count], at)
            at += count

    def _length(self, connection: ssl.SSLSocket) -> int:
        """Return the length of the next frame that is not empty."""
        since = clock.monotonic()
        while True:
            (length,) = LENGTH.unpack(read_exactly(connection, LENGTH.size))
            self.reached = True
            if self.superseded():
                raise EOFError("superseded by a transfer from another node")
            if length:
                return int(length)
            if clock.monotonic() - since > STARVED:
                raise EOFError(f"received nothing for {STARVED:.0f} s")

    def _verify(self, arrival: Arrival) -> None:
        if is_fresh(self.blob.key):
            return
        with arrival.blob.read() as view:
            same = blake3(view, max_threads=blake3.AUTO).digest() == self.blob.key
        if not same:
            self.incoming.spoil(self.blob.key, arrival)
            raise EOFError("received bytes do not match the blob's digest")
