"""Replication of blobs: executes the replication plan, by sending blobs or having nodes fetch them from peers."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyward.control.act.tasks.remote_blobs import RemoteBlob, ResultLostError
from skyward.control.decide.replication import Have, NotReplicated, Pull, ReplicationPlan, Transfer, WaitForPeers
from skyward.link.bulk import NodeFullError
from skyward.process.background_tasks import BackgroundTasks
from skyward.providers.protocol import LocalAccess
from skyward.wire.protocol.messages import Blob, Fetch, Fetched, Peered, Peering

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skyward.control.act.nodes.node import Node
    from skyward.control.decide.replication import ReplicationEffect
    from skyward.wire.transport.trust import Authority

__all__ = ["NEAR_FROM", "SPREAD_FROM", "Replicator"]

SPREAD_FROM = 1024 * 1024
"""Minimum size of a blob that nodes pass on, in bytes: a smaller one is as quickly sent again."""

NEAR_FROM = 4 * 1024 * 1024
"""The same limit if the nodes are processes of this machine, where sending is faster."""

_PATIENCE = (0.2, 5.0)
_SENT_IN_A_SECOND = 25_000_000
"""Assumed rate in bytes per second. A blob waits for connections between nodes as long as sending it might take at
this rate, within the limits of `_PATIENCE`, in seconds."""


@dataclass(frozen=True, slots=True)
class _InTransfer:
    view: memoryview | RemoteBlob
    done: asyncio.Future[None]


class Replicator:
    """Transfers of blobs to the nodes of a cluster. Runs on the library's loop."""

    def __init__(self) -> None:
        self._plan = ReplicationPlan()
        self._authority: Authority | None = None
        self._nodes: dict[int, Node] = {}
        self._ports: dict[int, str] = {}
        self._transfers: dict[tuple[int, bytes], _InTransfer] = {}
        self._refused: dict[tuple[int, bytes], NodeFullError | ResultLostError] = {}
        self._fetching = BackgroundTasks()

    # The nodes.

    def trust(self, authority: "Authority") -> None:
        """Set the certificate authority, so that nodes can open ports to each other."""
        self._authority = authority
        for node in self._nodes.values():
            self.introduce(node)

    def add(self, node: "Node") -> None:
        """Add a node that is up."""
        node.replicator = self
        self._nodes[node.machine] = node
        for key in node.held:
            self._plan.has(node.machine, key)
        self.introduce(node)

    def introduce(self, node: "Node") -> None:
        """Have a node open its port for transfers, also before it is up."""
        if self._authority is not None:
            mine = self._authority.issue(f"node {node.instance.id}")
            node.tell(Peering(node.instance.address, mine.cert, mine.key, mine.ca))

    def handle(self, node: "Node", event: Peered | Fetched) -> None:
        """Handle an event of a node about its port or a transfer."""
        number = node.machine
        if number not in self._nodes:
            return
        match event:
            case Peered(""):
                self._do(self._plan.closed(number))
            case Peered(address):
                self._ports[number] = address
                self._do(self._plan.opened(number))
            case Fetched(key, attempt, why, reached):
                self._do(self._plan.fetched(number, key, attempt, why, reached=reached))

    def remove(self, node: "Node") -> None:
        """Remove a node that is gone, or leaving."""
        if self._nodes.pop(node.machine, None) is not None:
            self._ports.pop(node.machine, None)
            self._do(self._plan.lost(node.machine))

    def close(self) -> None:
        """Abort all transfers."""
        for node in tuple(self._nodes.values()):
            self.remove(node)

    # The blobs.

    def has(self, node: "Node", keys: "Iterable[bytes]") -> None:
        """Record that a node has blobs that it created."""
        if node.machine in self._nodes:
            for key in keys:
                self._plan.has(node.machine, key)

    def bring(self, node: "Node", key: bytes, view: memoryview | RemoteBlob) -> asyncio.Future[None] | None:
        """Transfer a blob to a node that lacks it; None if the caller should send it directly.

        The future fails with `ConnectionError`, `NodeFullError` or `ResultLostError` when it does not get there.
        """
        least = NEAR_FROM if isinstance(node.instance.access, LocalAccess) else SPREAD_FROM
        small = isinstance(view, memoryview) and view.nbytes < least
        if small or node.machine not in self._nodes:
            return None
        transfer = _InTransfer(view, asyncio.get_running_loop().create_future())
        self._transfers[node.machine, key] = transfer
        self._do(self._plan.want(node.machine, key))
        return transfer.done

    def dropped(self, node: "Node", keys: "Iterable[bytes]") -> None:
        """Record that a node is about to drop blobs."""
        for key in keys:
            self._do(self._plan.dropped(node.machine, key))

    def _do(self, effects: "Sequence[ReplicationEffect]") -> None:
        for effect in effects:
            number, key = effect.node, effect.key
            match effect:
                case Have():
                    self._settle(number, key, None)
                case NotReplicated(why=why):
                    refused = self._refused.pop((number, key), None)
                    self._settle(number, key, refused or ConnectionError(why))
                case Transfer():
                    self._send(number, key)
                case Pull(source=source, attempt=attempt):
                    blob = Blob(key, self._transfers[number, key].view.nbytes)
                    self._nodes[number].tell(Fetch(blob, self._ports[source], attempt, self._near(number, source)))
                case WaitForPeers():
                    least, most = _PATIENCE
                    patience = self._transfers[number, key].view.nbytes / _SENT_IN_A_SECOND
                    loop = asyncio.get_running_loop()
                    loop.call_later(max(least, min(most, patience)), self._hurry, number, key)

    def _settle(self, number: int, key: bytes, error: ConnectionError | NodeFullError | ResultLostError | None) -> None:
        done = self._transfers.pop((number, key)).done
        if done.done():
            return  # the caller was cancelled
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def _send(self, number: int, key: bytes) -> None:
        view = self._transfers[number, key].view
        if isinstance(view, memoryview):
            self._put(number, key, view)
            return
        self._fetching.spawn(self._fetch(number, key, view))

    async def _fetch(self, number: int, key: bytes, blob: RemoteBlob) -> None:
        """Fetch a blob that a node cannot get from its peer, and send it to that node."""
        try:
            view = await blob.fetch(self._nodes[number])
        except ResultLostError as error:
            if (number, key) in self._transfers:
                self._refused[number, key] = error
            self._do(self._plan.sent(number, key, str(error)))
        else:
            if (number, key) in self._transfers:
                self._put(number, key, view)

    def _put(self, number: int, key: bytes, view: memoryview) -> None:
        def sent(put: "asyncio.Future[memoryview]") -> None:
            error = asyncio.CancelledError("cancelled") if put.cancelled() else put.exception()
            if isinstance(error, NodeFullError):
                self._refused[number, key] = error
            self._do(self._plan.sent(number, key, "" if error is None else str(error) or type(error).__name__))

        self._nodes[number].put(key, view).add_done_callback(sent)

    def _hurry(self, number: int, key: bytes) -> None:
        self._do(self._plan.hurry(number, key))

    def _near(self, *numbers: int) -> bool:
        """Return whether these nodes are processes of this machine, which share its memory."""
        return all(isinstance(self._nodes[number].instance.access, LocalAccess) for number in numbers)
