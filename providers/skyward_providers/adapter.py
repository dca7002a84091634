"""`sky.Adapter(...)`: nodes from worker adapters, which are programs that run elsewhere and connect to this one.

`python -m skyward_providers.adapter --connect HOST:PORT --provider local` is such a program, over any provider.
"""

import asyncio
import os
import secrets
import socket
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from skyward.errors import NoOffersError, ProvisioningError, SpecError
from skyward.link.adapters.book import SILENCE, Wanted
from skyward.link.adapters.server import AdapterServer
from skyward.providers.protocol import (
    SETUP_FIELDS,
    ActsOn,
    Cluster,
    Instance,
    InstanceType,
    LocalAccess,
    Offer,
    Provider,
    not_acted_on,
)
from skyward.specs import Spec
from skyward.values.needs import Needs
from skyward.values.validation import of_type, seconds, shown
from skyward.wire.protocol.adapter import Heartbeat, Malformed, StartWorkerGroup, encode

__all__ = ["TOKEN_VARIABLE", "Adapter", "parse_address"]

TOKEN_VARIABLE = "SKYWARD_ADAPTER_TOKEN"
"""The environment variable that both ends take the token from."""

_TOKEN_LENGTH = 16
_LINGER = 1.0
"""Seconds that the port stays open between the offers and the pool that takes one."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """Nodes from worker adapters that connect here. Each worker group of an adapter is one node.

    A pool opens the port `listen` and closes it at its end. With a port of 0, or for several pools in a row, enter it:

        with sky.Adapter() as adapters:
            ...  # start an adapter with adapters.address and adapters.token
            with sky.Compute(provider=adapters, nodes=2) as pool: ...

    Both ends prove that they know the token, and what they say after that is not encrypted: listen on loopback, and
    let adapters of other hosts come through a tunnel.

    Attributes:
        listen: "host:port" that adapters connect to.
        token: what they must know, of at least 16 characters; None for that of the environment variable
            SKYWARD_ADAPTER_TOKEN, and a fresh one where that is not set. Adapters take it from that variable.
        connect_timeout: seconds to wait for an adapter with nodes as wanted.
        silence: seconds without a heartbeat after which an adapter is lost.

    Raises:
        SpecError: a value is not allowed.
    """

    listen: str = "127.0.0.1:0"
    token: str = field(default="", repr=False)
    connect_timeout: float = 60.0
    silence: float = SILENCE

    if TYPE_CHECKING:

        def __init__(
            self,
            listen: str = ...,
            token: str | None = None,
            connect_timeout: float = ...,
            silence: float = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        parse_address(self.listen, "listen")
        token = self.token or os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(32)
        if not isinstance(token, str) or len(token) < _TOKEN_LENGTH:
            raise SpecError(f"token must be a text of at least {_TOKEN_LENGTH} characters that nobody can guess.")
        object.__setattr__(self, "token", token)
        seconds(self.connect_timeout, "connect_timeout", zero=True)
        seconds(self.silence, "silence")

    def __reduce__(self) -> tuple[Any, ...]:
        """The token is a secret, and is not written down."""
        return Adapter, (self.listen, None, self.connect_timeout, self.silence)

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "adapter"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        fields = {"accelerator", "vcpus", "memory_gb"} | SETUP_FIELDS
        return ActsOn(frozenset(fields), "Adapters decide what their nodes are like")

    @property
    def address(self) -> str:
        """Where adapters connect: `listen`, with the port as it is."""
        listening = _sockets.get(self)
        if listening is None:
            return self.listen
        host, port = listening.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __enter__(self) -> Self:
        if self in _sockets:
            raise ProvisioningError(f"The port {self.address} is open already.")
        _sockets[self] = _listen(self.listen)
        return self

    def __exit__(self, *_: object) -> None:
        _sockets.pop(self).close()

    def create_provider(self) -> Provider:
        """What asks the adapters."""
        return _AdapterProvider(self)


def parse_address(text: str, name: str) -> tuple[str, int]:
    """The host and port of "host:port"; an IPv6 address is in brackets.

    Raises:
        SpecError: it is none.
    """
    of_type(text, name, str, f"{name}='127.0.0.1:7070'")
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    known = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536
    if not bare or not known or any(each.isspace() for each in text) or (":" in bare and bare == host):
        raise SpecError(f"{name} must be 'host:port', such as '127.0.0.1:7070', but got {shown(text)}.")
    return bare, int(port)


def _listen(address: str) -> socket.socket:
    host, port = parse_address(address, "listen")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ProvisioningError(f"Adapters cannot connect at {address}: {error.strerror or error}") from None


@dataclass(slots=True)
class _Open:
    """A port that is open for adapters, and how many hold it open."""

    server: AdapterServer
    holders: int = 0
    closing: asyncio.Task[None] | None = None


_sockets: dict[Adapter, socket.socket] = {}
_open: dict[Adapter, _Open] = {}


async def _hold(settings: Adapter) -> AdapterServer:
    """What serves the adapters, open until each `_hold` has had its `_release`."""
    found = _open.get(settings)
    if found is None:
        listening = _sockets[settings].dup() if settings in _sockets else _listen(settings.listen)
        found = _open[settings] = _Open(AdapterServer(settings.token, settings.silence), 1)
        try:
            await found.server.open(listening)
        except BaseException:
            del _open[settings]
            listening.close()
            raise
        return found.server
    found.holders += 1
    if found.closing is not None:
        found.closing.cancel()
        found.closing = None
    return found.server


async def _release(settings: Adapter, linger: float) -> None:
    found = _open[settings]
    found.holders -= 1

    async def close() -> None:
        await asyncio.sleep(linger)
        found.closing = None  # from here on it is too late to take it back
        del _open[settings]
        await found.server.close()

    if not found.holders and linger:
        found.closing = asyncio.get_running_loop().create_task(close())
    elif not found.holders:
        del _open[settings]
        await found.server.close()


class _AdapterProvider:
    def __init__(self, settings: Adapter) -> None:
        self._settings = settings
        self._servers: dict[str, AdapterServer] = {}

    async def offers(self) -> AsyncIterator[Offer]:
        """What the connected adapters have, each kind of node once.

        Raises:
            SpecError: no adapter could know the port.
        """
        if parse_address(self._settings.address, "listen")[1] == 0:
            raise SpecError(
                "No adapter can know where to connect: give a port, as in `sky.Adapter(listen='127.0.0.1:7070')`, or "
                "write `with sky.Adapter() as adapters:` and start them with `adapters.address`."
            )
        server = await _hold(self._settings)
        try:
            found = await server.adapters(None, self._settings.connect_timeout)
        finally:
            await _release(self._settings, _LINGER)
        if not found:
            raise NoOffersError(
                f"No adapter connected to {self._settings.address} within {self._settings.connect_timeout:g} s; start "
                f"one with `python -m skyward_providers.adapter --connect {self._settings.address} --provider local`."
            )
        for offer in {_kind(said): _offer(said) for said in found}.values():
            yield offer

    async def prepare(self, spec: Spec, offer: Offer, pool: str) -> Cluster:
        """Keep the port open."""
        try:
            encode(StartWorkerGroup("any", capabilities=spec.node_capabilities))
        except Malformed as error:
            raise SpecError(f"The capabilities cannot be asked for: {error}") from None
        cluster = Cluster(f"adapter-{secrets.token_hex(4)}", pool, spec, offer, notes=_notes(spec))
        self._servers[cluster.id] = await _hold(self._settings)
        return cluster

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Groups of the adapters that have such nodes, the cheapest first; waits for an adapter if there is none."""
        server = self._servers[cluster.id]
        needs = Needs(cluster.spec.node_resources, cluster.spec.node_capabilities)
        wanted = Wanted(needs, cluster.offer.on_demand_price)
        await server.adapters(wanted, self._settings.connect_timeout)
        starts = [asyncio.create_task(_start(server, wanted)) for _ in range(count)]
        try:
            await asyncio.wait(starts)
        except asyncio.CancelledError:
            for start in starts:
                start.cancel()
            came = [
                each for each in await asyncio.gather(*starts, return_exceptions=True) if isinstance(each, Instance)
            ]
            await asyncio.gather(*(server.shutdown(instance.id) for instance in came))
            raise
        failed = [error for start in starts if (error := start.exception()) is not None]
        for error in failed:
            if not isinstance(error, ProvisioningError) or len(failed) == count:
                raise error
        return cluster, [start.result() for start in starts if start.exception() is None]

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """The machine, unless its adapter said that it is gone, or is gone itself."""
        return cluster, self._servers[cluster.id].instance(instance_id)

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """None: what an adapter has started for us ends with its connection to us."""
        return ()

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Have their adapters end the groups; those of another process have ended with it."""
        server = self._servers.get(cluster.id)
        if server is None:
            return
        await asyncio.gather(*(server.shutdown(instance_id) for instance_id in instance_ids))

    async def teardown(self, cluster: Cluster) -> None:
        """Close the port, if no other pool needs it."""
        if self._servers.pop(cluster.id, None) is not None:
            await _release(self._settings, 0.0)


async def _start(server: AdapterServer, wanted: Wanted) -> Instance:
    instance = await server.start(wanted)
    wrong = await asyncio.to_thread(_why_unusable, instance)
    if wrong:
        await server.shutdown(instance.id)
        raise ProvisioningError(f"Worker group {instance.id} cannot be used: {wrong}.")
    return instance


def _why_unusable(instance: Instance) -> str:
    """Why a node cannot be started on a machine, in half a sentence; nothing if it can."""
    access = instance.access
    if instance.status != "running" or access is None:
        return "its machine does not run"
    if isinstance(access, LocalAccess):
        with suppress(OSError, ValueError):
            status = os.stat(access.directory)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                return ""
        return f"its machine is a process in {access.directory}, which is no directory of yours on this host"
    return ""


def _kind(said: Heartbeat) -> object:
    return said.capabilities, said.resources, said.hourly_price


def _offer(said: Heartbeat) -> Offer:
    kind = InstanceType(
        ", ".join(sorted(said.capabilities)) or "worker group",
        vcpus=said.resources.get("CPU", 0.0),
        memory_gb=said.resources.get("memory", 0.0),
        accelerator_count=said.resources.get("GPU", 0.0),
    )
    return Offer(said.adapter_id, kind, on_demand_price=said.hourly_price, region="adapter", open_ended=True)


_ON_LOCAL = SETUP_FIELDS - {"image.apt", "image.skyward_source"}


def _notes(spec: Spec) -> tuple[str, ...]:
    """What depends on where an adapter has its nodes from, which is known only when they come."""
    depends = [path for path in not_acted_on(spec, ActsOn(_ON_LOCAL, "")) if path in SETUP_FIELDS]
    if not depends:
        return ()
    return (f"Local nodes of an adapter run on this machine as it is; not acted on there: {', '.join(depends)}.",)


if __name__ == "__main__":
    from skyward_providers.adapter_serve import main  # circular: the command of this module

    sys.exit(main())
