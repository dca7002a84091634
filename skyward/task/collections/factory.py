"""Opening of collections: one object per name, process and pool."""

import os
import threading
from collections.abc import Callable
from typing import Any

from skyward.errors import NO_POOL, NoPoolError, SpecError
from skyward.task.collections.barrier_lock import Barrier, Lock
from skyward.task.collections.base import Collection, local_backend, refuse_standalone
from skyward.task.collections.counter_queue import Counter, Queue
from skyward.task.collections.dict_set import Dict, Set
from skyward.wire.collections.requests import Backend, CollectionKind, Consistency

__all__ = ["CollectionFactory", "current_factory", "reopened"]


class CollectionFactory:
    """Factory of the collections of one pool; the same name gives the same object."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._open: dict[tuple[CollectionKind, str], Collection] = {}

    def dict(self, name: str, *, consistency: Consistency | None = None) -> Dict:
        """Return a handle of a dict; arguments as those of `sky.dict`."""
        return self._leveled(Dict, name, consistency)

    def set(self, name: str, *, consistency: Consistency | None = None) -> Set:
        """Return a handle of a set; arguments as those of `sky.set`."""
        return self._leveled(Set, name, consistency)

    def counter(self, name: str, *, consistency: Consistency | None = None) -> Counter:
        """Return a handle of a counter; arguments as those of `sky.counter`."""
        return self._leveled(Counter, name, consistency)

    def queue(self, name: str) -> Queue:
        """Return a handle of a queue; arguments as those of `sky.queue`."""
        return self._kept(Queue, name, lambda: Queue(self._backend, name))

    def barrier(self, name: str, n: int) -> Barrier:
        """Return a handle of a barrier; arguments as those of `sky.barrier`."""
        kept = self._kept(Barrier, name, lambda: Barrier(self._backend, name, n))
        return kept if kept.n == n else Barrier(self._backend, name, n)

    def lock(self, name: str, timeout: float | None = 30) -> Lock:
        """Return a handle of a lock; arguments as those of `sky.lock`."""
        kept = self._kept(Lock, name, lambda: Lock(self._backend, name, timeout))
        return kept if kept.timeout == timeout else kept.with_timeout(timeout)

    def _leveled[C: Collection](self, kind: type[C], name: str, consistency: Consistency | None) -> C:
        if consistency not in (None, "strong", "eventual"):
            raise SpecError(f'consistency must be "strong" or "eventual", but got {consistency!r}.')
        kept = self._kept(kind, name, lambda: kind(self._backend, name, consistency))
        kept.settle(consistency)
        return kept

    def _kept[C: Collection](self, kind: type[C], name: str, make: Callable[[], C]) -> C:
        if not isinstance(name, str) or not name:
            raise SpecError(f"The name of a {kind.kind} must be a string such as 'results', but got {name!r}.")
        with self._lock:
            found = self._open.get((kind.kind, name))
            if not isinstance(found, kind):
                found = self._open[kind.kind, name] = make()
            return found


_here: CollectionFactory | None = None
_opening = threading.Lock()


def current_factory(what: str) -> Any:
    """Return what opens collections here: on a node its own factory, else the pool in scope.

    Raises:
        NoClusterError: the nodes of the pool form no cluster.
        NoPoolError: this is the client, and no pool is in scope.
    """
    global _here
    if "SKYWARD_NODE" in os.environ:
        refuse_standalone(what, os.environ.get("SKYWARD_STANDALONE", ""))
        with _opening:
            if _here is None:
                _here = CollectionFactory(local_backend())
            return _here
    from skyward.functions.target import current_pool

    pool = current_pool.get()
    if pool is None:
        raise NoPoolError(f"{NO_POOL}, or name it: `pool.{what}(...)`.")
    return pool


def reopened(kind: CollectionKind, name: str, setting: Any) -> Any:
    """Return the local handle of a collection that was pickled by its name."""
    if kind in ("dict", "set", "counter"):
        return getattr(current_factory(kind), kind)(name, consistency=setting)
    return getattr(current_factory(kind), kind)(name, *(() if kind == "queue" else (setting,)))
