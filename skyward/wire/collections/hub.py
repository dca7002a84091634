"""The collections of a pool, as seen by one process in its cluster: a worker or the client."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_never

from casty import ActorDefinition, ActorSystem, Client, Collections, Limits, Write
from casty import collections as engine
from casty.collections import MISSING, Set

from skyward.errors import SpecError
from skyward.process.background_tasks import BackgroundTasks
from skyward.wire.collections import queue as queueing
from skyward.wire.collections.ask import Address, fresh_id, persist
from skyward.wire.collections.barrier import BarrierClient, barrier
from skyward.wire.collections.counter import CounterClient, counter_eventual, counter_strong
from skyward.wire.collections.dict import DictClient, entry_eventual, entry_strong
from skyward.wire.collections.lock import LockClient, lock
from skyward.wire.collections.lost import Name, name_of, writes
from skyward.wire.collections.queue_client import QueueClient
from skyward.wire.collections.requests import CollectionRequest, Consistency

__all__ = ["DEAD_AFTER", "HEARTBEAT", "LIMITS", "REMOVE_AFTER", "SUSPECT_AFTER", "Hub", "declare"]

LIMITS = Limits(message=256 * 1024 * 1024)
"""Maximum size of one value. The design is for values of up to a few MiB: a larger one delays those behind it."""

HEARTBEAT = timedelta(seconds=0.5)
SUSPECT_AFTER = timedelta(seconds=2)
DEAD_AFTER = timedelta(seconds=1.5)
REMOVE_AFTER = timedelta(seconds=1)
"""Delay before a cluster removes a lost member, whose content has new copies 4 seconds after the loss.

A member that was only disconnected joins again.
"""

_AGREE = 2.0
"""Seconds after which the request for a collection's consistency is repeated."""

_COPIES = 3
"""Nodes that keep each value; the engine's default."""

_WRITES: dict[Consistency, Write] = {"strong": "majority", "eventual": "one"}

_logger = logging.getLogger(__name__)

type _Thing = DictClient | _Members | CounterClient | QueueClient | BarrierClient | LockClient


def declare(system: ActorSystem) -> None:
    """Make the types of all collections known to `system`, before it enters a cluster.

    A node that joins copies the values of the types that it knows then, and does not count as a replica before. Of a
    type that it learns later it copies nothing, and its missing values count as answers: two such nodes of three
    outvote the node that has a value.
    """
    types: list[ActorDefinition] = [entry_strong, entry_eventual, counter_strong, counter_eventual]
    types += [queueing.queue, queueing.page, barrier, lock, engine.register.actor]
    for kind in (engine.register, engine.table, engine.table_segment):
        types += [engine.configured(kind.actor, _COPIES, write) for write in _WRITES.values()]
    for each in types:
        system._learn(each)  # the public `ref` does this too, but only for a system that has entered


class Hub:
    """Executes requests. Lives on the loop of `system`.

    Args:
        wrote: called before the first write of this process to each strong collection.
    """

    def __init__(self, system: ActorSystem | Client, wrote: Callable[[Name], None]) -> None:
        self._system = system
        self._wrote = wrote
        self._written: set[Name] = set()
        self._client = fresh_id()
        self._collections = Collections(system)
        self._things: dict[tuple[str, str], tuple[Consistency, _Thing]] = {}
        self._making: dict[tuple[str, str], asyncio.Lock] = {}
        self._background = BackgroundTasks()

    async def perform(self, request: CollectionRequest) -> Any:
        """Execute `request` and return the answer.

        Raises:
            SpecError: the collection has another consistency.
            CollectionUnavailableError: the nodes that store it are unreachable.
        """
        level, thing = await self._thing(request)
        name = name_of(request)
        if level == "strong" and name not in self._written and writes(request):
            self._written.add(name)
            self._wrote(name)
        arguments = (*request.args, request.owner) if request.verb == "acquire" else request.args
        return await getattr(thing, request.verb)(*arguments)

    async def _thing(self, request: CollectionRequest) -> tuple[Consistency, _Thing]:
        key = (request.kind, request.name)
        if key not in self._things:
            async with self._making.setdefault(key, asyncio.Lock()):
                if key not in self._things:
                    level = await self._level(request)
                    self._things[key] = level, self._make(request, level)
        level, thing = self._things[key]
        if request.consistency not in (None, level):
            raise SpecError(
                f"{request.kind.capitalize()} {request.name!r} has been {level!r} since its first use; "
                f"it cannot be {request.consistency!r}."
            )
        return level, thing

    async def _level(self, request: CollectionRequest) -> Consistency:
        """Return the consistency of a collection: the one requested at its first use."""
        if request.kind not in ("dict", "set", "counter"):
            return "strong"
        wanted = request.consistency or "strong"

        async def agree() -> object:
            async with asyncio.timeout(_AGREE):  # requests may be lost while nodes join
                kept = self._collections.register(f"skyward:{request.kind}:{request.name}", value=str)
                if await kept.compare_and_set(MISSING, wanted):
                    return wanted
                return await kept.get()

        return "eventual" if await persist(_what(request), agree) == "eventual" else "strong"

    def _make(self, request: CollectionRequest, level: Consistency) -> _Thing:
        what, name, system = _what(request), request.name, self._system
        eventual = level == "eventual"
        match request.kind:
            case "dict":
                entry = entry_eventual if eventual else entry_strong
                return DictClient(
                    lambda key: Address(what, lambda: system.ref(entry, f"{len(name)}:{name}:{key.hex()}"))
                )
            case "set":
                return _Members(what, name, system, _WRITES[level])
            case "counter":
                counter = counter_eventual if eventual else counter_strong
                return CounterClient(Address(what, lambda: system.ref(counter, name)), self._client)
            case "queue":
                return QueueClient(
                    Address(what, lambda: system.ref(queueing.queue, name)),
                    lambda end: Address(what, lambda: system.ref(queueing.page, f"{name}:{end}")),
                    self._client,
                    self._spawn,
                )
            case "barrier":
                return BarrierClient(Address(what, lambda: system.ref(barrier, name)))
            case "lock":
                return LockClient(Address(what, lambda: system.ref(lock, name)))
            case _:
                assert_never(request.kind)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self._background.spawn(work).add_done_callback(self._log_error)

    @staticmethod
    def _log_error(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.warning("%s", error)

    async def release_of(self, owner: int) -> None:
        """Release the locks that a task still holds."""
        for _, thing in tuple(self._things.values()):
            if isinstance(thing, LockClient):
                await thing.release_of(owner)

    def close(self) -> None:
        """Stop background work."""
        for _, thing in self._things.values():
            if isinstance(thing, LockClient):
                thing.close()
        for task in self._background:
            task.cancel()


class _Members:
    """Client of a set, for one process in the cluster. Members are bytes."""

    def __init__(self, what: str, name: str, system: ActorSystem | Client, write: Write) -> None:
        self._what = what
        self._make: Callable[[], Set[bytes]] = lambda: Collections(system).set(name, value=bytes, write=write)
        self._set = self._make()

    async def _persist[R](self, operation: Callable[[Set[bytes]], Awaitable[R]]) -> R:
        async def attempt() -> R:
            try:
                return await operation(self._set)
            except Exception:
                self._set = self._make()  # its references may point to lost nodes
                raise

        return await persist(self._what, attempt)

    async def add(self, member: bytes) -> None:
        """Add a member."""
        await self._persist(lambda members: members.add(member))

    async def discard(self, member: bytes) -> None:
        """Remove a member, if present."""
        await self._persist(lambda members: members.remove(member))

    async def has(self, member: bytes) -> bool:
        """Return whether `member` is in the set."""
        return await self._persist(lambda members: members.contains(member))

    async def size(self) -> int:
        """Return the number of members."""
        return await self._persist(lambda members: members.size())


def _what(request: CollectionRequest) -> str:
    return f"{request.kind} {request.name!r}"
