"""What the collections have in common: operations that wait, or are awaited, and values as they are kept."""

import asyncio
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar

from skyward.errors import NoClusterError, NotOnNodeError, SpecError
from skyward.wire.collections.requests import Backend, Consistency, Kind, Request
from skyward.wire.payloads.payload import dumps

__all__ = ["Collection", "current_owner", "here", "packed", "refuse_standalone", "set_here", "unpacked", "wait"]

_LOOK = 0.1
"""Seconds after which a wait off the main thread sees that its task was told to stop."""

_PLAIN = (int, float, bool, str, bytes, type(None))

_backend: Backend | None = None
_owner: Callable[[], int] = int


def set_here(backend: Backend, owner: Callable[[], int]) -> None:
    """From now on, collections of this process go through `backend`. `owner` gives the number of the calling task."""
    global _backend, _owner
    _backend, _owner = backend, owner


def here() -> Backend:
    """What carries out the operations of this process, which is on a node.

    Raises:
        NotOnNodeError: it is not.
    """
    if _backend is None:
        raise NotOnNodeError(
            "This process is no part of a pool; use the collections of a pool, as in `pool.dict(...)`."
        )
    return _backend


def current_owner() -> int:
    """The number of the calling task, on a node; 0 where there is none."""
    return _owner()


def refuse_standalone(what: str, cluster: object) -> None:
    """Check that the nodes form a cluster.

    Raises:
        NoClusterError: they do not.
    """
    if not cluster:
        raise NoClusterError(
            f"Distributed collections require cluster mode, and this pool has `cluster=False`, so there is no {what}."
        )


def packed(value: object, what: str) -> bytes:
    """`value` as it is kept.

    Raises:
        NotPicklableError: it cannot be pickled.
    """
    return pickle.dumps(value, protocol=5) if type(value) in _PLAIN else dumps(value, name=what)


def unpacked(data: bytes) -> Any:
    """The value that was kept."""
    return pickle.loads(data)


def wait[T](future: Future[T]) -> T:
    """The result. An interrupt here ends the wait, and takes back what has not happened."""
    try:
        if threading.current_thread() is threading.main_thread():
            return future.result()
        while True:  # an interrupt reaches another thread only between two steps of Python
            try:
                return future.result(_LOOK)
            except TimeoutError:
                if future.done():  # meanwhile; or this is what it has failed with
                    return future.result()
    except BaseException:
        future.cancel()
        raise


class Collection:
    """A collection of a pool, by its name. The same name is the same collection, on every node and on the client."""

    kind: ClassVar[Kind]

    def __init__(self, backend: Backend, name: str, consistency: Consistency | None = None) -> None:
        self._backend = backend
        self._consistency = consistency
        self.name = name

    def settle(self, consistency: Consistency | None) -> None:
        """Take on a consistency, if there is none yet.

        Raises:
            SpecError: there is another.
        """
        self._consistency = self._consistency or consistency
        if consistency not in (None, self._consistency):
            raise SpecError(
                f"{self.kind.capitalize()} {self.name!r} is {self._consistency!r} since its first use; "
                f"it cannot be {consistency!r} as well."
            )

    def _start(self, verb: str, *args: Any) -> Future[Any]:
        started = self._backend.ask(Request(self.kind, self.name, verb, args, self._consistency, current_owner()))
        if self._consistency is not None:
            started.add_done_callback(self._unsettle)
        return started

    def _unsettle(self, done: Future[Any]) -> None:
        """Forget a consistency that was refused: every handle of this name would be refused for ever."""
        if not done.cancelled() and isinstance(done.exception(), SpecError):
            self._consistency = None

    def _ask(self, verb: str, *args: Any) -> Any:
        return wait(self._start(verb, *args))

    async def _ask_async(self, verb: str, *args: Any) -> Any:
        return await asyncio.wrap_future(self._start(verb, *args))

    def __reduce__(self) -> tuple[Any, ...]:
        """It travels as its name: on a node, it is that node's way to the same collection."""
        from skyward.task.collections.opener import reopened  # circular: a collection travels as what opens it

        return reopened, (self.kind, self.name, *self._settings())

    def _settings(self) -> tuple[Any, ...]:
        return (self._consistency,)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r}>"
