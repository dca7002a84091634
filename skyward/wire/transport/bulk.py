"""The bulk path: raw bytes of blobs over a connection of their own, so that they do not delay messages.

Both ends prove themselves first (`wire.transport.proof`). Then one request at a time: `verb (1) | key (32) | size (8)`,
then for PUT the bytes, answered with `OK`, or with `FULL` if there is no memory for them; for GET answered with
`OK | size (8)` and the bytes, or `MISSING`.
"""

import os
import socket
import struct

__all__ = ["FULL", "GET", "MISSING", "OK", "PUT", "BulkRequest", "read_exactly", "read_into", "send_file"]

PUT, GET = b"P", b"G"
OK, MISSING, FULL = b"+", b"-", b"!"

_HEADER = struct.Struct("!1s32sQ")
SIZE = struct.Struct("!Q")
_CHUNK = 8 * 1024 * 1024


class BulkRequest:
    """The head of one request."""

    __slots__ = ("key", "size", "verb")

    def __init__(self, verb: bytes, key: bytes, size: int) -> None:
        self.verb, self.key, self.size = verb, key, size

    def write(self) -> bytes:
        """Return the head in its wire format."""
        return _HEADER.pack(self.verb, self.key, self.size)

    @classmethod
    def read(cls, connection: socket.socket) -> "BulkRequest | None":
        """Return the next request; None if the peer has closed the connection."""
        try:
            head = read_exactly(connection, _HEADER.size)
        except EOFError:
            return None
        return cls(*_HEADER.unpack(head))


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Return the next `size` bytes.

    Raises:
        EOFError: the connection ended before.
    """
    buffer = bytearray(size)
    read_into(connection, memoryview(buffer))
    return bytes(buffer)


def read_into(connection: socket.socket, view: memoryview) -> None:
    """Fill `view` from the connection.

    Raises:
        EOFError: the connection ended before.
    """
    done = 0
    while done < len(view):
        count = connection.recv_into(view[done : done + _CHUNK])
        if count == 0:
            raise EOFError("the connection ended in the middle of a blob")
        done += count


def send_file(connection: socket.socket, fd: int, start: int, size: int) -> None:
    """Send `size` bytes of a file, from `start` on."""
    sent = 0
    while sent < size:
        sent += os.sendfile(connection.fileno(), fd, start + sent, size - sent)
