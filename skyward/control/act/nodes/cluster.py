"""The cluster that the nodes of a pool form, on the client: its members, nodes to join, and the client's connection."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from skyward.control.act.nodes.copies import VolumeCopies
from skyward.control.act.nodes.replication import Replicator
from skyward.control.decide.collections import CollectionContents
from skyward.errors import CollectionLostError, CollectionUnavailableError, PoolClosedError
from skyward.process import background
from skyward.process.background_tasks import BackgroundTasks
from skyward.wire.collections.lost import Loss, Name, name_of, reads
from skyward.wire.collections.requests import CollectionRequest
from skyward.wire.protocol.messages import (
    Clustered,
    CollectionsFilled,
    CollectionsWritten,
    CopiesReport,
    Fetched,
    Join,
    Leave,
    Losses,
    LossReported,
    Peered,
)

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node
    from skyward.link.collections import ClusterClient
    from skyward.wire.transport.trust import Authority

__all__ = ["ClusterManager"]

_RETRY_DELAY = 1.0
_LEAVE_WITHIN = 12.0
"""Timeout in seconds for a node to join, and for it to leave afterwards; the node's own limits are shorter."""

_FAILED_JOINS = 3
"""Attempts to join after which the user is told that a node cannot: its network is another one, say."""

_SETTLE_WITHIN = 10.0
"""Seconds that nodes wait to join while the others restore copies of collections: longer than detection of a loss."""

_STUCK_FOR = 5.0
"""Seconds after which nodes leave a cluster that cannot remove its lost members, to form a new one."""

_CLUSTER_WITHIN = 60.0
"""Seconds that an operation of the client waits for a node to join the cluster."""

_REACH_WITHIN = 10.0
"""Timeout of a connection to one node in seconds; the client continues without that node."""

_logger = logging.getLogger(__name__)


class ClusterManager:
    """The cluster of a pool's nodes. Runs on the library's loop; `ask` may be called from any thread.

    It forms in the background: the pool becomes ready without it. The first node starts the cluster and the others
    join. One node joins or leaves at a time, and informs all members itself. With two changes at once, some members
    would learn of them through gossip, and disagree until then about the placement of data.

    The nodes report which copies they have, so that a loss is known to be harmless or not. While values may have one
    copy, no node joins if the others can make more without it. A cluster that cannot remove its lost members, because
    the others are no majority, is given up.

    After all nodes were lost or a cluster was given up, nodes form a new cluster, with a new era: the client connects
    again, and collections that had content raise `CollectionLostError` once.

    Args:
        need_node: requests a node; returns the reason if there can be none, else "".
        note: shows a notice to the user.

    Attributes:
        replicator: replicator of large blobs between the nodes.
        copies: copies of volumes that nodes pass on.
    """

    def __init__(
        self,
        pool: str,
        seed: bytes,
        need_node: Callable[[], str] = str,
        note: Callable[[str], object] = _logger.warning,
    ) -> None:
        self.replicator = Replicator()
        self.copies = VolumeCopies(self._introduce)
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
        self._departing: WeakSet[Node] = WeakSet()
        self._returning: WeakSet[Node] = WeakSet()
        self._failed_joins: WeakKeyDictionary[Node, int] = WeakKeyDictionary()
        self._changed = asyncio.Event()
        self._up: set[Node] = set()
        self._era = 0
        self._contents = CollectionContents()
        self._restarting: asyncio.Task[None] | None = None
        self._settle_until: float | None = None
        self._client: ClusterClient | None = None
        self._entering: asyncio.Task[ClusterClient | str] | None = None
        self._users = 0
        self._using: asyncio.Task[None] | None = None
        self._leaving = asyncio.Lock()
        self._background = BackgroundTasks()
        self._closed = False

    def add(self, node: "Node") -> None:
        """Have a node join the cluster."""
        self.replicator.add(node)
        self._up.add(node)
        self._await(node)

    def _await(self, node: "Node") -> None:
        self._waiting.append(node)
        self._invite()

    def start(self) -> None:
        """Start forming the cluster. Its certificates are made on another thread."""
        if self._making is None and not self._closed:
            self._making = self._background.spawn(self._make())

    async def _introduce(self, node: "Node") -> None:
        """Have a node open its port for transfers before it is up, which needs the certificates."""
        self.start()
        if self._making is not None:
            await asyncio.wait((self._making,))
            self.replicator.introduce(node)

    async def _make(self) -> None:
        def make() -> "Authority":
            from skyward.wire.transport.trust import Authority

            return Authority(self._pool, self._seed)

        self._authority = await asyncio.to_thread(make)
        self.replicator.trust(self._authority)
        self._invite()

    def _invite(self) -> None:
        changing = self._joining is not None or self._leaving.locked()
        if self._authority is None or self._closed or changing or not self._waiting or self._is_settling():
            return
        node = self._joining = self._waiting.pop(0)
        mine = self._authority.issue(f"node {node.instance.id}")
        members = tuple(self._members.values())
        node.tell(Join(self._pool, node.instance.address, members, mine.cert, mine.key, mine.ca, self._lost))

    def _is_settling(self) -> bool:
        """Return whether no node may join yet: it would move single copies of values, and the others make more now."""
        members = len(self._members)
        if not self._contents.would_move_single_copies(members):
            self._settle_until = None
            return False
        loop = asyncio.get_running_loop()
        if self._settle_until is None:
            self._settle_until = loop.time() + _SETTLE_WITHIN
            loop.call_at(self._settle_until, self._invite)
        if self._contents.can_restore(members) and loop.time() < self._settle_until:
            return True
        self._report_losses(self._contents.endanger())
        return False

    def handle(
        self, node: "Node", event: Clustered | CollectionsFilled | LossReported | CopiesReport | Peered | Fetched
    ) -> None:
        """Handle an event of a node about its membership, collections or blobs."""
        match event:
            case Clustered():
                self._on_membership(node, event)
            case CollectionsFilled(names):
                self._contents.write(names)
            case CopiesReport():
                self._on_copies(node, event)
            case LossReported(kind, name):
                if self._contents.take_loss((kind, name)) is not None:
                    self._tell_of_losses()
            case _:
                if isinstance(event, Peered):
                    self.copies.handle(node, event)
                self.replicator.handle(node, event)

    def _on_copies(self, node: "Node", report: CopiesReport) -> None:
        if node not in self._members or node in self._departing:
            return
        self._report_losses(self._contents.see(node, report, self._members, asyncio.get_running_loop().time()))
        if self._contents.is_stuck() and self._restarting is None and not self._closed:
            self._restarting = self._background.spawn(self._restart())
        self._invite()

    async def _restart(self) -> None:
        """Have all nodes form a new cluster, if the one that they form remains stuck."""
        try:
            while self._contents.is_stuck():
                await asyncio.sleep(_STUCK_FOR)
                changing = self._joining is not None or self._leaving.locked()
                if changing or not self._contents.is_stuck():
                    continue
                for node in self._members:
                    self._returning.add(node)
                    node.tell(Leave(hand_over=False))
                self._members.clear()
                self._report_losses(self._contents.give_up())
                self._end_era()
                self._on_change()
        finally:
            self._restarting = None

    def _on_membership(self, node: "Node", event: Clustered) -> None:
        if node in self._removed:
            return  # it was removed while it joined
        was_joining = node is self._joining
        if was_joining:
            self._joining = None
        self._drop(node)
        if node in self._returning and not event.address:
            self._returning.discard(node)
            self._await(node)
        elif event.address:
            self._members[node] = event.address
            if self._client is not None:
                self._background.spawn(self._keep_reaching(self._client, node, event.address))
        elif was_joining:
            _logger.warning("node %s did not join the cluster of its pool: %s; trying again", node.rank, event.why)
            failed = self._failed_joins[node] = self._failed_joins.get(node, 0) + 1
            if failed == _FAILED_JOINS:
                self._note(
                    f"Node {node.rank} cannot join the cluster of its pool ({event.why}): "
                    "tasks on it have no collections."
                )
            asyncio.get_running_loop().call_later(_RETRY_DELAY, self._try_again, node)
        self._on_change()

    def _try_again(self, node: "Node") -> None:
        if node not in self._removed and node not in self._members:
            self._await(node)

    def remove(self, node: "Node") -> None:
        """Remove a lost node; its later events are ignored."""
        self._removed.add(node)
        self.replicator.remove(node)
        self.copies.remove(node)
        self._up.discard(node)
        was_joining = node is self._joining
        if was_joining:
            self._joining = None
        was_member = self._drop(node)
        if (was_member or (was_joining and self._members)) and not self._closed:
            self._lose_member(node)  # a node that is joining may have taken over values
        if node in self._waiting:
            self._waiting.remove(node)
        self._on_change()

    def _drop(self, node: "Node") -> bool:
        """Remove a node from the members; return whether it was one."""
        address = self._members.pop(node, None)
        if address is not None and self._client is not None:
            self._client.forget(address)
        return address is not None

    def _lose_member(self, node: "Node") -> None:
        """Account for a member that was lost without handing over its data."""
        now = asyncio.get_running_loop().time()
        self._report_losses(self._contents.lose_member(node, len(self._members), now))
        if not self._members:
            self._end_era()

    def _end_era(self) -> None:
        self._era += 1
        client, self._client = self._client, None
        if client is not None:
            self._background.spawn(client.close())  # this ends the operations that are under way

    def _report_losses(self, losses: list[Loss]) -> None:
        if not losses:
            return
        names = ", ".join(f"{loss.kind} {loss.name!r}" for loss in losses)
        its, it = ("its", "it") if len(losses) == 1 else ("their", "them")
        if losses[0].whole:
            why, then = "all nodes with a copy were lost, or too many of them", f"lost {its} content. Fill {it} again."
        else:
            why, then = "nodes were lost before others had copies", f"may have lost part of {its} content. Check it."
        self._note(f"{why}: {names} {then}")
        self._tell_of_losses()

    @property
    def _lost(self) -> tuple[Loss, ...]:
        return tuple(self._contents.lost.values())

    def _tell_of_losses(self) -> None:
        for node in (*self._members, *([self._joining] if self._joining is not None else ())):
            node.tell(Losses(self._lost))

    def _wrote(self, name: Name) -> None:
        """Record that the client writes to a collection. The nodes keep the record for clients that attach later."""
        if self._contents.write((name,)):
            for node in self._members:
                node.tell(CollectionsWritten((name,)))

    def _on_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._invite()

    async def leave(self, node: "Node") -> None:
        """Remove a member after its data is copied to the others. One node at a time, and never while another joins.

        A node that is joining finishes that first: the others may have handed data to it already.
        """
        self.replicator.remove(node)
        self.copies.remove(node)
        async with self._leaving:
            try:
                if node in self._members or node is self._joining:
                    async with asyncio.timeout(_LEAVE_WITHIN):
                        await self._until(lambda: self._joining is None)
                if node in self._members and len(self._members) > 1:
                    async with asyncio.timeout(_LEAVE_WITHIN):
                        self._departing.add(node)
                        self._contents.leave(node, len(self._members) - 1)
                        node.tell(Leave())
                        await self._until(lambda: node not in self._members)
            except TimeoutError:
                _logger.warning("node %s did not leave the cluster of its pool in time", node.rank)
        self.remove(node)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    # The client's connection.

    def ask(self, request: CollectionRequest) -> Future[Any]:
        """Return a future of the result of an operation on a collection."""
        return background.run(self._perform(request))

    async def _perform(self, request: CollectionRequest) -> Any:
        """Perform an operation; recreate the cluster first if all nodes were lost.

        Raises:
            CollectionLostError: the collection lost its content, and this is the first operation since.
            CollectionUnavailableError: no node can be reached.
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

    def _raise_loss(self, request: CollectionRequest) -> None:
        if (loss := self._contents.take_loss(name_of(request))) is not None:
            self._tell_of_losses()
            raise loss.error()

    def _use(self) -> None:
        """Request a node, now and for as long as operations are under way."""
        if self._using is None:
            self._using = self._background.spawn(self._keep_using())
            self._need_node()

    async def _keep_using(self) -> None:
        while self._users:
            await asyncio.sleep(_RETRY_DELAY)
            if self._users:
                self._need_node()
        self._using = None

    async def _entered(self, request: CollectionRequest) -> "ClusterClient":
        """Return the client's connection, which all operations share.

        Raises:
            CollectionUnavailableError: no node can be reached.
            PoolClosedError: the pool is closed.
        """
        if self._client is not None:
            return self._client
        if self._entering is None or self._entering.done():
            self._entering = self._background.spawn(self._enter())
        entering = self._entering
        await asyncio.wait([entering])
        self._check_open()
        if isinstance(found := entering.result(), str):
            raise CollectionUnavailableError(
                f"{request.kind.capitalize()} {request.name!r} cannot be reached: {found}."
            )
        return found

    async def _enter(self) -> "ClusterClient | str":
        """Connect through the members that can be reached; or return the reason why that is not possible."""
        loop = asyncio.get_running_loop()
        until: float | None = None
        while True:
            if reason := self._need_node():
                return reason
            if not (self._up or self._members):
                until = None  # a node is being launched, for as long as its provider needs
            elif until is None:
                until = loop.time() + _CLUSTER_WITHIN
            elif loop.time() >= until:
                what = "could be reached" if self._members else "has formed a cluster"
                return f"no node of pool {self._pool!r} {what} within {_CLUSTER_WITHIN:g} s"
            if self._members and (client := await self._try_to_enter()) is not None:
                self._client = client
                return client
            changed = self._changed
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_DELAY):
                    await changed.wait()

    async def _try_to_enter(self) -> "ClusterClient | None":
        from skyward.link.collections import ClusterClient

        if self._authority is None:
            raise RuntimeError("the cluster has members and no certificate authority")
        era = self._era
        client = ClusterClient(self._pool, self._authority.issue("client"), self._wrote)
        seeds = await self._reach_all(client)
        try:
            if seeds:
                async with asyncio.timeout(_REACH_WITHIN):
                    await client.enter(seeds)
        except Exception as error:
            _logger.warning("could not connect to the cluster of pool %r: %s; trying again", self._pool, error)
            seeds = ()
        if not seeds or era != self._era:
            await client.close()
            return None
        for address in set(seeds) - set(self._members.values()):
            client.forget(address)
        for node, address in self._members.items():
            if address not in seeds:
                self._background.spawn(self._keep_reaching(client, node, address))
        return client

    async def _reach_all(self, client: "ClusterClient") -> tuple[str, ...]:
        """Return the addresses of the members that can be reached now."""
        members = tuple(self._members.items())
        reasons = await asyncio.gather(*(_reach(client, node, address) for node, address in members))
        return tuple(address for (_, address), reason in zip(members, reasons, strict=True) if not reason)

    async def _keep_reaching(self, client: "ClusterClient", node: "Node", address: str) -> None:
        """Connect to a member, for as long as it is one: others may redirect the client to it."""
        warned = False
        while self._members.get(node) == address and (reason := await _reach(client, node, address)):
            if not warned:
                _logger.warning("node %s cannot be reached for its collections: %s; trying again", node.rank, reason)
                warned = True
            await asyncio.sleep(_RETRY_DELAY)
        if address not in self._members.values():
            client.forget(address)

    def _check_open(self) -> None:
        if self._closed:
            raise PoolClosedError(f"Pool {self._pool!r} is closed, and its collections with it.")

    async def close(self) -> None:
        """Disconnect from the cluster. Idempotent."""
        self._closed = True
        self.replicator.close()
        self._changed.set()
        await self._background.cancel()
        if self._client is not None:
            await self._client.close()


async def _reach(client: "ClusterClient", node: "Node", address: str) -> str:
    """Connect to a member; return the reason if that fails, else an empty string."""
    try:
        async with asyncio.timeout(_REACH_WITHIN):
            await client.reach(address, node.reach, node.dial)
    except (ConnectionError, TimeoutError) as error:
        return str(error) or f"no connection within {_REACH_WITHIN:.0f} s"
    return ""
