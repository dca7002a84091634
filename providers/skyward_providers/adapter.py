"""`sky.Adapter(...)`: nodes from worker adapters, which are programs on other machines that connect to this process.

`python -m skyward_providers.adapter --connect HOST:PORT --provider local` is such a program, for any provider.
"""

import asyncio
import hmac
import os
import secrets
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from skyward.errors import NoOffersError, ProvisioningError, SpecError
from skyward.link.adapters.registry import SILENCE, GroupRequirements
from skyward.link.adapters.server import AdapterServer
from skyward.providers import PoolIdentity
from skyward.providers.protocol import (
    SETUP_FIELDS,
    ActsOn,
    Cluster,
    Instance,
    InstanceType,
    LocalAccess,
    Offer,
    Provider,
    SSHAccess,
    not_acted_on,
)
from skyward.specs import Spec
from skyward.values.needs import Needs
from skyward.values.validation import of_type, seconds, shown
from skyward.wire.protocol.adapter import Heartbeat, Malformed, StartWorkerGroup, encode

__all__ = ["TOKEN_VARIABLE", "Adapter", "keys_of", "parse_address"]

TOKEN_VARIABLE = "SKYWARD_ADAPTER_TOKEN"
"""Environment variable from which both ends take the token."""

_TOKEN_LENGTH = 16
_LINGER = 1.0
"""Seconds for which the port stays open between the listing of offers and the preparation of a cluster."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """Nodes from worker adapters that connect to this process. Each worker group of an adapter is one node.

    A pool opens the port `listen`, and closes it when it ends. For port 0, or for several pools, use a `with` block.

    Both ends prove that they know the token, but the messages are not encrypted: listen on loopback, and connect
    adapters of other hosts through a tunnel.

    Attributes:
        listen: "host:port" that adapters connect to.
        token: shared secret of at least 16 characters; if it is empty or None, that of the environment variable
            SKYWARD_ADAPTER_TOKEN, or a new one if that is not set. Adapters take it from that variable.
        connect_timeout: seconds to wait for an adapter with matching nodes.
        silence: seconds without a heartbeat after which an adapter is lost.

    Raises:
        SpecError: a value is not allowed.

    Example:
        with sky.Adapter() as adapters:
            ...  # start an adapter with adapters.address and adapters.token
            with sky.Compute(provider=adapters, nodes=2) as pool: ...
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
            raise SpecError(f"token must be a secret text of at least {_TOKEN_LENGTH} characters.")
        object.__setattr__(self, "token", token)
        seconds(self.connect_timeout, "connect_timeout", zero=True)
        seconds(self.silence, "silence")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings without the token, which is a secret."""
        return Adapter, (self.listen, None, self.connect_timeout, self.silence)

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "adapter"

    @property
    def offers_ttl(self) -> float:
        """Seconds for which its offers hold: they are listed whenever they are needed."""
        return 0.0

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        fields = {"accelerator", "vcpus", "memory_gb"} | SETUP_FIELDS
        return ActsOn(frozenset(fields), "Adapters choose the hardware of their nodes")

    @property
    def address(self) -> str:
        """Address that adapters connect to: `listen`, with the actual port."""
        listening = _sockets.get(self)
        if listening is None:
            return self.listen
        host, port = listening.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __enter__(self) -> Self:
        if self in _sockets:
            raise ProvisioningError(f"The address {self.address} is open already.")
        _sockets[self] = _listen(self.listen)
        return self

    def __exit__(self, *_: object) -> None:
        _sockets.pop(self).close()

    def create_provider(self) -> Provider:
        """Create the provider."""
        return _AdapterProvider(self)


def parse_address(text: str, name: str) -> tuple[str, int]:
    """Split "host:port"; an IPv6 address is in brackets.

    Raises:
        SpecError: the text has another form.
    """
    of_type(text, name, str, f"{name}='127.0.0.1:7070'")
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    known = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536
    if not bare or not known or any(each.isspace() for each in text) or (":" in bare and bare == host):
        raise SpecError(f"{name} must be 'host:port', such as '127.0.0.1:7070', but got {shown(text)}.")
    return bare, int(port)


def keys_of(token: str) -> Callable[[str], bytes]:
    """Return the derivation of secrets that both ends have: those of the SSH keys of an adapter's machines."""
    return lambda purpose: hmac.digest(token.encode(), f"skyward adapter: {purpose}".encode(), "sha256")


def _listen(address: str) -> socket.socket:
    host, port = parse_address(address, "listen")
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ProvisioningError(f"Adapters cannot connect at {address}: {error.strerror or error}") from None


@dataclass(slots=True)
class _Open:
    """An open port for adapters, and the number of its holders."""

    server: AdapterServer
    holders: int = 0
    closing: asyncio.Task[None] | None = None


_sockets: dict[Adapter, socket.socket] = {}
_open: dict[Adapter, _Open] = {}


async def _hold(settings: Adapter) -> AdapterServer:
    """Return the server of the adapters; it stays open until each `_hold` has been matched by a `_release`."""
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
        found.closing = None  # from here on it cannot be cancelled any more
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
        """Yield one offer for each kind of node of the connected adapters.

        Raises:
            SpecError: the port is 0 and was not opened with `with`.
            NoOffersError: no adapter connected in time.
        """
        if parse_address(self._settings.address, "listen")[1] == 0:
            raise SpecError(
                "Adapters cannot know the port to connect to: give one, as in `sky.Adapter(listen='127.0.0.1:7070')`, "
                "or write `with sky.Adapter() as adapters:` and start them with `adapters.address`."
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
        for offer in {_kind(heartbeat): _offer(heartbeat) for heartbeat in found}.values():
            yield offer

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Open the port, or keep it open."""
        try:
            encode(StartWorkerGroup("any", capabilities=spec.node_capabilities))
        except Malformed as error:
            raise SpecError(f"The capabilities cannot be requested: {error}") from None
        key_file = pool.key_file.with_name(f"{pool.key_file.name}-adapter")
        replace(pool, key_file=key_file, derive=keys_of(self._settings.token)).ssh_key()
        specific = {"key_file": str(key_file)}
        cluster = Cluster(f"adapter-{secrets.token_hex(4)}", pool.id, spec, offer, specific, notes=_notes(spec))
        self._servers[cluster.id] = await _hold(self._settings)
        return cluster

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Start groups on the adapters with such nodes, the cheapest first; wait for an adapter if there is none."""
        server = self._servers[cluster.id]
        needs = Needs(cluster.spec.node_resources, cluster.spec.node_capabilities)
        wanted = GroupRequirements(needs, cluster.offer.on_demand_price)
        await server.adapters(wanted, self._settings.connect_timeout)
        key_file = cluster.specific["key_file"]
        starts = [asyncio.create_task(_start(server, wanted, key_file)) for _ in range(count)]
        try:
            await asyncio.wait(starts)
        except asyncio.CancelledError:
            for start in starts:
                start.cancel()
            started = [
                each for each in await asyncio.gather(*starts, return_exceptions=True) if isinstance(each, Instance)
            ]
            await asyncio.gather(*(server.shutdown(instance.id) for instance in started))
            raise
        failed = [error for start in starts if (error := start.exception()) is not None]
        for error in failed:
            if not isinstance(error, ProvisioningError) or len(failed) == count:
                raise error
        return cluster, [start.result() for start in starts if start.exception() is None]

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the machine; None if its adapter reported it as gone, or is gone itself."""
        found = self._servers[cluster.id].instance(instance_id)
        return cluster, None if found is None else _with_key(found, cluster.specific["key_file"])

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return nothing: the groups of an adapter end with its connection."""
        return ()

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Have adapters end the groups; those of another process have ended with that process."""
        server = self._servers.get(cluster.id)
        if server is None:
            return
        await asyncio.gather(*(server.shutdown(instance_id) for instance_id in instance_ids))

    async def teardown(self, cluster: Cluster) -> None:
        """Close the port, if no other pool uses it."""
        await asyncio.to_thread(Path(cluster.specific["key_file"]).unlink, missing_ok=True)
        if self._servers.pop(cluster.id, None) is not None:
            await _release(self._settings, 0.0)


def _with_key(instance: Instance, key_file: str) -> Instance:
    """Return a machine with the keys that open it on this host."""
    access = instance.access
    if not isinstance(access, SSHAccess):
        return instance
    here = [each for each in access.client_keys if Path(each).expanduser().exists()]
    return replace(instance, access=replace(access, client_keys=(*here, key_file)))


async def _start(server: AdapterServer, wanted: GroupRequirements, key_file: str) -> Instance:
    instance = _with_key(await server.start(wanted), key_file)
    wrong = await asyncio.to_thread(_problem, instance)
    if wrong:
        await server.shutdown(instance.id)
        raise ProvisioningError(f"Worker group {instance.id} cannot be used: {wrong}.")
    return instance


def _problem(instance: Instance) -> str:
    """Return the reason why a node cannot be started on a machine, as half a sentence; empty if it can."""
    access = instance.access
    if instance.status != "running" or access is None:
        return "its machine is not running"
    if isinstance(access, LocalAccess):
        with suppress(OSError, ValueError):
            status = os.stat(access.directory)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                return ""
        return f"its machine is a process in {access.directory}, which is not a directory of yours on this host"
    return ""


def _kind(heartbeat: Heartbeat) -> object:
    return heartbeat.capabilities, heartbeat.resources, heartbeat.hourly_price


def _offer(heartbeat: Heartbeat) -> Offer:
    kind = InstanceType(
        ", ".join(sorted(heartbeat.capabilities)) or "worker group",
        vcpus=heartbeat.resources.get("CPU", 0.0),
        memory_gb=heartbeat.resources.get("memory", 0.0),
        accelerator_count=heartbeat.resources.get("GPU", 0.0),
    )
    return Offer(
        heartbeat.adapter_id,
        kind,
        on_demand_price=heartbeat.hourly_price,
        region="adapter",
        open_ended=True,
        market_unknown=True,
    )


_ON_LOCAL = SETUP_FIELDS - {"image.apt", "image.skyward_source"}


def _notes(spec: Spec) -> tuple[str, ...]:
    """Return a notice about fields that local nodes ignore."""
    # Whether a node is local is known once it has started.
    depends = [path for path in not_acted_on(spec, ActsOn(_ON_LOCAL, "")) if path in SETUP_FIELDS]
    if not depends:
        return ()
    return (f"Local nodes of an adapter run on this machine as it is; not acted on there: {', '.join(depends)}.",)


if __name__ == "__main__":
    from skyward_providers.adapter_serve import main  # circular: the command of this module

    sys.exit(main())
