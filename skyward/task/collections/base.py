"""Common ground of the collections: blocking and async operations, and the serialized form of values."""

import asyncio
import functools
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar

from skyward.errors import NoClusterError, NotOnNodeError, SpecError
from skyward.task.collections.beside_task import ADDRESS, BackendBesideTask
from skyward.wire.collections.requests import Backend, CollectionKind, CollectionRequest, Consistency
from skyward.wire.payloads.payload import dumps

__all__ = [
    "Collection",
    "checked_timeout",
    "current_owner",
    "install_collections",
    "local_backend",
    "packed",
    "refuse_standalone",
    "unpacked",
    "wait",
]

_POLL_INTERVAL = 0.1
"""Seconds after which a wait off the main thread notices that its task was cancelled."""

_PLAIN = (int, float, bool, str, bytes, type(None))

_backend: Backend | None = None
_owner: Callable[[], int] = int


_backend_beside_task = functools.cache(BackendBesideTask)


def install_collections(backend: Backend, owner: Callable[[], int]) -> None:
    """Set the backend of this process's collections. `owner` returns the number of the calling task."""
    global _backend, _owner
    _backend, _owner = backend, owner


def local_backend() -> Backend:
    """Return the backend of this process, which is on a node.

    Raises:
        NotOnNodeError: it runs neither tasks nor a script.
    """
    if _backend is not None:
        return _backend
    if address := os.environ.get(ADDRESS):
        return _backend_beside_task(address)  # one connection, however many collections there are
    raise NotOnNodeError(
        "This process is on a node, but it is neither one of its tasks nor a script of `skyward run`, so it has no "
        "collections: use them in the task that started it, and pass values on."
    )


def current_owner() -> int:
    """Return the number of the calling task, on a node; 0 outside a task."""
    return _owner()


def refuse_standalone(what: str, reason: str) -> None:
    """Check that the nodes form a cluster: that there is no `reason` why they do not.

    Raises:
        NoClusterError: they do not.
    """
    if reason:
        raise NoClusterError(f"Distributed collections require cluster mode, and {reason}, so there is no {what}.")


def packed(value: object, what: str) -> bytes:
    """Return `value` serialized.

    Raises:
        NotPicklableError: it cannot be pickled.
    """
    return pickle.dumps(value, protocol=5) if type(value) in _PLAIN else dumps(value, name=what)


def unpacked(data: bytes) -> Any:
    """Return the value that was serialized."""
    return pickle.loads(data)


def checked_timeout(timeout: float | None) -> float | None:
    """Return the timeout of an operation, in seconds; None for none.

    Raises:
        SpecError: it is negative, or not a number.
    """
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or timeout != timeout or timeout < 0:
        raise SpecError(f"timeout must be seconds, or None to wait without a limit, but got {timeout!r}.")
    return None if timeout == float("inf") else float(timeout)


def wait[T](future: Future[T]) -> T:
    """Wait for the result of an operation. An interrupt ends the wait and cancels what has not happened yet."""
    try:
        if threading.current_thread() is threading.main_thread():
            return future.result()
        while True:  # an interrupt reaches another thread only between two Python instructions
            try:
                return future.result(_POLL_INTERVAL)
            except TimeoutError:
                if future.done():  # done meanwhile, or the operation itself raised TimeoutError
                    return future.result()
    except BaseException:
        future.cancel()
        raise


class Collection:
    """A collection of a pool, known by its name: the same collection on every node and on the client."""

    kind: ClassVar[CollectionKind]

    def __init__(self, backend: Backend, name: str, consistency: Consistency | None = None) -> None:
        self._backend = backend
        self._consistency = consistency
        self.name = name

    def settle(self, consistency: Consistency | None) -> None:
        """Set the consistency, if there is none yet.

        Raises:
            SpecError: the collection has another consistency.
        """
        self._consistency = self._consistency or consistency
        if consistency not in (None, self._consistency):
            raise SpecError(
                f"{self.kind.capitalize()} {self.name!r} has been {self._consistency!r} since its first use; "
                f"it cannot be {consistency!r}."
            )

    def _start(self, verb: str, *args: Any) -> Future[Any]:
        started = self._backend.ask(
            CollectionRequest(self.kind, self.name, verb, args, self._consistency, current_owner())
        )
        if self._consistency is not None:
            started.add_done_callback(self._unsettle)
        return started

    def _unsettle(self, done: Future[Any]) -> None:
        """Forget a refused consistency; otherwise every later operation of this handle would be refused too."""
        if not done.cancelled() and isinstance(done.exception(), SpecError):
            self._consistency = None

    def _ask(self, verb: str, *args: Any) -> Any:
        return wait(self._start(verb, *args))

    async def _ask_async(self, verb: str, *args: Any) -> Any:
        return await asyncio.wrap_future(self._start(verb, *args))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the collection as its name; on a node it becomes that node's handle of the same collection."""
        from skyward.task.collections.factory import reopened  # circular: a collection is pickled as its opener

        return reopened, (self.kind, self.name, *self._settings())

    def _settings(self) -> tuple[Any, ...]:
        return (self._consistency,)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r}>"
