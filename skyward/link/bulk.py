"""Client end of the bulk path: an upload and a download lane for each node, each a thread and a connection."""

import contextlib
import queue
import socket
import threading
import time
from concurrent.futures import Future

from skyward.wire.payloads.copies import allocate
from skyward.wire.protocol.messages import Blob
from skyward.wire.transport.bulk import GET, OK, PUT, SIZE, BulkRequest, read_exactly, read_into
from skyward.wire.transport.proof import UnprovedError, call

__all__ = ["BulkLane", "BulkPath", "NodeFullError"]

_CONNECT_WITHIN = 10.0
"""Seconds that a connection may take to open and authenticate, over all attempts."""

_RETRY = 0.2
"""Seconds between attempts to reach the node again."""

type _Work = tuple[bytes, Blob, memoryview | None, Future[memoryview]]


class NodeFullError(MemoryError):
    """Raised when the node has no memory for a blob."""


class _NotHeldError(EOFError):
    """Raised when the node has no such blob."""


class BulkLane:
    """Lane that transfers blobs one after the other, on a thread that starts with the first of them.

    A blob whose connection breaks is transferred again, until that has failed for `grace` seconds.

    Args:
        address: `host:port` of the node's bulk path, or the Unix socket that is forwarded to it.
        key: key of the node, which authenticates both ends.
        name: name of the thread.
        grace: seconds.
    """

    def __init__(self, address: str, key: bytes, name: str, grace: float = 0.0) -> None:
        self._address = address
        self._key = key
        self._name = name
        self._grace = grace
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: socket.socket | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._ended = threading.Event()

    def move(self, verb: bytes, blob: Blob, view: memoryview | None = None) -> Future[memoryview]:
        """Put `view` under the key of `blob`, or get it. Return a future of the blob's bytes, writable after a get.

        It fails with `ConnectionError` if the node cannot be reached, or does not have the blob, with `MemoryError` if
        there is no memory for it here, and with `NodeFullError` if there is none on the node.
        """
        future: Future[memoryview] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(ConnectionError("the connection to the node is closed"))
                return future
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._work.put((verb, blob, view, future))
        return future

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            verb, blob, view, future = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._persist(verb, blob, view))
            except (OSError, EOFError) as error:
                future.set_exception(ConnectionError(f"transfer of a blob of {blob.size:,} bytes failed: {error}"))
            except Exception as error:
                self._disconnect()  # the rest of the blob must not be taken for the next answer
                future.set_exception(error)
        self._disconnect()

    def _persist(self, verb: bytes, blob: Blob, view: memoryview | None) -> memoryview:
        """Transfer a blob, again over a new connection if the old one breaks: the sender keeps it until the end."""
        broken_since: float | None = None
        while True:
            started = time.monotonic()
            try:
                return self._exchange(verb, blob, view)
            except _NotHeldError:
                raise
            except (OSError, EOFError):
                self._disconnect()
                now = time.monotonic()
                if broken_since is None or now - started > self._grace:  # it made progress in between
                    broken_since = now
                if now - broken_since >= self._grace or self._ended.wait(_RETRY):
                    raise

    def _exchange(self, verb: bytes, blob: Blob, view: memoryview | None) -> memoryview:
        connection = self._connect()
        connection.sendall(BulkRequest(verb, blob.key, blob.size).write())
        if view is not None:
            connection.sendall(view)
            if read_exactly(connection, len(OK)) != OK:
                raise NodeFullError(f"a node has no memory for {view.nbytes:,} bytes")
            return view
        if read_exactly(connection, len(OK)) != OK:
            raise _NotHeldError("the node no longer has the blob")
        (size,) = SIZE.unpack(read_exactly(connection, SIZE.size))
        memory = allocate(size)
        read_into(connection, memory)
        return memory

    def _connect(self) -> socket.socket:
        """Return the authenticated connection. A node with many unauthenticated peers may drop us: try again then."""
        until = time.monotonic() + _CONNECT_WITHIN
        while self._connection is None:
            connection = self._dial()
            try:
                call(connection, self._key)
            except UnprovedError:
                self._disconnect()
                if time.monotonic() >= until or self._ended.wait(_RETRY):
                    raise
            else:
                return connection
        return self._connection

    def _dial(self) -> socket.socket:
        self._check_open()
        connection = _dial(self._address)
        try:
            with self._lock:  # from here on, `close` can interrupt it
                self._check_open()
                self._connection = connection
        except ConnectionError:
            connection.close()
            raise
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionError("the connection to the node is closed")

    def _disconnect(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """End the thread. The transfer in progress is interrupted, and queued ones fail."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                with contextlib.suppress(OSError):  # already broken
                    self._connection.shutdown(socket.SHUT_RDWR)
            self._ended.set()
            self._work.put(None)

    def join(self) -> None:
        """Wait for the thread to end. Called after `close`."""
        if self._thread is not None:
            self._thread.join()


class BulkPath:
    """Both lanes of one node, so that a small result never waits behind a large argument."""

    def __init__(self, address: str, key: bytes, name: str, grace: float = 0.0) -> None:
        self._up = BulkLane(address, key, f"skyward-bulk-{name}-up", grace)
        self._down = BulkLane(address, key, f"skyward-bulk-{name}-down", grace)

    def put(self, key: bytes, view: memoryview) -> Future[memoryview]:
        """Send a blob; return a future that ends when the node has it."""
        return self._up.move(PUT, Blob(key, view.nbytes), view)

    def get(self, blob: Blob) -> Future[memoryview]:
        """Fetch a blob; return a future of its writable bytes."""
        return self._down.move(GET, blob)

    def close(self) -> None:
        """Close both lanes."""
        self._up.close()
        self._down.close()

    def join(self) -> None:
        """Wait for both threads to end. Called after `close`."""
        self._up.join()
        self._down.join()


def _dial(address: str) -> socket.socket:
    """Return a connection to `host:port`, or to the path of a Unix socket."""
    if address.startswith("/"):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(address)
        except OSError:
            connection.close()
            raise
        return connection
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_WITHIN)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
