"""The node's end of the bulk path."""

import os
import socket
import threading

from skyward.wire.bulk import GET, MISSING, OK, PUT, SIZE, Request, send_file
from skyward.worker.arrivals import Arrivals
from skyward.worker.blobs import BlobStore

__all__ = ["BulkServer"]

_BUFFER = 1024 * 1024


class BulkServer:
    """Takes blobs in and gives them out, a thread per connection."""

    def __init__(self, host: str, token: bytes, store: BlobStore, arrivals: Arrivals) -> None:
        self._listener = socket.create_server((host, 0))
        self._token = token
        self._store = store
        self._arrivals = arrivals
        threading.Thread(target=self._accept, name="skyward-bulk", daemon=True).start()

    @property
    def address(self) -> str:
        """`host:port` it listens on."""
        host, port = self._listener.getsockname()[:2]
        return f"{host}:{port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), name="skyward-bulk", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while (request := Request.read(connection, self._token)) is not None:
                    if request.verb == PUT:
                        self._take(connection, request)
                    elif request.verb == GET:
                        self._give(connection, request)
            except (EOFError, OSError):
                return

    def _take(self, connection: socket.socket, request: Request) -> None:
        buffer = memoryview(bytearray(min(request.size, _BUFFER)))
        with self._arrivals.writing(request.key, request.size) as arrival:
            done = 0
            while done < request.size:  # faster than reading into a mapping of it: no page is faulted in
                count = connection.recv_into(buffer[: min(request.size - done, _BUFFER)])
                if count == 0:
                    raise EOFError("the connection ended in the middle of a blob")
                arrival.write(buffer[:count], done)
                done += count
        connection.sendall(OK)

    def _give(self, connection: socket.socket, request: Request) -> None:
        if (owned := self._store.owned(request.key)) is not None:
            connection.sendall(OK + SIZE.pack(owned.nbytes))
            connection.sendall(owned)
            return
        try:
            blob = self._store.open(request.key)
        except KeyError:
            connection.sendall(MISSING)
            return
        try:
            connection.sendall(OK + SIZE.pack(blob.size))
            send_file(connection, blob.fd, blob.size)
        finally:
            os.close(blob.fd)
