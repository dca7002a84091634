"""The client's own way into the cluster of a pool, for the collections."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from casty import Client

from skyward.link.channel import engine_runtime
from skyward.wire.collections.hub import LIMITS, Hub
from skyward.wire.collections.lost import Name
from skyward.wire.collections.requests import Request
from skyward.wire.transport.trust import Credentials, presented

__all__ = ["ClusterClient"]

_SYNC_EVERY = timedelta(seconds=1)

_logger = logging.getLogger(__name__)


class ClusterClient:
    """Speaks to a cluster, and keeps nothing of it. Lives on the library's loop.

    Args:
        wrote: called before the first write to each strong collection.
    """

    def __init__(self, name: str, credentials: Credentials, wrote: Callable[[Name], None]) -> None:
        self._wrote = wrote
        self._name = name
        self._credentials = credentials
        self._dials: dict[str, Callable[[str], str]] = {}
        self._client: Client | None = None
        self._hub: Hub | None = None

    async def reach(self, address: str, way: Callable[[str], Awaitable[str]], dial: Callable[[str], str]) -> None:
        """From now on, reach the member at `address` through what `way` makes for it, where `dial` says it is then."""
        await way(address)
        self._dials[address] = dial

    async def enter(self, seeds: tuple[str, ...]) -> None:
        """Get in, through one of `seeds`."""
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

    async def perform(self, request: Request) -> Any:
        """The answer to an operation."""
        if self._hub is None:
            raise RuntimeError("the client has not entered the cluster")
        return await self._hub.perform(request)

    async def close(self) -> None:
        """Get out. Twice does no harm."""
        client, self._client = self._client, None
        if client is not None and self._hub is not None:
            self._hub.close()
            await client.__aexit__(None, None, None)


def _log(event: object) -> None:
    """What the engine reports is for debugging."""
    _logger.debug("engine: %s", event)
