"""The provider protocol, and the values that cross it.

A provider turns "so many machines like this" into machines. It is configured by a frozen value such as `sky.Local()`,
which names nothing but settings; what talks to the cloud is made from it when a pool opens. Providers are found through
the entry-point group `skyward.providers`, so anyone can ship one.

Source: spec/ "Core concepts", Providers.
"""

import difflib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol, runtime_checkable

from skyward.errors import ProviderMissingError
from skyward.specs import Spec

__all__ = [
    "Access",
    "Cluster",
    "ExecAccess",
    "Instance",
    "InstanceType",
    "LocalAccess",
    "Offer",
    "Provider",
    "ProviderConfig",
    "RemoteAccess",
    "SSHAccess",
    "find_provider",
    "provider_names",
]

type InstanceStatus = Literal["provisioning", "running", "exited"]


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """A "machine" that is a process here.

    Attributes:
        host: loopback address that it listens on, its own.
        directory: its working directory.
        python: the interpreter that runs it.
    """

    host: str
    directory: str
    python: str = sys.executable


@dataclass(frozen=True, slots=True)
class SSHAccess:
    """A machine that is entered over SSH. What is None is as the user's SSH configuration has it.

    Its host key is always checked: against `host_key`, else against `known_hosts`. With neither, a machine that is met
    for the first time is taken at its word, which is said, and held to it from then on.

    Attributes:
        host: name or address; a name may be one of the configuration.
        port: where its sshd listens.
        user: who to be there.
        client_keys: files of private keys to try, in this order; none for those of the configuration and the agent.
        known_hosts: file of the host keys of machines.
        host_key: its host key, as a line "ssh-ed25519 AAAA...".
        config: files of SSH configuration instead of the user's; "none" for none.
        directory: what is Skyward's own there; None for "/opt/skyward", or "~/.skyward" where the user is not root.
        grace: seconds without a connection after which the machine counts as lost.
        python: an interpreter there that has what a worker needs; None to set one up.
        answer_within: seconds that it has to answer, once it runs; None to leave that to Skyward.
        retry_every: seconds between attempts to connect to it; None for some that grow from a fraction of one.
        lent: whether the machine runs on when it is given back.
    """

    host: str
    port: int | None = None
    user: str | None = None
    client_keys: tuple[str, ...] = ()
    known_hosts: str | None = None
    host_key: str | None = None
    config: str | None = None
    directory: str | None = None
    grace: float = 30.0
    python: str | None = None
    answer_within: float | None = None
    retry_every: float | None = None
    lent: bool = False

    @property
    def target(self) -> str:
        """The machine, as an error names it: "user@host:port", of that what was given."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@" * (self.user is not None) + host + f":{self.port}" * (self.port is not None)


@dataclass(frozen=True, slots=True)
class ExecAccess:
    """A machine that is entered by a command here which runs commands there, such as `docker exec -i NAME`.

    Whoever may run it is who may enter: there are no keys.

    Attributes:
        command: its words; those of what to run there follow. It passes standard input, output and error.
        name: the machine, as an error names it.
        directory: what is Skyward's own there; None for "/opt/skyward", or "~/.skyward" where the user is not root.
        grace: seconds without a connection after which the machine counts as lost.
        python: an interpreter there that has what a worker needs; None to set one up.
        terminal: the words of a command that opens a shell there in a terminal; none where there is no such command.
    """

    command: tuple[str, ...]
    name: str
    directory: str | None = None
    grace: float = 30.0
    python: str | None = None
    terminal: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The machine, as an error names it."""
        return self.name


type RemoteAccess = SSHAccess | ExecAccess
"""How a machine is entered that has files and processes of its own."""

type Access = LocalAccess | RemoteAccess
"""How a machine is entered."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A kind of machine, the same whatever it costs today. `memory_gb` in GiB."""

    name: str
    vcpus: float
    memory_gb: float
    accelerator: str | None = None
    accelerator_count: float = 0
    architecture: Literal["x86_64", "arm64"] = "x86_64"


@dataclass(frozen=True, slots=True)
class Offer:
    """Price and place of an instance type today. Prices in USD per `billing_unit`; None where it is not sold so."""

    id: str
    instance_type: InstanceType
    spot_price: float | None = None
    on_demand_price: float | None = None
    billing_unit: Literal["second", "minute", "hour"] = "hour"
    region: str = ""
    specific: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What `prepare` set up for one pool; handed to every call after it.

    Attributes:
        specific: what the provider itself wants to remember.
        tags: what every machine is to be tagged with as it is created: "skyward-pool", unique among all pools, and
            "skyward-request", the same where a request is made again.
        notes: one sentence each on what of the spec this provider does not act on.
    """

    id: str
    pool: str
    spec: Spec
    offer: Offer
    specific: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Instance:
    """One machine.

    Attributes:
        access: how it is entered; known from "running" on.
        address: what peers of the same pool reach it at, on their network `interface`.
    """

    id: str
    status: InstanceStatus
    access: Access | None = None
    address: str = ""
    public_address: str = ""
    interface: str = ""
    spot: bool = False
    hourly_price: float = 0.0


class Provider(Protocol):
    """The operations of a cloud. Each may be called again after it failed, by another process too."""

    def offers(self) -> AsyncIterator[Offer]:
        """Everything on sale, unfiltered."""

    async def prepare(self, spec: Spec, offer: Offer, pool: str) -> Cluster:
        """Set up what the machines of one pool share. `pool` tells it from all others; asked again, it is the same.

        Raises:
            SkywardError: it cannot be, and nothing of it is left. Any other error leaves that open.
        """

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Launch machines. Fewer than asked for may come back."""

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """How one machine is; None when there is none."""

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """The machines of a pool that there are, by their tags: whoever asked for them may not have heard of them."""

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Give machines back. One that is gone already is no error."""

    async def teardown(self, cluster: Cluster) -> None:
        """Remove what `prepare` set up."""


@runtime_checkable
class ProviderConfig(Protocol):
    """The settings of a provider: a frozen value."""

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""

    def create_provider(self) -> Provider:
        """What talks to the cloud. Loads the SDK."""


@cache
def _entries() -> Mapping[str, Any]:
    return {entry.name: entry for entry in entry_points(group="skyward.providers")}


def provider_names() -> tuple[str, ...]:
    """The names of the installed providers."""
    return tuple(sorted(_entries()))


def find_provider(name: str) -> type[Any]:
    """The settings class of the provider called `name`, such as `sky.Local` for "local".

    Raises:
        ProviderMissingError: there is none of that name, or what it needs is not installed.
    """
    entry = _entries().get(name.lower())
    if entry is None:
        close = difflib.get_close_matches(name.lower(), _entries(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"installed are: {', '.join(provider_names()) or 'none'}."
        raise ProviderMissingError(f"There is no provider {name!r}; {hint}")
    try:
        found: type[Any] = entry.load()
    except ImportError as error:
        raise ProviderMissingError(
            f"Provider {name!r} needs a package that is not installed ({error.name or error}); "
            f"install it with `pip install 'skyward-jupyter[{name.lower()}]'`"
        ) from error
    return found
