"""The node's end of the bulk path."""

import socket
import threading

from skyward.wire.bulk import GET, MISSING, OK, PUT, SIZE, Request, read_into
from skyward.worker.blobs import BlobStore

__all__ = ["BulkServer"]


class BulkServer:
    """Takes blobs in and gives them out, a thread per connection."""

    def __init__(self, host: str, token: bytes, store: BlobStore) -> None:
        self._listener = socket.create_server((host, 0))
        self._token = token
        self._store = store
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
        blob, room = self._store.receive(request.size)
        try:
            read_into(connection, room)
        except BaseException:
            self._store.discard(blob)
            raise
        self._store.publish(request.key, blob)
        connection.sendall(OK)

    def _give(self, connection: socket.socket, request: Request) -> None:
        try:
            view = self._store.map(request.key)
        except KeyError:
            connection.sendall(MISSING)
            return
        connection.sendall(OK + SIZE.pack(view.nbytes))
        connection.sendall(view)
