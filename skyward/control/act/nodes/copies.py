"""Copies of volumes that nodes of a cluster pass on to each other: each node is told from which others it may fetch."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from skyward.wire.protocol.messages import Peered
from skyward.wire.protocol.volumes import AttachVolumes, NodeVolume

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node

__all__ = ["VolumeCopies"]

PEERS = 3
"""Nodes that a node is told for one volume: it tries the next one when one fails."""

_PORT_WITHIN = 5.0
"""Seconds that a node has to open its port for transfers."""

type _Prefix = tuple[str, str, str]


@dataclass(slots=True, eq=False)
class _Source:
    """A node that has a copy of a prefix, or is getting one, and the number of nodes that were told to fetch there."""

    node: "Node"
    fetching: int = 0


@dataclass(slots=True)
class VolumeCopies:
    """The nodes of a cluster that have copies of prefixes. Runs on the library's loop.

    A node is told only nodes that began before it, so that no two wait for each other.

    Args:
        introduce: has a node open its port for transfers.
    """

    introduce: Callable[["Node"], Awaitable[None]]
    _sources: dict[_Prefix, list[_Source]] = field(default_factory=dict)
    _ports: dict["Node", asyncio.Future[str]] = field(default_factory=dict)

    async def with_peers(self, node: "Node", command: AttachVolumes) -> AttachVolumes:
        """Return the message that attaches the volumes of a node, with the nodes from which it may fetch copies."""
        copied = [volume.read_only and volume.mode in ("auto", "copy") for volume in command.volumes]
        if command.is_local or not any(copied):
            return command
        self._ports.setdefault(node, asyncio.get_running_loop().create_future())
        await self.introduce(node)
        volumes = zip(command.volumes, copied, strict=True)
        chosen = [self._choose(node, volume) if is_copied else [] for volume, is_copied in volumes]
        peers = [tuple(filter(None, [await self._port(source.node) for source in sources])) for sources in chosen]
        return replace(command, peers=tuple(peers))

    def _choose(self, node: "Node", volume: NodeVolume) -> list[_Source]:
        location = volume.location
        known = self._sources.setdefault((location.endpoint, location.bucket, location.prefix), [])
        nearest = sorted(known, key=lambda source: source.fetching)[:PEERS]
        if nearest:
            nearest[0].fetching += 1
        known.append(_Source(node))
        return nearest

    async def _port(self, node: "Node") -> str:
        """Return the port of a node; "" if it has none."""
        port = self._ports.get(node)
        if port is None:
            return ""
        done, _ = await asyncio.wait((port,), timeout=_PORT_WITHIN)
        return port.result() if done else ""

    def handle(self, node: "Node", event: Peered) -> None:
        """Handle the port of a node."""
        port = self._ports.get(node)
        if port is not None and not port.done():
            port.set_result(event.address)

    def remove(self, node: "Node") -> None:
        """Remove a node that is gone, or leaving."""
        port = self._ports.pop(node, None)
        if port is not None and not port.done():
            port.set_result("")
        for known in self._sources.values():
            known[:] = [source for source in known if source.node is not node]
