"""`sky.SSH(hosts=[...])`: nodes on your own machines, over SSH. They are lent to pools, never created or stopped."""

import asyncio
import contextlib
import os
import resource
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from weakref import WeakSet, WeakValueDictionary

from skyward.errors import ProvisioningError, SpecError
from skyward.providers import (
    SETUP_FIELDS,
    ActsOn,
    Cluster,
    Instance,
    InstanceType,
    Offer,
    PoolIdentity,
    Provider,
    SSHAccess,
)
from skyward.specs import Spec
from skyward.values.validation import listed, of_type, seconds, strings

__all__ = ["SSH"]

_FREE_WITHIN = 10.0

_DESCRIPTORS = 16
_DESCRIPTORS_BESIDE = 256
"""File descriptors of this process for each node (pipes to `ssh`, messages, two bulk connections), and for the rest."""

type _Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


@dataclass(frozen=True, slots=True)
class SSH:
    """Machines of your own, each for one node at a time; machines beyond the pool's size replace lost ones.

    All pools and groups of a process share machines that they name in the same way.

    `~/.ssh/config` applies, including jump hosts, and so does the agent. Host keys are always checked: unless
    `known_hosts` is given, trust on first use, where a new host's key is logged, then pinned.

    Opening a pool raises the soft limit of open files of this process, if many hosts need it, and leaves it raised.

    Attributes:
        hosts: names or addresses, as "host", "user@host" or "user@host:port"; aliases of the configuration are allowed.
        username: login name for hosts without one.
        client_keys: private key files to try, one or several; None for those of the configuration and the agent.
        known_hosts: a file of host keys; connections to other machines are refused.
        config: a file of SSH configuration instead of `~/.ssh/config`; "none" for none.
        directory: Skyward's directory on the machine; None for "/opt/skyward", or "~/.skyward" if the user is not root.
        grace: seconds that a node may be unreachable before it is replaced and its tasks are retried.
        python: an interpreter on the machine with the packages that a node needs; None to set one up.

    Example:
        with sky.Compute(provider=sky.SSH(hosts=["me@gpu1", "gpu2:2222"]), nodes=2) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: there is no host, one is named twice or malformed, or another value is not allowed.
    """

    hosts: Sequence[str]
    username: str | None = None
    client_keys: _Paths | None = None
    known_hosts: str | PathLike[str] | None = None
    config: str | PathLike[str] | None = None
    directory: str | None = None
    grace: float = 30.0
    python: str | None = None

    def __post_init__(self) -> None:
        hosts = strings(self.hosts, "hosts", "['me@gpu1', 'gpu2:2222']")
        if not hosts:
            raise SpecError("hosts must name at least one machine, as in `sky.SSH(hosts=['me@gpu1'])`.")
        for host in hosts:
            _parse(host)
            if hosts.count(host) > 1:
                raise SpecError(f"hosts names {host!r} twice: a machine runs one node at a time.")
        object.__setattr__(self, "hosts", hosts)
        for name in ("username", "directory", "python"):
            if getattr(self, name) is not None:
                of_type(getattr(self, name), name, str, f"{name}='...'")
        seconds(self.grace, "grace")
        object.__setattr__(self, "client_keys", _paths(self.client_keys))
        for name in ("known_hosts", "config"):
            if (path := getattr(self, name)) is not None:
                of_type(path, name, (str, PathLike), f"{name}='~/.ssh/{name}'")
                object.__setattr__(self, name, fspath(path))

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "ssh"

    @property
    def offers_ttl(self) -> float:
        """Seconds for which its offers hold: they are listed whenever they are needed."""
        return 0.0

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect. With `python`, there is nothing to set up."""
        fields = frozenset({"ttl"}) | (SETUP_FIELDS if self.python is None else frozenset())
        return ActsOn(fields, "SSH hosts are used as they are, and are not compared with the spec")

    def create_provider(self) -> Provider:
        """Create the provider."""
        return _SSHProvider(self)


def _paths(given: _Paths | None) -> tuple[str, ...]:
    if given is None:
        return ()
    paths = (given,) if isinstance(given, str | PathLike) else listed(given, "client_keys", "'~/.ssh/id_ed25519'")
    for path in paths:
        if not isinstance(path, str | PathLike):
            raise SpecError(f"client_keys must hold paths of private keys, but it holds a {type(path).__name__}.")
    return tuple(fspath(path) for path in paths)


def _parse(text: str) -> tuple[str | None, str, int | None]:
    """Split "user@host:port"; an IPv6 address with a port is in brackets."""
    user, _, place = text.strip().rpartition("@")
    host, port = place, ""
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        port = rest.removeprefix(":") if rest else ""
        wrong = bool(rest) and not rest.startswith(":")
    else:
        wrong = False
        if place.count(":") == 1:
            host, _, port = place.partition(":")
    wrong = wrong or (":" in place and place.endswith(":")) or not host or host.startswith("-") or user.startswith("-")
    wrong = wrong or any(each.isspace() for each in text.strip()) or (bool(port) and not 0 < _port(port) < 65536)
    if wrong:
        raise SpecError(f"hosts must name machines as 'host', 'user@host' or 'user@host:port', but it names {text!r}.")
    return user or None, host, int(port) if port else None


_PORT_DIGITS = 5


def _port(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _PORT_DIGITS else 0


def _raise_descriptor_limit(nodes: int) -> None:
    """Raise the limit of open files to that needed for the connections of `nodes` nodes.

    It stays raised: to lower it while other pools of the process hold descriptors above it would break them.

    Raises:
        SpecError: the hard limit is too low.
    """
    wanted = nodes * _DESCRIPTORS + _DESCRIPTORS_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (resource.RLIM_INFINITY, -1) or soft >= wanted:
        return
    if hard not in (resource.RLIM_INFINITY, -1) and hard < wanted:
        raise SpecError(
            f"{nodes} nodes need about {wanted} file descriptors, and the limit of this process is {hard}: raise it "
            "(`ulimit -Hn`), or request fewer nodes."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _check_files(settings: SSH) -> None:
    """Check that the files of the settings exist.

    Raises:
        SpecError: a file does not exist.
    """
    config = None if settings.config == "none" else settings.config
    named = (("known_hosts", settings.known_hosts), ("config", config))
    keys = [("client_keys", path) for path in _paths(settings.client_keys)]
    for field, path in (*keys, *((field, fspath(path)) for field, path in named if path is not None)):
        if not os.path.isfile(os.path.expanduser(path)):
            raise SpecError(f"sky.SSH names {path!r} as {field}, and there is no such file.")


type _Host = tuple[str, int | None, str | None, str | None]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class _Loan:
    """A machine that is lent to a pool."""

    instance: Instance
    pool: str


_loans: WeakValueDictionary[_Host, _Loan] = WeakValueDictionary()
"""Machines that this process has lent to pools. A loan also ends when its provider is garbage-collected."""

_providers: "WeakSet[_SSHProvider]" = WeakSet()


def _host(instance: Instance) -> _Host:
    access = instance.access
    assert isinstance(access, SSHAccess)
    return access.host, access.port, access.user, access.config


class _SSHProvider:
    def __init__(self, settings: SSH) -> None:
        self._settings = settings
        self._machines = deque(self._machine(number, host) for number, host in enumerate(settings.hosts, 1))
        self._lent: dict[str, _Loan] = {}
        self._released = asyncio.Event()
        _providers.add(self)

    def _free(self) -> list[Instance]:
        return [instance for instance in self._machines if _host(instance) not in _loans]

    def _lend(self, instance: Instance, pool: str) -> Instance:
        self._lent[instance.id] = _loans[_host(instance)] = _Loan(instance, pool)
        return instance

    def _machine(self, number: int, text: str) -> Instance:
        user, host, port = _parse(text)
        settings = self._settings
        access = SSHAccess(
            host,
            port,
            user or settings.username,
            _paths(settings.client_keys),
            None if settings.known_hosts is None else fspath(settings.known_hosts),
            config=None if settings.config is None else fspath(settings.config),
            directory=settings.directory,
            grace=settings.grace,
            python=settings.python,
            lent=True,
        )
        return Instance(f"ssh-{number}-{host}", "running", access, address=host, public_address=host)

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield one offer for all machines, without a price, of unknown hardware."""
        kind = InstanceType(f"{len(self._settings.hosts)} hosts", vcpus=0, memory_gb=0)
        yield Offer("ssh", kind, on_demand_price=0.0, region="ssh")

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Check that there are enough machines, that the files exist, and that there are enough file descriptors."""
        hosts, nodes = len(self._settings.hosts), spec.nodes.min
        if nodes > hosts:
            machines = "machine" if hosts == 1 else "machines"
            raise SpecError(f"The pool needs at least {nodes} nodes, but hosts names {hosts} {machines}.")
        _raise_descriptor_limit(min(hosts, spec.nodes.ceiling))
        _check_files(self._settings)
        return Cluster(f"ssh-{secrets.token_hex(4)}", pool.id, spec, offer)

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Lend free machines, the least recently used first, so that machines of lost nodes are tried last.

        Waits up to 10 s for one to become free: a lost node is replaced before its machine is released.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FREE_WITHIN):
                while not self._free():
                    self._released.clear()
                    await self._released.wait()
        if not (free := self._free()):
            raise ProvisioningError(f"every host is in use ({len(self._settings.hosts)} in all)")
        return cluster, [self._lend(instance, cluster.pool) for instance in free[:count]]

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return a machine that is lent to the pool, or was lent to it by another process; that loan is taken over."""
        if instance_id not in self._lent:
            for instance in self._machines:
                loan = _loans.get(_host(instance))
                if instance.id == instance_id and (loan is None or loan.pool == cluster.pool):
                    self._lend(instance, cluster.pool)
        loan = self._lent.get(instance_id)
        return cluster, None if loan is None else loan.instance

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return nothing: the machines exist independently of the pool."""
        return ()

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """End the loans of machines, which keep running."""
        for instance_id in instance_ids:
            if (loan := self._lent.pop(instance_id, None)) is None:
                continue
            self._machines.remove(loan.instance)
            self._machines.append(loan.instance)
            if _loans.get(host := _host(loan.instance)) is loan:
                del _loans[host]
            for provider in _providers:
                provider._released.set()

    async def teardown(self, cluster: Cluster) -> None:
        """Do nothing: there are no shared resources."""
