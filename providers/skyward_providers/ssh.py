"""`sky.SSH(hosts=[...])`: nodes on machines of your own, reached over SSH. They are lent, never created nor ended."""

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
from skyward.providers.protocol import SETUP_FIELDS, ActsOn, Cluster, Instance, InstanceType, Offer, Provider, SSHAccess
from skyward.specs import Spec
from skyward.values.validation import listed, of_type, seconds, strings

__all__ = ["SSH"]

_FREE_WITHIN = 10.0

_DESCRIPTORS = 16
_DESCRIPTORS_BESIDE = 256
"""File descriptors of this process for each node, and for all else: pipes to `ssh`, messages, and two bulk lanes."""

type _Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


@dataclass(frozen=True, slots=True)
class SSH:
    """Machines of your own, each the home of one node at a time; those beyond the pool's nodes replace lost ones.

    That holds for all pools and groups of a process that name a machine in the same words.

    `~/.ssh/config` counts, jump hosts included, and so does the agent. Host keys are always checked: a machine that is
    met for the first time is taken at its word unless `known_hosts` is given, and held to it from then on.

    Attributes:
        hosts: names or addresses, each as "host", "user@host" or "user@host:port"; names of the configuration are good.
        username: who to be where a host does not say.
        client_keys: private key files to try, one or several; None for those of the configuration and the agent.
        known_hosts: a file of host keys; only machines in it are entered.
        config: a file of SSH configuration instead of `~/.ssh/config`; "none" for none.
        directory: what is Skyward's own there; None for "/opt/skyward", or "~/.skyward" where the user is not root.
        grace: seconds that a node may be out of reach before it is replaced and its tasks run again.
        python: an interpreter there that already has what a node needs; None to set one up.

    Raises:
        SpecError: there is no host, one is named twice or badly, or another value is not allowed.
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
                raise SpecError(f"hosts names {host!r} twice: a machine is the home of one node at a time.")
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
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect. With `python`, there is nothing to set up."""
        fields = frozenset({"ttl"}) | (SETUP_FIELDS if self.python is None else frozenset())
        return ActsOn(fields, "Hosts are as they are, and nothing checks what the spec says of them")

    def create_provider(self) -> Provider:
        """What lends the machines out."""
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
    """The user, host and port of "user@host:port"; an IPv6 address with a port is in brackets."""
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


def _have_descriptors(nodes: int) -> None:
    """See that this process may open as many files as so many connections take, while that can still be said.

    Raises:
        SpecError: it may not, and is not allowed to change that.
    """
    wanted = nodes * _DESCRIPTORS + _DESCRIPTORS_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (resource.RLIM_INFINITY, -1) or soft >= wanted:
        return
    if hard not in (resource.RLIM_INFINITY, -1) and hard < wanted:
        raise SpecError(
            f"{nodes} nodes take about {wanted} file descriptors, and this process may have {hard}: raise the limit "
            "(`ulimit -Hn`), or ask for fewer nodes."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _check_files(settings: SSH) -> None:
    """Check that the files which the settings name are there.

    Raises:
        SpecError: one is not.
    """
    config = None if settings.config == "none" else settings.config
    named = (("known_hosts", settings.known_hosts), ("config", config))
    keys = [("client_keys", path) for path in _paths(settings.client_keys)]
    for field, path in (*keys, *((field, fspath(path)) for field, path in named if path is not None)):
        if not os.path.isfile(os.path.expanduser(path)):
            raise SpecError(f"sky.SSH names {path!r} as {field}, and there is no such file.")


type _Host = tuple[str, int | None, str | None, str | None]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class _Home:
    """A machine that is lent out, and to which pool."""

    instance: Instance
    pool: str


_homes: WeakValueDictionary[_Host, _Home] = WeakValueDictionary()
"""What is lent out in this process. It ends with the provider that has lent it, if that never takes it back."""

_providers: "WeakSet[_SSHProvider]" = WeakSet()


def _host(instance: Instance) -> _Host:
    access = instance.access
    assert isinstance(access, SSHAccess)
    return access.host, access.port, access.user, access.config


class _SSHProvider:
    def __init__(self, settings: SSH) -> None:
        self._settings = settings
        self._machines = deque(self._machine(number, host) for number, host in enumerate(settings.hosts, 1))
        self._lent: dict[str, _Home] = {}
        self._given_back = asyncio.Event()
        _providers.add(self)

    def _free(self) -> list[Instance]:
        return [instance for instance in self._machines if _host(instance) not in _homes]

    def _lend(self, instance: Instance, pool: str) -> Instance:
        self._lent[instance.id] = _homes[_host(instance)] = _Home(instance, pool)
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
        """The machines, at no price. What they are like, the spec says, or nobody."""
        kind = InstanceType(f"{len(self._settings.hosts)} hosts", vcpus=0, memory_gb=0)
        yield Offer("ssh", kind, on_demand_price=0.0, region="ssh")

    async def prepare(self, spec: Spec, offer: Offer, pool: str) -> Cluster:
        """Nothing but a look at whether there are enough machines, and file descriptors to reach them."""
        hosts, nodes = len(self._settings.hosts), spec.nodes.min
        if nodes > hosts:
            machines = "machine" if hosts == 1 else "machines"
            raise SpecError(f"The pool wants {nodes} nodes, but hosts names {hosts} {machines}.")
        _have_descriptors(min(hosts, spec.nodes.ceiling))
        _check_files(self._settings)
        return Cluster(f"ssh-{secrets.token_hex(4)}", pool, spec, offer)

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Machines that are free, those that were given back last coming last: what was lost is tried last.

        Where none is, one may be about to be: a lost node is asked for again before its machine is given back.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FREE_WITHIN):
                while not self._free():
                    self._given_back.clear()
                    await self._given_back.wait()
        if not (free := self._free()):
            raise ProvisioningError(f"every host is in use ({len(self._settings.hosts)} in all)")
        return cluster, [self._lend(instance, cluster.pool) for instance in free[:count]]

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """The machine, if it is lent out. One that another process has lent to this pool is lent out from now on."""
        if instance_id not in self._lent:
            for instance in self._machines:
                home = _homes.get(_host(instance))
                if instance.id == instance_id and (home is None or home.pool == cluster.pool):
                    self._lend(instance, cluster.pool)
        home = self._lent.get(instance_id)
        return cluster, None if home is None else home.instance

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """None: these machines are there anyway."""
        return ()

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Take machines back. They run on."""
        for instance_id in instance_ids:
            if (home := self._lent.pop(instance_id, None)) is None:
                continue
            self._machines.remove(home.instance)
            self._machines.append(home.instance)
            if _homes.get(host := _host(home.instance)) is home:
                del _homes[host]
            for provider in _providers:
                provider._given_back.set()

    async def teardown(self, cluster: Cluster) -> None:
        """Nothing is left to remove."""
