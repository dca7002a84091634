"""Backend of the collections in a script on a node, and in the processes that it starts: the task that runs it asks."""

import itertools
import os
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Client, Connection
from threading import Lock, Thread
from typing import Any, Final

from skyward.errors import CollectionUnavailableError
from skyward.wire.collections.requests import CollectionRequest

__all__ = ["ADDRESS", "BackendBesideTask", "socket_address"]

ADDRESS: Final = "SKYWARD_COLLECTIONS"
"""Environment variable with the address of the socket of the task."""


def socket_address(text: str) -> str:
    """Return the address of a socket from its text, in which "@" stands for the byte before a name on Linux."""
    return f"\0{text[1:]}" if text.startswith("@") else text


class BackendBesideTask:
    """Backend that sends requests to the task over a socket. A forked process opens a connection of its own.

    Args:
        address: address of the socket.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._opening = Lock()
        self._link: _Link | None = None

    def ask(self, request: CollectionRequest) -> Future[Any]:
        """Start a request and return the future of its answer.

        Raises:
            CollectionUnavailableError: the task has ended.
        """
        if self._link is not None and self._link.process != os.getpid():
            self._opening, self._link = Lock(), None  # those of the parent, which may have held the lock
        with self._opening:
            if self._link is None or self._link.has_ended:
                self._link = _Link(self._address)
            return self._link.ask(request)


class _Link:
    """A connection to the task.

    Raises:
        CollectionUnavailableError: the task has ended.

    Attributes:
        process: number of the process that opened it.
        has_ended: True if the task has closed it.
    """

    def __init__(self, address: str) -> None:
        try:
            self._connection: Connection[Any, Any] = Client(socket_address(address), "AF_UNIX")
        except OSError:
            raise _unavailable() from None
        self.process = os.getpid()
        self.has_ended = False
        self._sending = Lock()
        self._numbers = itertools.count(1)
        self._operations: dict[int, Future[Any]] = {}
        Thread(target=self._listen, name="skyward-collections", daemon=True).start()

    def ask(self, request: CollectionRequest) -> Future[Any]:
        number = next(self._numbers)
        operation = self._operations[number] = Future()
        operation.add_done_callback(lambda done: self._take_back(number) if done.cancelled() else None)
        try:
            self._send((number, request))
        except OSError:
            self._fail()
        if self.has_ended:
            self._fail()
        return operation

    def _take_back(self, number: int) -> None:
        if self._operations.pop(number, None) is not None and not self.has_ended:
            try:
                self._send((number, None))
            except OSError:
                self._fail()

    def _send(self, message: tuple[int, CollectionRequest | None]) -> None:
        with self._sending:
            self._connection.send(message)

    def _listen(self) -> None:
        try:
            while True:
                number, value, error = self._connection.recv()
                operation = self._operations.pop(number, None)
                if operation is None or not operation.set_running_or_notify_cancel():
                    continue
                if error is None:
                    operation.set_result(value)
                else:
                    operation.set_exception(error)
        except (EOFError, OSError):
            self.has_ended = True
            self._fail()

    def _fail(self) -> None:
        """End what waits for an answer."""
        with suppress(KeyError):  # raised once none is left
            while True:
                _, operation = self._operations.popitem()
                if operation.set_running_or_notify_cancel():
                    operation.set_exception(_unavailable())


def _unavailable() -> CollectionUnavailableError:
    return CollectionUnavailableError(
        "The script of this process has ended, or its node is lost, and collections with it: end this process before "
        "the script."
    )
