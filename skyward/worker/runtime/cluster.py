"""Membership of a node in its pool's cluster, and access of its tasks to the shared collections.

The cluster has an engine of its own beside the one that serves the client: its connections are between nodes, each end
shows a certificate of the pool, and its traffic delays no task.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from casty import ActorSystem, Cluster, Observer, Runtime

from skyward.errors import CollectionUnavailableError
from skyward.wire.collections.hub import DEAD_AFTER, HEARTBEAT, LIMITS, REMOVE_AFTER, SUSPECT_AFTER, Hub, declare
from skyward.wire.collections.lost import Loss, Name, name_of, reads
from skyward.wire.collections.requests import CollectionRequest
from skyward.wire.protocol.messages import (
    Clustered,
    CollectionsFilled,
    CollectionsWritten,
    CopiesReport,
    Join,
    Leave,
    Losses,
    LossReported,
)
from skyward.wire.transport.trust import Credentials, presented
from skyward.worker.runtime.copies import CopyReporter
from skyward.worker.tasks.forked import ForkedProcessError, is_forked

__all__ = ["Membership"]

_JOIN_WITHIN = 10.0
_LEAVE_WITHIN = timedelta(seconds=10)
_MEMBER_WITHIN = 60.0
"""Seconds that an operation waits for the node to join the cluster."""


class Membership:
    """Membership of this node in the cluster. Lives on the engine's loop; `ask` and `task_ended` are for any thread.

    Args:
        tell: sends a message to the client.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[Clustered | CollectionsFilled | LossReported | CopiesReport], None],
    ) -> None:
        self._loop = loop
        self._tell = tell
        self._hub: asyncio.Future[Hub] = loop.create_future()
        self._membership: asyncio.Task[None] | None = None
        self._leaving = asyncio.Event()
        self._hands_over = True
        self._address = ""
        self._copies: CopyReporter | None = None
        self._written: set[Name] = set()
        self._lost: dict[Name, Loss] = {}
        self._with_requests: set[int] = set()
        self._operations: dict[int, set[asyncio.Task[Any]]] = {}

    @property
    def address(self) -> str:
        """Address at which the node listens for other nodes; "" while it is not in the cluster."""
        return self._address

    # For tasks.

    def ask(self, request: CollectionRequest) -> Future[Any]:
        """Start an operation; return a future of its result."""
        if is_forked():
            raise ForkedProcessError("a collection")
        self._with_requests.add(request.owner)
        return asyncio.run_coroutine_threadsafe(self.perform(request), self._loop)

    async def perform(self, request: CollectionRequest) -> Any:
        """Run an operation and return its result.

        Raises:
            CollectionUnavailableError: the node could not join the cluster.
            CollectionLostError: the collection lost its content, and this is the first operation since.
        """
        operation = asyncio.current_task()
        assert operation is not None
        operations = self._operations.setdefault(request.owner, set())
        operations.add(operation)
        try:
            return await self._perform(request)
        finally:
            operations.discard(operation)
            if not operations:
                self._operations.pop(request.owner, None)

    async def _perform(self, request: CollectionRequest) -> Any:
        while True:
            hub = await self._joined_hub(request)
            self._raise_loss(request)
            try:
                answer = await hub.perform(request)
            except (RuntimeError, CollectionUnavailableError):
                if self._hub.done() and self._hub.result() is hub:
                    raise
                continue  # the node has left that cluster
            if reads(request):
                self._raise_loss(request)
            return answer

    async def _joined_hub(self, request: CollectionRequest) -> Hub:
        if not self._hub.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._hub), _MEMBER_WITHIN)
        if not self._hub.done():
            raise CollectionUnavailableError(
                f"{request.kind.capitalize()} {request.name!r} cannot be reached: this node has not joined the cluster "
                f"of its pool within {_MEMBER_WITHIN:.0f} s."
            )
        return self._hub.result()

    def _raise_loss(self, request: CollectionRequest) -> None:
        if (loss := self._lost.pop(name_of(request), None)) is not None:
            self._tell(LossReported(loss.kind, loss.name))
            raise loss.error()

    def _wrote(self, name: Name) -> None:
        if name not in self._written:
            self._written.add(name)
            self._tell(CollectionsFilled((name,)))

    def task_ended(self, task: int, stopped: bool) -> Future[None] | None:
        """Release what an ended task still holds, and cancel the operations that it no longer waits for.

        All operations of a task that was `stopped` are cancelled: it may not have cancelled them itself.

        Returns:
            A future that ends with the cleanup; None where there is nothing to clean up.
        """
        if task not in self._with_requests:
            return None
        self._with_requests.discard(task)
        return asyncio.run_coroutine_threadsafe(self._settle(task, stopped), self._loop)

    async def _settle(self, task: int, stopped: bool) -> None:
        operations = self._operations.get(task, set())
        if stopped:
            for operation in operations:
                if not operation.cancelling():
                    operation.cancel()
        if ending := [operation for operation in operations if operation.cancelling()]:
            await asyncio.wait(ending)
        if self._hub.done():
            await self._hub.result().release_of(task)

    # For the client.

    def apply(self, command: Join | Losses | CollectionsWritten | Leave) -> None:
        """Apply a command: join, leave, or note lost and kept collections. Joining is idempotent while a member."""
        match command:
            case Losses(lost):
                self._lost = {(loss.kind, loss.name): loss for loss in lost}
            case CollectionsWritten(names):
                self._written.update(names)
            case Join() if self._membership is None:
                self._leaving.clear()
                self._lost = {(loss.kind, loss.name): loss for loss in command.lost}
                self._membership = self._loop.create_task(self._stay(command))
            case Join() if self._address:  # from a new client
                self._tell(Clustered(self._address))
                self._tell(CollectionsFilled(tuple(self._written)))
                if self._copies is not None and self._copies.last is not None:
                    self._tell(self._copies.last)
            case Leave(hand_over):
                self._hands_over = hand_over
                self._leaving.set()
                if self._membership is None:
                    self._tell(Clustered("", "the node has left the cluster"))

    async def _stay(self, join: Join) -> None:
        reason = "the node has left the cluster"
        copies = CopyReporter(self._tell)
        try:
            system = await _joined(join, copies)
        except Exception as error:
            reason = str(error) or type(error).__name__
        else:
            hub = Hub(system, self._wrote)
            self._hub.set_result(hub)
            self._address = system.node.address or ""
            self._copies = copies
            self._tell(Clustered(self._address))
            copies.start(system)
            await self._leaving.wait()
            self._address = ""
            self._copies = None
            copies.stop()
            hub.close()
            self._hub = self._loop.create_future()
            if self._hands_over:
                await system.__aexit__(None, None, None)
            else:
                self._written.clear()
                await system.__aexit__(ConnectionAbortedError, ConnectionAbortedError(), None)
        finally:
            self._membership = None
        self._tell(Clustered("", reason))


async def _joined(join: Join, observer: Observer) -> ActorSystem:
    """Join the cluster, and return its system.

    Raises:
        TimeoutError: no seed node admitted this one.
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
            observer=observer,
        )
        declare(system)
        async with asyncio.timeout(_JOIN_WITHIN):
            await system.__aenter__()
        return system


def _place(host: str) -> tuple[str, str | None]:
    """Return the address to listen on, and the one to advertise so that others reach it at `host`.

    The port is chosen here, so that a node which was away for too long comes back at the same address.
    """
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError:  # an address of another machine: the other nodes connect through a forwarded port
            probe.bind(("0.0.0.0", 0))
            port = probe.getsockname()[1]
            return f"0.0.0.0:{port}", f"{host}:{port}"
        return f"{host}:{probe.getsockname()[1]}", None
