"""The node's place in the cluster of its pool, and the way of its tasks to what the pool shares.

The cluster has an engine of its own beside the one that serves the client: its connections are between nodes, each
end shows a certificate of the pool, and what happens there delays no task.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from casty import ActorSystem, Cluster, Runtime

from skyward.errors import CollectionUnavailableError
from skyward.wire.collections.hub import DEAD_AFTER, HEARTBEAT, LIMITS, REMOVE_AFTER, SUSPECT_AFTER, Hub
from skyward.wire.collections.lost import Loss, Name, name_of, reads
from skyward.wire.collections.requests import Request
from skyward.wire.protocol.messages import Clustered, Join, Keep, Kept, Leave, Losses, Told
from skyward.wire.transport.trust import Credentials, presented
from skyward.worker.tasks.forked import ForkedProcessError, is_forked

__all__ = ["Membership"]

_JOIN_WITHIN = 10.0
_LEAVE_WITHIN = timedelta(seconds=10)
_WAIT_FOR_IT = 60.0
"""Seconds that an operation waits for the node to be in the cluster."""


class Membership:
    """In the cluster, or on the way there. Lives on the engine's loop; `ask` and `task_ended` are for any thread.

    Args:
        tell: takes what the client is to hear.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[Clustered | Kept | Told], None]) -> None:
        self._loop = loop
        self._tell = tell
        self._hub: asyncio.Future[Hub] = loop.create_future()
        self._staying: asyncio.Task[None] | None = None
        self._leaving = asyncio.Event()
        self._address = ""
        self._written: set[Name] = set()
        self._lost: dict[Name, Loss] = {}
        self._asked: set[int] = set()
        self._under_way: dict[int, set[asyncio.Task[Any]]] = {}

    @property
    def address(self) -> str:
        """Where the node listens for the others; "" while it is not in the cluster."""
        return self._address

    # For tasks.

    def ask(self, request: Request) -> Future[Any]:
        """The answer to an operation, to come."""
        if is_forked():
            raise ForkedProcessError("a collection")
        self._asked.add(request.owner)
        return asyncio.run_coroutine_threadsafe(self.perform(request), self._loop)

    async def perform(self, request: Request) -> Any:
        """The answer to an operation.

        Raises:
            CollectionUnavailableError: the node does not get into the cluster.
            CollectionLostError: the collection lost its content, and this is the first operation after it.
        """
        operation = asyncio.current_task()
        assert operation is not None
        under_way = self._under_way.setdefault(request.owner, set())
        under_way.add(operation)
        try:
            return await self._perform(request)
        finally:
            under_way.discard(operation)
            if not under_way:
                self._under_way.pop(request.owner, None)

    async def _perform(self, request: Request) -> Any:
        if not self._hub.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._hub), _WAIT_FOR_IT)
        if not self._hub.done():
            raise CollectionUnavailableError(
                f"{request.kind.capitalize()} {request.name!r} cannot be reached: this node has not joined the others "
                f"of its pool within {_WAIT_FOR_IT:.0f} s."
            )
        self._raise_loss(request)
        answer = await self._hub.result().perform(request)
        if reads(request):
            self._raise_loss(request)
        return answer

    def _raise_loss(self, request: Request) -> None:
        if (loss := self._lost.pop(name_of(request), None)) is not None:
            self._tell(Told(loss.kind, loss.name))
            raise loss.error()

    def _wrote(self, name: Name) -> None:
        if name not in self._written:
            self._written.add(name)
            self._tell(Kept((name,)))

    def task_ended(self, task: int, stopped: bool) -> Future[None] | None:
        """Release what a task has not released itself, and take back what it no longer waits for.

        One that was `stopped` waits for nothing: it may not have got to the point of taking back itself.

        Returns:
            What is done when both are; None where there is nothing to do.
        """
        if task not in self._asked:
            return None
        self._asked.discard(task)
        return asyncio.run_coroutine_threadsafe(self._settle(task, stopped), self._loop)

    async def _settle(self, task: int, stopped: bool) -> None:
        operations = self._under_way.get(task, set())
        if stopped:
            for operation in operations:
                if not operation.cancelling():
                    operation.cancel()
        if ending := [operation for operation in operations if operation.cancelling()]:
            await asyncio.wait(ending)
        if self._hub.done():
            await self._hub.result().release_of(task)

    # For the client.

    def obey(self, command: Join | Losses | Keep | Leave) -> None:
        """Join, or leave, or take note of what became of collections. Joining again while it stays does nothing."""
        match command:
            case Losses(lost):
                self._lost = {(loss.kind, loss.name): loss for loss in lost}
            case Keep(names):
                self._written.update(names)
            case Join() if self._staying is None:
                self._leaving.clear()
                self._lost = {(loss.kind, loss.name): loss for loss in command.lost}
                self._staying = self._loop.create_task(self._stay(command))
            case Join() if self._address:  # of a client that does not know
                self._tell(Clustered(self._address))
                self._tell(Kept(tuple(self._written)))
            case Leave():
                self._leaving.set()
                if self._staying is None:
                    self._tell(Clustered("", "it has left"))

    async def _stay(self, join: Join) -> None:
        why = "it has left"
        try:
            system = await _joined(join)
        except Exception as error:
            why = str(error) or type(error).__name__
        else:
            hub = Hub(system, self._wrote)
            self._hub.set_result(hub)
            self._address = system.node.address or ""
            self._tell(Clustered(self._address))
            await self._leaving.wait()
            self._address = ""
            hub.close()
            self._hub = self._loop.create_future()
            await system.__aexit__(None, None, None)
        finally:
            self._staying = None
        self._tell(Clustered("", why))


async def _joined(join: Join) -> ActorSystem:
    """The node in the cluster.

    Raises:
        TimeoutError: none of the nodes that it was to find there took it in.
    """
    bind, advertise = _place(join.host)
    with presented(Credentials(join.cert, join.key, join.ca)) as tls:
        system = ActorSystem(
            cluster=Cluster(
                bind=bind,
                advertise=advertise,
                seeds=join.seeds,
                name=join.name,
                tls=tls,
                limits=LIMITS,
                heartbeat=HEARTBEAT,
                suspect_after=SUSPECT_AFTER,
                dead_after=DEAD_AFTER,
                remove_after=REMOVE_AFTER,
                anti_entropy=timedelta(seconds=5),
            ),
            leave_timeout=_LEAVE_WITHIN,
            runtime=Runtime(threads=1),
            observer=_ignore,
        )
        async with asyncio.timeout(_JOIN_WITHIN):
            await system.__aenter__()
        return system


def _place(host: str) -> tuple[str, str | None]:
    """Where to listen, and what to tell the others, to be reached at `host`.

    The port is chosen here, so that a node which was away for too long comes back at the same address.
    """
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError:  # an address that is not of this machine: others reach it through what is in between
            probe.bind(("0.0.0.0", 0))
            port = probe.getsockname()[1]
            return f"0.0.0.0:{port}", f"{host}:{port}"
        return f"{host}:{probe.getsockname()[1]}", None


def _ignore(_: object) -> None:
    """What the engine reports of itself is no output of a task."""
