"""The cluster that the nodes of a pool form, as the client has it: who is in it, who is to join, and our own way in."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from skyward.control.act.nodes.replication import Replicator
from skyward.control.decide.collections import Contents
from skyward.errors import CollectionLostError, CollectionUnavailableError, PoolClosedError
from skyward.process import background
from skyward.wire.collections.lost import Loss, Name, name_of, reads
from skyward.wire.collections.requests import Request
from skyward.wire.protocol.messages import Clustered, Fetched, Join, Keep, Kept, Leave, Losses, Peered, Told

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node
    from skyward.link.collections import ClusterClient
    from skyward.wire.transport.trust import Authority

__all__ = ["Clustering"]

_AGAIN = 1.0
_LEAVE_WITHIN = 12.0
"""Seconds that a node may take to join, and to leave then; its own limits are shorter."""

_WAIT_FOR_IT = 60.0
"""Seconds that an operation of the client waits for a node to be in the cluster."""

_REACH_WITHIN = 10.0
"""Seconds that a way to one node may take to be made, before the client goes without that node."""

_logger = logging.getLogger(__name__)


class Clustering:
    """The cluster. Lives on the library's loop; `ask` is for any thread.

    It forms behind the back of the pool, whose readiness does not wait for it: the first node starts it, and the
    others join what is there. It changes by one node at a time, which tells all the others that it comes or goes. Of
    two at once, some would hear from third parties, by and by, and disagree until then about who keeps what.

    Where all nodes were gone at the same time, those that come then form a new cluster, an era of its own: the client
    enters again, and collections that had content say once that they have lost it.

    Args:
        need_node: says that a node is needed, and returns why none can be had, or "".
        note: says something to the user.

    Attributes:
        spreading: what brings large blobs to its nodes.
    """

    def __init__(
        self,
        pool: str,
        seed: bytes,
        need_node: Callable[[], str] = str,
        note: Callable[[str], object] = _logger.warning,
    ) -> None:
        self.spreading = Replicator()
        self._pool = pool
        self._seed = seed
        self._need_node = need_node
        self._note = note
        self._authority: Authority | None = None
        self._making: asyncio.Task[None] | None = None
        self._waiting: list[Node] = []
        self._joining: Node | None = None
        self._members: dict[Node, str] = {}
        self._removed: WeakSet[Node] = WeakSet()
        self._changed = asyncio.Event()
        self._up: set[Node] = set()
        self._era = 0
        self._contents = Contents()
        self._client: ClusterClient | None = None
        self._entering: asyncio.Task[ClusterClient | str] | None = None
        self._users = 0
        self._using: asyncio.Task[None] | None = None
        self._leaving = asyncio.Lock()
        self._background: set[asyncio.Task[Any]] = set()
        self._closed = False

    def add(self, node: "Node") -> None:
        """A node is up: it is to join."""
        self.spreading.add(node)
        self._up.add(node)
        self._await(node)

    def _await(self, node: "Node") -> None:
        self._waiting.append(node)
        self._invite()

    def start(self) -> None:
        """Begin. What it takes to tell friend from stranger is made meanwhile, on another thread."""
        if self._making is None and not self._closed:
            self._making = self._spawn(self._make())

    async def _make(self) -> None:
        def make() -> "Authority":
            from skyward.wire.transport.trust import Authority

            return Authority(self._pool, self._seed)

        self._authority = await asyncio.to_thread(make)
        self.spreading.trust(self._authority)
        self._invite()

    def _invite(self) -> None:
        changing = self._joining is not None or self._leaving.locked()
        if self._authority is None or self._closed or changing or not self._waiting:
            return
        node = self._joining = self._waiting.pop(0)
        mine = self._authority.issue(f"node {node.instance.id}")
        there = tuple(self._members.values())
        node.tell(Join(self._pool, node.instance.address, there, mine.cert, mine.key, mine.ca, self._lost))

    def heard(self, node: "Node", event: Clustered | Kept | Told | Peered | Fetched) -> None:
        """A node says whether it is in the cluster, or has to do with collections or blobs there."""
        match event:
            case Clustered():
                self._hear_of_place(node, event)
            case Kept(names):
                self._contents.write(names)
            case Told(kind, name):
                if self._contents.tell((kind, name)) is not None:
                    self._tell_of_losses()
            case _:
                self.spreading.heard(node, event)

    def _hear_of_place(self, node: "Node", event: Clustered) -> None:
        if node in self._removed:
            return  # it was still on its way in
        was_joining = node is self._joining
        if was_joining:
            self._joining = None
        self._members.pop(node, None)
        if event.address:
            self._members[node] = event.address
            if self._client is not None:
                self._spawn(self._keep_reaching(self._client, node, event.address))
        elif was_joining:
            _logger.warning("node %s did not join the others of its pool: %s; trying again", node.rank, event.why)
            asyncio.get_running_loop().call_later(_AGAIN, self._try_again, node)
        self._news()

    def _try_again(self, node: "Node") -> None:
        if node not in self._removed and node not in self._members:
            self._await(node)

    def remove(self, node: "Node") -> None:
        """A node is gone, whatever it may still say."""
        self._removed.add(node)
        self.spreading.remove(node)
        self._up.discard(node)
        if node is self._joining:
            self._joining = None
        if self._members.pop(node, None) is not None and not self._closed:
            self._lose_member()
        if node in self._waiting:
            self._waiting.remove(node)
        self._news()

    def _lose_member(self) -> None:
        """A member is gone that did not hand over what it kept."""
        losses = self._contents.lose_member(len(self._members), asyncio.get_running_loop().time())
        if losses:
            names = ", ".join(f"{loss.kind} {loss.name!r}" for loss in losses)
            lost = "lost their content" if losses[0].whole else "may have lost part of their content"
            self._note(f"nodes were gone at the same time: {names} {lost}")
            self._tell_of_losses()
        if not self._members:
            self._era += 1
            client, self._client = self._client, None
            if client is not None:
                self._spawn(client.close())  # which ends the operations that are under way

    @property
    def _lost(self) -> tuple[Loss, ...]:
        return tuple(self._contents.lost.values())

    def _tell_of_losses(self) -> None:
        for node in (*self._members, *([self._joining] if self._joining is not None else ())):
            node.tell(Losses(self._lost))

    def _wrote(self, name: Name) -> None:
        """The client writes to a collection. The nodes remember it for whoever attaches to the pool."""
        if self._contents.write((name,)):
            for node in self._members:
                node.tell(Keep((name,)))

    def _news(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._invite()

    async def leave(self, node: "Node") -> None:
        """Let a node hand over what it keeps, before it goes. One at a time, and while none joins.

        One that is joining is let in first: the others may have given it something to keep already.
        """
        self.spreading.remove(node)
        async with self._leaving:
            try:
                if node in self._members or node is self._joining:
                    async with asyncio.timeout(_LEAVE_WITHIN):
                        await self._until(lambda: self._joining is None)
                if node in self._members and len(self._members) > 1:
                    async with asyncio.timeout(_LEAVE_WITHIN):
                        node.tell(Leave())
                        await self._until(lambda: node not in self._members)
            except TimeoutError:
                _logger.warning("node %s did not leave the cluster of its pool in time", node.rank)
        self.remove(node)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    # Our own way in.

    def ask(self, request: Request) -> Future[Any]:
        """The answer to an operation on a collection, to come."""
        return background.run(self._perform(request))

    async def _perform(self, request: Request) -> Any:
        """Return the answer to an operation, in the cluster that there is: a new one where all nodes were gone.

        Raises:
            CollectionLostError: the collection lost its content, and this is the first operation after it.
            CollectionUnavailableError: there is no node to reach it through.
            PoolClosedError: the pool is closed.
        """
        self._users += 1
        try:
            self._use()
            while True:
                self._check_open()
                self._raise_loss(request)
                client = await self._entered(request)
                try:
                    answer = await client.perform(request)
                    if reads(request):
                        self._raise_loss(request)
                    return answer
                except CollectionLostError:
                    raise
                except (RuntimeError, CollectionUnavailableError):
                    self._check_open()
                    if client is self._client:
                        raise
        finally:
            self._users -= 1

    def _raise_loss(self, request: Request) -> None:
        if (loss := self._contents.tell(name_of(request))) is not None:
            self._tell_of_losses()
            raise loss.error()

    def _use(self) -> None:
        """Say that a node is needed, now and for as long as operations are under way."""
        if self._using is None:
            self._using = self._spawn(self._keep_using())
            self._need_node()

    async def _keep_using(self) -> None:
        while self._users:
            await asyncio.sleep(_AGAIN)
            if self._users:
                self._need_node()
        self._using = None

    async def _entered(self, request: Request) -> "ClusterClient":
        """Return our own way in, which all operations share.

        Raises:
            CollectionUnavailableError: there is no node to reach it through.
            PoolClosedError: the pool is closed.
        """
        if self._client is not None:
            return self._client
        if self._entering is None or self._entering.done():
            self._entering = self._spawn(self._enter())
        entering = self._entering
        await asyncio.wait([entering])
        self._check_open()
        if isinstance(found := entering.result(), str):
            raise CollectionUnavailableError(
                f"{request.kind.capitalize()} {request.name!r} cannot be reached: {found}."
            )
        return found

    async def _enter(self) -> "ClusterClient | str":
        """Get in, through those of the members that can be reached; or return why that is not possible."""
        loop = asyncio.get_running_loop()
        until: float | None = None
        while True:
            if reason := self._need_node():
                return reason
            if not (self._up or self._members):
                until = None  # a node is on its way, which takes as long as its provider needs
            elif until is None:
                until = loop.time() + _WAIT_FOR_IT
            elif loop.time() >= until:
                what = "could be reached" if self._members else "has formed a cluster"
                return f"no node of pool {self._pool!r} {what} within {_WAIT_FOR_IT:g} s"
            if self._members and (client := await self._try_to_enter()) is not None:
                self._client = client
                return client
            changed = self._changed
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN):
                    await changed.wait()

    async def _try_to_enter(self) -> "ClusterClient | None":
        from skyward.link.collections import ClusterClient

        if self._authority is None:
            raise RuntimeError("there are members, and nobody made their certificates")
        era = self._era
        client = ClusterClient(self._pool, self._authority.issue("client"), self._wrote)
        seeds = await self._reach_all(client)
        try:
            if seeds:
                async with asyncio.timeout(_REACH_WITHIN):
                    await client.enter(seeds)
        except Exception as error:
            _logger.warning("the cluster of pool %r could not be entered: %s; trying again", self._pool, error)
            seeds = ()
        if not seeds or era != self._era:
            await client.close()
            return None
        for node, address in self._members.items():
            if address not in seeds:
                self._spawn(self._keep_reaching(client, node, address))
        return client

    async def _reach_all(self, client: "ClusterClient") -> tuple[str, ...]:
        """The addresses of the members that can be reached now."""
        members = tuple(self._members.items())
        reasons = await asyncio.gather(*(_reach(client, node, address) for node, address in members))
        return tuple(address for (_, address), reason in zip(members, reasons, strict=True) if not reason)

    async def _keep_reaching(self, client: "ClusterClient", node: "Node", address: str) -> None:
        """Make a way to a member, for as long as it is one: others may send us there for what it keeps."""
        said = False
        while self._members.get(node) == address and (reason := await _reach(client, node, address)):
            if not said:
                _logger.warning("node %s cannot be reached for its collections: %s; trying again", node.rank, reason)
                said = True
            await asyncio.sleep(_AGAIN)

    def _check_open(self) -> None:
        if self._closed:
            raise PoolClosedError(f"Pool {self._pool!r} is closed, and its collections with it.")

    async def close(self) -> None:
        """Let go of it. Twice does no harm."""
        self._closed = True
        self.spreading.close()
        self._changed.set()
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _spawn[T](self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _reach(client: "ClusterClient", node: "Node", address: str) -> str:
    """Make a way to a member; why there is none, or else nothing."""
    try:
        async with asyncio.timeout(_REACH_WITHIN):
            await client.reach(address, node.reach, node.dial)
    except (ConnectionError, TimeoutError) as error:
        return str(error) or f"no way to it within {_REACH_WITHIN:.0f} s"
    return ""
