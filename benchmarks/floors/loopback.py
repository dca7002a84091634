"""Floor of bulk data: one blocking socket, fresh memory at both ends. Run as a module, it is the other process."""

import pickle
import socket
import struct
import sys
import threading
from typing import Any, Self

import numpy as np

from benchmarks.floors.process import Served

__all__ = ["Loopback"]

_HEAD = struct.Struct("!BQ")
TAKE, READ, GIVE, STREAM = range(4)


class Loopback:
    """A process at the other end of a socket, for a `with` block.

    Args:
        served: the process; None starts one.
        dial: address to connect to; empty for that of the process.
    """

    def __init__(self, served: Served | None = None, dial: str = "") -> None:
        self._served = served or Served("loopback")
        host, _, port = (dial or self._served.address).rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def take(self, array: Any) -> None:
        """Send an array; return when the other process confirms that it has it."""
        self._send(TAKE, array)

    def read(self, array: Any) -> None:
        """Send an array; return when the other process has read every byte of it."""
        self._send(READ, array)

    def _send(self, verb: int, array: Any) -> None:
        self._socket.sendall(_HEAD.pack(verb, array.nbytes))
        self._socket.sendall(array)
        self._socket.recv(1)

    def give(self, nbytes: int) -> Any:
        """Receive an array that the other process makes."""
        self._socket.sendall(_HEAD.pack(GIVE, nbytes))
        array = np.empty(nbytes, dtype=np.uint8)
        _fill(self._socket, memoryview(array))
        return array

    def stream(self, number: int) -> int:
        """Return the sum of so many integers, each pickled separately."""
        self._socket.sendall(_HEAD.pack(STREAM, number))
        with self._socket.makefile("rb", buffering=65536) as file:
            return sum(pickle.load(file) for _ in range(number))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._served.__exit__()


def _fill(connection: socket.socket, view: memoryview) -> None:
    done = 0
    while done < len(view):
        count = connection.recv_into(view[done:])
        if count == 0:
            raise EOFError("the other process has ended")
        done += count


def _serve() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    print(f"{host}:{port}", flush=True)
    threading.Thread(target=_work, args=(listener,), daemon=True).start()
    sys.stdin.read()


def _work(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while head := connection.recv(_HEAD.size, socket.MSG_WAITALL):
        verb, size = _HEAD.unpack(head)
        if verb == GIVE:
            connection.sendall(np.ones(size, dtype=np.uint8))
        elif verb == STREAM:
            with connection.makefile("wb", buffering=65536) as file:
                for number in range(size):
                    file.write(pickle.dumps(number, protocol=5))
        else:
            array = np.empty(size, dtype=np.uint8)
            _fill(connection, memoryview(array))
            if verb == READ:
                array.view("u8").sum(dtype="u8")
            connection.sendall(b"+")


if __name__ == "__main__":
    _serve()
