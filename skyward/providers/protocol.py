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
from math import isfinite
from typing import Any, Final, Literal, Protocol, runtime_checkable

from skyward.errors import ProviderMissingError
from skyward.specs import Spec

__all__ = [
    "PROVIDER_FIELDS",
    "SETUP_FIELDS",
    "SKYWARD_FIELDS",
    "UNSUPPORTED_FIELDS",
    "Access",
    "ActsOn",
    "Cluster",
    "ExecAccess",
    "Instance",
    "InstanceType",
    "LocalAccess",
    "Market",
    "Offer",
    "Provider",
    "ProviderConfig",
    "RemoteAccess",
    "SSHAccess",
    "acts_on",
    "field_value",
    "find_provider",
    "not_acted_on",
    "provider_names",
]

type Market = Literal["spot", "on-demand"]
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
    """A kind of machine, the same whatever it costs today.

    Attributes:
        name: the provider's name of it.
        vcpus: virtual CPUs; 0 where they are not known.
        memory_gb: memory in GiB; 0 where it is not known.
        accelerator: name of its accelerators in any common spelling, such as "NVIDIA A100-SXM4-80GB"; None for none,
            and "" where it has some of an unknown model.
        accelerator_count: how many; 0 where that is not known. A fraction is a share of one.
        accelerator_memory_gb: memory of one accelerator in GB; None to take it from the name or the catalogue.
        architecture: of the CPUs.
    """

    name: str
    vcpus: float
    memory_gb: float
    accelerator: str | None = None
    accelerator_count: float = 0
    architecture: Literal["x86_64", "arm64"] = "x86_64"
    accelerator_memory_gb: float | None = None


_UNITS_PER_HOUR: Final = {"second": 3600.0, "minute": 60.0, "hour": 1.0}


@dataclass(frozen=True, slots=True)
class Offer:
    """Price and place of an instance type today. Compare prices by `hourly_price` only.

    Attributes:
        id: the provider's name of the offer.
        instance_type: the machine.
        spot_price, on_demand_price: USD per `billing_unit`; None where it is not sold so. Where both are None, it is
            sold on demand at an unknown price.
        billing_unit: unit of time of both prices.
        region: where, in the provider's own names; "" where that is not known.
        specific: what the provider itself wants to remember.
        open_ended: whether machines of other types may come of it too, so that its hardware excludes nothing.
    """

    id: str
    instance_type: InstanceType
    spot_price: float | None = None
    on_demand_price: float | None = None
    billing_unit: Literal["second", "minute", "hour"] = "hour"
    region: str = ""
    specific: Mapping[str, Any] = field(default_factory=dict)
    open_ended: bool = False

    @property
    def markets(self) -> tuple[Market, ...]:
        """The markets that it is sold in."""
        if self.spot_price is None and self.on_demand_price is None:
            return ("on-demand",)
        prices: dict[Market, float | None] = {"spot": self.spot_price, "on-demand": self.on_demand_price}
        return tuple(market for market, price in prices.items() if price is not None)

    def hourly_price(self, market: Market) -> float | None:
        """Return the price of a machine in `market`, USD per hour; None where it is not known."""
        price = self.spot_price if market == "spot" else self.on_demand_price
        if price is None or not isfinite(price) or price < 0:
            return None
        return price * _UNITS_PER_HOUR[self.billing_unit]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What `prepare` set up for one pool; handed to every call after it.

    Attributes:
        specific: what the provider itself wants to remember.
        tags: what every machine is to be tagged with as it is created: "skyward-pool", unique among all pools, and
            "skyward-request", the same where a request is made again.
        notes: one sentence each on what the user should know of it. Fields that have no effect are not among them: the
            pool derives that from `ActsOn`.
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
    """The settings of a provider: a frozen value.

    A provider that does not act on all of `PROVIDER_FIELDS` declares what it acts on with a property `acts_on` that
    returns an `ActsOn`. The pool tells its user about every other field that the spec sets.
    """

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""

    def create_provider(self) -> Provider:
        """What talks to the cloud. Loads the SDK."""


SKYWARD_FIELDS: Final = frozenset({
    "provider", "nodes", "allocation", "max_hourly_cost", "resources", "capabilities", "idle_timeout", "image.env",
})  # fmt: skip  # one name a line says no more
"""Fields of `Spec`, and of its `Image`, that Skyward acts on whatever the provider."""

SETUP_FIELDS: Final = frozenset({
    "image.python", "image.pip", "image.pip_indexes", "image.apt", "image.shell_vars", "image.includes",
    "image.excludes", "image.skyward_source", "image.bootstrap_timeout",
})  # fmt: skip  # as above
"""Fields that act on a machine whose environment Skyward sets up, that is, whose access names no interpreter."""

PROVIDER_FIELDS: Final = SETUP_FIELDS | {
    "accelerator", "vcpus", "memory_gb", "disk_gb", "architecture", "region", "ttl", "volumes",
}  # fmt: skip  # as above
"""Fields that depend on the provider."""

UNSUPPORTED_FIELDS: Final = frozenset({"plugins", "image.metrics"})
"""Fields that have no effect yet. Every field of `Spec` and `Image` is in exactly one of the sets; a test checks it."""


@dataclass(frozen=True, slots=True)
class ActsOn:
    """The fields that a provider acts on.

    Attributes:
        fields: those of `PROVIDER_FIELDS`.
        otherwise: why the others have no effect, as the first half of a sentence.
        knows_hardware: whether its offers say what accelerators machines have. Then that is shown, and not what a spec
            asks for, where that has no effect.
    """

    fields: frozenset[str]
    otherwise: str
    knows_hardware: bool = False


def acts_on(config: ProviderConfig) -> ActsOn:
    """Return what the provider of `config` acts on: all of `PROVIDER_FIELDS` where it declares nothing."""
    declared = getattr(config, "acts_on", None)
    return declared if isinstance(declared, ActsOn) else ActsOn(PROVIDER_FIELDS, f"Provider {config.name!r}")


def field_value(spec: Spec, path: str) -> object:
    """Return the field of `spec` or of its image with that path, such as "vcpus" or "image.pip"."""
    first, _, second = path.partition(".")
    value = getattr(spec, first)
    return getattr(value, second) if second else value


def not_acted_on(spec: Spec, declared: ActsOn) -> tuple[str, ...]:
    """Return the fields that `spec` sets and the provider does not act on, sorted."""
    default = Spec()
    ignored = sorted((PROVIDER_FIELDS - declared.fields) | UNSUPPORTED_FIELDS)
    return tuple(path for path in ignored if _meaning(spec, path) != _meaning(default, path))


def _meaning(spec: Spec, path: str) -> object:
    return spec.image.resolved_python if path == "image.python" else field_value(spec, path)


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
