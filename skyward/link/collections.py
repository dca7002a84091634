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
        self._client: Client | None = None
        self._hub: Hub | None = None

    async def reach(self, address: str, connect: Callable[[str], Awaitable[str]], dial: Callable[[str], str]) -> None:
        """Reach the member at `address` through the tunnel that `connect` makes, at the address that `dial` returns."""
        await connect(address)
        self._dials[address] = dial

    async def enter(self, seeds: tuple[str, ...]) -> None:
        """Connect to the cluster through one of `seeds`."""
        with presented(self._credentials) as tls:
            client = Client(
                seeds=seeds,
                name=self._name,
                tls=tls,
                limits=LIMITS,
                address_map=lambda address: self._dials.get(address, str)(address),
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
