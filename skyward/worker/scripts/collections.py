"""Collections for a script: its processes ask the task that runs it, over a socket, and the task asks its node."""

import os
import secrets
import shutil
import socket
import struct
import sys
import tempfile
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Client, Connection, Listener
from queue import SimpleQueue
from threading import Thread  # tasks may replace the attributes of the module
from types import TracebackType
from typing import Any, Self

from skyward.errors import CollectionUnavailableError
from skyward.task.collections.base import local_backend
from skyward.task.collections.beside_task import socket_address
from skyward.wire.collections.requests import CollectionRequest

__all__ = ["ScriptCollections"]

_HAS_NAMES = sys.platform == "linux"
"""True if a socket can have a name in place of a path, so that nothing is left of it if this process is killed."""

type _Answer = tuple[int, Any, BaseException | None]


class ScriptCollections:
    """Socket at which the processes of one script use collections; what they hold belongs to the task.

    A context manager: at its end, what is not answered is revoked.

    Args:
        owner: number of the task.

    Attributes:
        address: address of the socket, at which only this user is answered; empty if there can be none.
    """

    def __init__(self, owner: int) -> None:
        self.address = ""
        self._owner = owner
        self._folder = "" if _HAS_NAMES else tempfile.mkdtemp(prefix="skyward-script-")
        self._connections: list[Connection[Any, Any]] = []
        self._is_closing = False
        address = f"@skyward-{secrets.token_hex(16)}" if _HAS_NAMES else os.path.join(self._folder, "collections")
        with suppress(OSError):  # a path may be too long for a socket
            self._listener = Listener(socket_address(address), "AF_UNIX")
            self.address = address
            Thread(target=self._accept, name="skyward-script-collections", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closing = True
        if self.address:
            with suppress(OSError):
                Client(socket_address(self.address), "AF_UNIX").close()  # wakes the thread, which closes all
        elif self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        with self._listener:
            while not self._is_closing:
                with suppress(OSError, EOFError):
                    connection = self._listener.accept()
                    if not _is_of_this_user(connection):
                        connection.close()
                        continue
                    self._connections.append(connection)
                    Thread(target=self._serve, args=(connection,), name="skyward-script-requests", daemon=True).start()
        for connection in self._connections:
            with suppress(OSError), socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as its:
                its.shutdown(socket.SHUT_RDWR)  # a process that has outlived the script has no collections any more
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self, connection: "Connection[Any, Any]") -> None:
        """Start what one process asks for, until it has ended."""
        asked: dict[int, Future[Any]] = {}
        answers: SimpleQueue[_Answer | None] = SimpleQueue()
        Thread(target=_send, args=(connection, answers), name="skyward-script-answers", daemon=True).start()
        try:
            while True:
                number, request = connection.recv()
                if isinstance(request, CollectionRequest):
                    self._start(number, request, asked, answers)
                elif (taken_back := asked.pop(number, None)) is not None:
                    taken_back.cancel()
        except (EOFError, OSError):
            answers.put(None)
            for future in [*asked.values()]:
                future.cancel()

    def _start(
        self,
        number: int,
        request: CollectionRequest,
        asked: dict[int, Future[Any]],
        answers: "SimpleQueue[_Answer | None]",
    ) -> None:
        def answer(done: Future[Any]) -> None:
            is_awaited = asked.pop(number, None) is not None
            if not done.cancelled():
                error = done.exception()
                answers.put((number, None if error is not None else done.result(), error))
            elif is_awaited:
                answers.put((number, None, CollectionUnavailableError("The script is being stopped.")))

        try:
            asked[number] = future = local_backend().ask(replace(request, owner=self._owner))
        except Exception as error:
            answers.put((number, None, error))
            return
        future.add_done_callback(answer)


def _is_of_this_user(connection: "Connection[Any, Any]") -> bool:
    """Return whether the process at the other end is of this user; a folder has kept out others where there is one."""
    if not _HAS_NAMES:
        return True
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as its:
        _, user, _ = struct.unpack("3i", its.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(user == os.geteuid())


def _send(connection: "Connection[Any, Any]", answers: "SimpleQueue[_Answer | None]") -> None:
    """Send answers on a thread of its own: a process that does not read must not hold up the node."""
    with suppress(OSError):
        while (answer := answers.get()) is not None:
            connection.send(answer)
