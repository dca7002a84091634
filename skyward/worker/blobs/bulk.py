"""The node's end of the bulk path: transfers of blobs from and to the client."""

import socket
from collections.abc import Iterator

from skyward.wire.transport.bulk import FULL, GET, MISSING, OK, PUT, SIZE, BulkRequest, send_file
from skyward.wire.transport.proof import prove_to_caller
from skyward.worker.blobs.gate import Gate
from skyward.worker.blobs.incoming import IncomingBlobs
from skyward.worker.blobs.store import BlobStore

__all__ = ["BulkServer"]

_BUFFER = 1024 * 1024


class BulkServer:
    """Server that stores and returns blobs, with a thread for each connection."""

    def __init__(self, host: str, key: bytes, store: BlobStore, incoming: IncomingBlobs) -> None:
        self._listener = socket.create_server((host, 0))
        self._store = store
        self._incoming = incoming
        Gate(self._listener, lambda each: prove_to_caller(each, key), self._serve, "skyward-bulk", _undelayed)

    @property
    def address(self) -> str:
        """Address that it listens on, as `host:port`."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while (request := BulkRequest.read(connection)) is not None:
                    if request.verb == PUT:
                        self._take(connection, request)
                    elif request.verb == GET:
                        self._give(connection, request)
            except (EOFError, OSError):
                return

    def _take(self, connection: socket.socket, request: BulkRequest) -> None:
        parts = _receive(connection, request.size)
        try:
            with self._incoming.writing(request.key, request.size) as arrival:
                try:
                    for start, part in parts:
                        arrival.write(part, start)
                except MemoryError:
                    self._incoming.spoil(request.key, arrival)
                    raise
        except MemoryError:
            for _ in parts:  # the client reads the answer after it has sent the rest
                continue
            connection.sendall(FULL)
        else:
            connection.sendall(OK)

    def _give(self, connection: socket.socket, request: BulkRequest) -> None:
        if (owned := self._store.owned(request.key)) is not None:
            connection.sendall(OK + SIZE.pack(owned.nbytes))
            connection.sendall(owned)
            return
        try:
            blob = self._store.get(request.key)
        except KeyError:
            connection.sendall(MISSING)
            return
        connection.sendall(OK + SIZE.pack(blob.size))
        send_file(connection, blob.fd, blob.start, blob.size)


def _undelayed(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _receive(connection: socket.socket, size: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the parts of a blob as they arrive, each with its offset. A part is valid until the next one is requested.

    Raises:
        EOFError: the connection ended before the last part.
    """
    buffer = memoryview(bytearray(min(size, _BUFFER)))
    done = 0
    while done < size:  # faster than reading into a mapping of the blob: no page faults
        count = connection.recv_into(buffer[: min(size - done, _BUFFER)])
        if count == 0:
            raise EOFError("the connection ended in the middle of a blob")
        yield done, buffer[:count]
        done += count
