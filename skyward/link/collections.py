"""The client's own connection to the cluster of a pool, for the collections."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from casty import Client

from skyward.link.channel import engine_runtime
from skyward.wire.collections.hub import LIMITS, Hub
from skyward.wire.collections.lost import Name
from skyward.wire.collections.requests import CollectionRequest
from skyward.wire.transport.trust import Credentials, presented

__all__ = ["ClusterClient"]

_SYNC_EVERY = timedelta(seconds=1)

_logger = logging.getLogger(__name__)


class ClusterClient:
    """Client of a cluster, which stores nothing itself. Lives on the library's loop.

    Args:
        name: name of the cluster.
        credentials: authenticate both ends.
        wrote: called before the first write to each strong collection.
    """

    def __init__(self, name: str, credentials: Credentials, wrote: Callable[[Name], None]) -> None:
        self._wrote = wrote
        self._name = name
        self._credentials = credentials
        self._dials: dict[str, Callable[[str], str]] = {}
        self._former: set[str] = set()
        self._client: Client | None = None
        self._hub: Hub | None = None

    async def reach(self, address: str, connect: Callable[[str], Awaitable[str]], dial: Callable[[str], str]) -> None:
        """Reach the member at `address` through the tunnel that `connect` makes, at the address that `dial` returns."""
        await connect(address)
        self._dials[address] = dial
        self._former.discard(address)

    def forget(self, address: str) -> None:
        """Note that `address` is no member's any more: connections to it lead to other members from now on.

        The engine looks for the current members at the addresses that it entered with. If all of these were silent
        before they were lost, it would never learn of those that came later.
        """
        self._dials.pop(address, None)
        self._former.add(address)

    def _dial(self, address: str) -> str:
        """Return the address to connect to for that of a member; of another member each time if it is a former one."""
        member = next(iter(self._dials), address) if address in self._former else address
        dial = self._dials.pop(member, None)
        if dial is None:
            return member
        self._dials[member] = dial  # the last one now
        return dial(member)

    async def enter(self, seeds: tuple[str, ...]) -> None:
        """Connect to the cluster through one of `seeds`."""
        with presented(self._credentials) as tls:
            client = Client(
                seeds=seeds,
                name=self._name,
                tls=tls,
                limits=LIMITS,
                address_map=self._dial,
                sync_every=_SYNC_EVERY,
                runtime=engine_runtime(),
                observer=_log,
            )
            await client.__aenter__()
        self._client, self._hub = client, Hub(client, self._wrote)

    async def perform(self, request: CollectionRequest) -> Any:
        """Perform an operation and return its result."""
        if self._hub is None:
            raise RuntimeError("the client is not connected to the cluster")
        return await self._hub.perform(request)

    async def close(self) -> None:
        """Disconnect. Idempotent."""
        client, self._client = self._client, None
        if client is not None and self._hub is not None:
            self._hub.close()
            await client.__aexit__(None, None, None)


def _log(event: object) -> None:
    """Log a report of the engine, for debugging."""
    _logger.debug("engine: %s", event)
