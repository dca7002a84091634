"""The provider protocol, and its values.

A provider launches machines that fit a spec. It is configured by a frozen value such as `sky.Local()`, which has
nothing but settings; the client of the cloud is created from it when a pool opens. Providers are found through the
entry-point group `skyward.providers`, so any package can ship one.

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
from skyward.providers.identity import PoolIdentity
from skyward.specs import Spec, Volume

__all__ = [
    "PROVIDER_FIELDS",
    "SETUP_FIELDS",
    "SKYWARD_FIELDS",
    "UNSUPPORTED_FIELDS",
    "Access",
    "ActsOn",
    "Check",
    "CheckableProvider",
    "Cluster",
    "ConfigWithCredentials",
    "CredentialSource",
    "ExecAccess",
    "ImageBuildingProvider",
    "Instance",
    "InstanceType",
    "Leftover",
    "LocalAccess",
    "Market",
    "NativeVolumeProvider",
    "NoticeService",
    "Offer",
    "Provider",
    "ProviderConfig",
    "ProviderImage",
    "RemoteAccess",
    "SSHAccess",
    "SweepableProvider",
    "acts_on",
    "check_provider_name",
    "field_value",
    "find_provider",
    "native_volumes",
    "not_acted_on",
    "provider_names",
]

type Market = Literal["spot", "on-demand"]
type InstanceStatus = Literal["provisioning", "running", "exited"]
type NoticeService = Literal["", "ec2", "gcp", "container"]


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """Access to a "machine" that is a process on this machine.

    Attributes:
        host: loopback address of its own, which it listens on.
        directory: its working directory.
        python: path of its interpreter.
    """

    host: str
    directory: str
    python: str = sys.executable


@dataclass(frozen=True, slots=True)
class SSHAccess:
    """Access to a machine over SSH. Fields that are None have the values of the user's SSH configuration.

    The host key is always checked: against `host_key`, else against `known_hosts`. With neither, trust on first use: a
    new host's key is logged, then pinned.

    Attributes:
        host: address or name; a name may be an alias of the SSH configuration.
        port: port of its sshd.
        user: login name.
        client_keys: files of private keys to try, in order; empty for those of the configuration and the agent.
        known_hosts: file of known host keys.
        host_key: its host key, as a line "ssh-ed25519 AAAA...".
        config: file of SSH configuration instead of the user's; "none" for none.
        directory: Skyward's directory on the machine; None for "/opt/skyward", or "~/.skyward" if the user is not root.
        grace: seconds without a connection after which the machine counts as lost.
        python: an interpreter on the machine with the packages that a worker needs; None to set one up.
        answer_within: timeout in seconds of the first connection to a running machine; None for the default.
        retry_every: seconds between attempts to connect; None for an exponential backoff.
        lent: True if the machine keeps running after it is released.
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
        """The machine as error messages name it: "user@host:port", with the parts that are set."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@" * (self.user is not None) + host + f":{self.port}" * (self.port is not None)


@dataclass(frozen=True, slots=True)
class ExecAccess:
    """Access to a machine through a local command that runs commands on it, such as `docker exec -i NAME`.

    There are no keys: every user who can run the command has access.

    Attributes:
        command: the command's arguments; those of the remote command follow. It passes standard input, output, error.
        name: the machine as error messages name it.
        directory: Skyward's directory on the machine; None for "/opt/skyward", or "~/.skyward" if the user is not root.
        grace: seconds without a connection after which the machine counts as lost.
        python: an interpreter on the machine with the packages that a worker needs; None to set one up.
        terminal: arguments of a command that opens a shell on the machine in a terminal; empty if there is none.
        shell: True if the command passes its arguments to a shell, as `ssh` does: those of the remote command are
            quoted.
        starter: directory on the machine from which a process of the provider runs the scripts named `*.start`, in the
            background. The worker is started by it and has its files there. Empty if a worker that a command starts
            outlives the command.
        is_local: True if the worker is a process of this computer, with its files in `directory`.
    """

    command: tuple[str, ...]
    name: str
    directory: str | None = None
    grace: float = 30.0
    python: str | None = None
    terminal: tuple[str, ...] = ()
    shell: bool = False
    starter: str = ""
    is_local: bool = False

    @property
    def target(self) -> str:
        """The machine as error messages name it."""
        return self.name


type RemoteAccess = SSHAccess | ExecAccess
"""Access to a machine with files and processes of its own."""

type Access = LocalAccess | RemoteAccess
"""Access to a machine."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A type of machine, independent of its current price.

    Attributes:
        name: the provider's name of the type.
        vcpus: number of virtual CPUs; 0 if unknown.
        memory_gb: memory in GiB; 0 if unknown.
        accelerator: name of its accelerators in any common spelling, such as "NVIDIA A100-SXM4-80GB"; None for none,
            and "" for an unknown model.
        accelerator_count: number of accelerators; 0 if unknown. A fraction is a share of one.
        accelerator_memory_gb: nominal memory of one accelerator in GB, as the vendor states it; None to take it from
            the name or the catalogue.
        architecture: architecture of the CPUs.
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
    """Current prices and region of an instance type. Compare prices by `hourly_price` only.

    Attributes:
        id: the provider's name of the offer.
        instance_type: the type of machine.
        spot_price, on_demand_price: USD per `billing_unit`; None if not sold in that market. If both are None, it is
            sold on demand at an unknown price.
        billing_unit: unit of time of both prices.
        region: the provider's name of the region; "" if unknown.
        specific: data of the provider's own.
        open_ended: True if machines of other types may be provisioned too, so that its hardware excludes nothing.
        divisible: True if a machine is a part of the type: it has the CPUs, memory and accelerators that the spec asks
            for. Those that the spec leaves open are measured.
        market_unknown: True if the provider does not know in which market the machines are bought. Their price is then
            the `on_demand_price`, and no text names the market.
    """

    id: str
    instance_type: InstanceType
    spot_price: float | None = None
    on_demand_price: float | None = None
    billing_unit: Literal["second", "minute", "hour"] = "hour"
    region: str = ""
    specific: Mapping[str, Any] = field(default_factory=dict)
    open_ended: bool = False
    divisible: bool = False
    market_unknown: bool = False

    @property
    def markets(self) -> tuple[Market, ...]:
        """Markets in which it is sold."""
        if self.spot_price is None and self.on_demand_price is None:
            return ("on-demand",)
        prices: dict[Market, float | None] = {"spot": self.spot_price, "on-demand": self.on_demand_price}
        return tuple(market for market, price in prices.items() if price is not None)

    def hourly_price(self, market: Market) -> float | None:
        """Return the price of a machine in `market` in USD per hour; None if unknown."""
        price = self.spot_price if market == "spot" else self.on_demand_price
        if price is None or not isfinite(price) or price < 0:
            return None
        return price * _UNITS_PER_HOUR[self.billing_unit]


@dataclass(frozen=True, slots=True)
class ProviderImage:
    """An image of a machine, which the provider stores and can launch machines from.

    Attributes:
        id: the provider's id of the image.
        region: where it is; "" if that does not matter.
        size_gb: size that it is billed for, in GB, or the most that it may be; 0 if unknown.
        monthly_price: USD per month for its storage, at most; None if unknown.
        specific: data of the provider's own, which JSON can hold.
    """

    id: str
    region: str = ""
    size_gb: float = 0.0
    monthly_price: float | None = None
    specific: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The resources that `prepare` set up for one pool; passed to every later call.

    Attributes:
        id: id of the cluster.
        pool: id of the pool.
        spec: the spec of its machines.
        offer: the offer that was chosen.
        specific: data of the provider's own.
        notes: notices for the user, one sentence each. The pool adds those about ignored fields, from `ActsOn`.
        tags: tags to set on each machine in the call that creates it: "skyward-pool", unique among all pools,
            "skyward-owner", the installation whose journal has the pool, and "skyward-request", the same if a request
            is repeated.
        machine_image: the image that `provision` launches machines from; None for the provider's ordinary one.
    """

    id: str
    pool: str
    spec: Spec
    offer: Offer
    specific: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    machine_image: "ProviderImage | None" = None


@dataclass(frozen=True, slots=True)
class Instance:
    """One machine.

    Attributes:
        id: the provider's id of the machine.
        status: its state.
        access: access to it; set once it is "running".
        address: address at which peers of the same pool reach it, on their network `interface`.
        public_address: address at which other machines reach it.
        interface: network interface of `address`.
        spot: True if it is a spot machine.
        hourly_price: price in USD per hour.
        detail: what it waits for, or why it ended, as the end of a sentence; "" if unknown.
        notices: where a spot machine learns that it will be reclaimed: a metadata service, or, in a "container", a file
            of its first process; "" for none.
    """

    id: str
    status: InstanceStatus
    access: Access | None = None
    address: str = ""
    public_address: str = ""
    interface: str = ""
    spot: bool = False
    hourly_price: float = 0.0
    detail: str = ""
    notices: NoticeService = ""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A resource at a provider that Skyward tagged: a machine, or what machines of a pool share.

    Attributes:
        kind: type of resource, such as "machine" or "security group".
        id: the provider's id.
        pool: id of the pool that it was made for.
        region: where it is; "" if that does not matter.
        hourly_price: USD per hour; None if unknown.
        specific: data of the provider's own, with which it removes the resource.
    """

    kind: str
    id: str
    pool: str
    region: str = ""
    hourly_price: float | None = None
    specific: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CredentialSource:
    """Source of a provider's credentials, found without a request.

    Attributes:
        found: the place that has them, such as "environment variable RUNPOD_API_KEY"; "" if there are none.
        how: how to give them, as an imperative, such as "set RUNPOD_API_KEY".
    """

    found: str
    how: str


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of an account, for `%sky doctor`.

    Attributes:
        what: what was checked, such as "may launch machines".
        problem: why it fails, with the fix; "" if it does not.
    """

    what: str
    problem: str = ""


class Provider(Protocol):
    """The operations of a cloud. Each may be repeated after a failure, also by another process.

    See docs/extend/providers.md.

    Example:
        async def offers() -> list[sky.providers.Offer]:
            provider = sky.Local().create_provider()
            return [offer async for offer in provider.offers()]
    """

    def offers(self) -> AsyncIterator[Offer]:
        """Return all offers, unfiltered."""

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Set up the resources that the machines of one pool share.

        Raises:
            SkywardError: it failed, and nothing is left. After any other error, resources may be left.
        """

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Launch machines. May return fewer than `count`, and machines that are not running yet.

        Raises:
            NoCapacityError, QuotaError, RateLimitError, CredentialsError: nothing was launched.
            SkywardError: nothing was launched. After any other error, machines may have been launched.
        """

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a machine; None if it does not exist. Called until it is "running"."""

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the existing machines of a pool, by their tags. They may include machines of failed requests."""

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Terminate machines. Idempotent."""

    async def teardown(self, cluster: Cluster) -> None:
        """Remove the resources that `prepare` set up."""


@runtime_checkable
class SweepableProvider(Protocol):
    """A provider that lists and removes what Skyward left in an account, without a record of it."""

    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return all resources with the tag "skyward-owner" of `owner`, in every region that the settings allow."""

    async def remove(self, leftover: Leftover) -> None:
        """Remove a resource. Idempotent."""


@runtime_checkable
class ImageBuildingProvider(Protocol):
    """A provider that can make an image of a machine, and launch machines from it: see `Cluster.machine_image`.

    A machine that is launched from an image gets host keys and authorized keys of its own, as any other.
    """

    async def image_scope(self, spec: Spec, offer: Offer) -> str:
        """Return what decides, beside the environment in it, which images fit machines of an offer.

        That is the account (or project, or engine), the region if images are regional, the architecture, the ordinary
        image that they are made from, and the login user. Two machines with the same text can use the same images.
        """

    async def make_image(self, cluster: Cluster, instance_id: str, name: str) -> ProviderImage:
        """Make an image of a machine, wait until machines can be launched from it, and return it.

        The image has the tags of the cluster from the call that creates it. The machine may be stopped, and is
        terminated afterwards.

        Args:
            cluster: the cluster of the machine.
            instance_id: the machine.
            name: name to show for the image: unique, up to 60 lower-case letters, digits and "-".

        Raises:
            SkywardError: it failed. After any error, an image may have been made, which `find_images` returns.
        """

    async def find_images(self, cluster: Cluster) -> Sequence[ProviderImage]:
        """Return the images of a pool's machines, by their tags, unfinished ones too."""

    async def image_exists(self, image: ProviderImage) -> bool:
        """Return whether machines can be launched from an image."""

    async def delete_image(self, image: ProviderImage) -> None:
        """Delete an image with all that is stored for it, finished or not, and wait until it is gone. Idempotent.

        Raises:
            SkywardError: it may still exist.
        """


@runtime_checkable
class NativeVolumeProvider(Protocol):
    """A provider that attaches volumes of its own to machines, in the call that creates them.

    The volumes of a spec without a `storage` are meant, if its settings have a true property `native_volumes`. They
    belong to the user: a provider neither makes nor deletes them.
    """

    async def attach(self, cluster: Cluster, volumes: Sequence[Volume]) -> Cluster:
        """Return the cluster, whose machines will have these volumes at their mounts. Called once after `prepare`.

        Raises:
            SpecError: a volume does not exist, or cannot be attached as it is asked for.
            NoCapacityError: no machine of the offer can have them.
        """


@runtime_checkable
class CheckableProvider(Protocol):
    """A provider that can check its credentials and their permissions."""

    async def check(self) -> Sequence[Check]:
        """Check the credentials, and what they may do. Creates nothing."""


@runtime_checkable
class ConfigWithCredentials(Protocol):
    """The settings of a provider that needs credentials. Without a named provider, those that have them are asked."""

    def credentials(self) -> CredentialSource:
        """Look for the credentials in their usual places, without a request."""

    @property
    def policy(self) -> str:
        """The least permissions that the provider needs, ready to paste; "" if it knows none."""


@runtime_checkable
class ProviderConfig(Protocol):
    """The settings of a provider: a frozen value.

    A provider that does not act on all of `PROVIDER_FIELDS` declares the supported ones with a property `acts_on` that
    returns an `ActsOn`. The pool warns about every other field that the spec sets. Other optional properties:

    - `shares_files`: True if machines have the files of the client;
    - `isolated_nodes`: True if machines do not reach each other, so that nodes form no cluster;
    - `offers_ttl`: seconds for which listed offers count as current, a day if it is missing. They are stored meanwhile;
      with 0 they are listed whenever they are needed;
    - `boot_timeout`: seconds that a launched machine may take to run, 300 if it is missing;
    - `only_by_name`: True if it is not used unless it is named, although it has credentials;
    - `native_volumes`: True if its volumes are those without a `storage`, and its provider a `NativeVolumeProvider`.
    """

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""

    def create_provider(self) -> Provider:
        """Create the provider. Loads the cloud's SDK."""


SKYWARD_FIELDS: Final = frozenset({
    "provider", "nodes", "allocation", "max_hourly_cost", "resources", "capabilities", "idle_timeout", "image.env",
    "plugins", "volumes",
})  # fmt: skip  # one name a line says no more
"""Fields of `Spec`, and of its `Image`, that Skyward acts on with any provider."""

SETUP_FIELDS: Final = frozenset({
    "image.python", "image.pip", "image.pip_indexes", "image.apt", "image.shell_vars", "image.includes",
    "image.excludes", "image.skyward_source", "image.bootstrap_timeout",
})  # fmt: skip  # as above
"""Fields that act on machines whose environment Skyward sets up: those whose access names no interpreter."""

PROVIDER_FIELDS: Final = SETUP_FIELDS | {
    "accelerator", "vcpus", "memory_gb", "disk_gb", "architecture", "region", "ttl", "warm",
}  # fmt: skip  # as above
"""Fields that depend on the provider."""

UNSUPPORTED_FIELDS: Final = frozenset({"image.metrics"})
"""Fields that have no effect yet. Every field of `Spec` and `Image` is in exactly one of the sets; a test checks it."""


@dataclass(frozen=True, slots=True)
class ActsOn:
    """The fields that a provider acts on.

    Attributes:
        fields: the supported fields of `PROVIDER_FIELDS`.
        otherwise: the reason why the others have no effect, as the first half of a sentence.
        knows_hardware: True if its offers state the accelerators of machines. These are then shown in place of the
            spec's, if the spec's have no effect.
        lacks: by supported field, what no machine of the provider has, with an alternative, as a sentence without its
            full stop. It is said where the field excludes every offer.
    """

    fields: frozenset[str]
    otherwise: str
    knows_hardware: bool = False
    lacks: Mapping[str, str] = field(default_factory=dict)


def acts_on(config: ProviderConfig) -> ActsOn:
    """Return the fields that the provider of `config` acts on: all of `PROVIDER_FIELDS` if it declares nothing."""
    declared = getattr(config, "acts_on", None)
    return declared if isinstance(declared, ActsOn) else ActsOn(PROVIDER_FIELDS, f"Provider {config.name!r}")


def native_volumes(spec: Spec, config: ProviderConfig) -> tuple[Volume, ...]:
    """Return the volumes of a spec that the provider of `config` attaches itself."""
    if getattr(config, "native_volumes", False) is not True:
        return ()
    return tuple(volume for volume in spec.volumes if volume.storage is None)


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
    """Return the names of the installed providers."""
    return tuple(sorted(_entries()))


def check_provider_name(name: str) -> None:
    """Check that a provider of that name is installed. Loads nothing.

    Raises:
        ProviderMissingError: there is no such provider.
    """
    if name.lower() not in _entries():
        close = difflib.get_close_matches(name.lower(), _entries(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"installed are: {', '.join(provider_names()) or 'none'}."
        raise ProviderMissingError(f"There is no provider {name!r}; {hint}")


def find_provider(name: str) -> type[Any]:
    """Return the settings class of the provider called `name`, such as `sky.Local` for "local".

    Raises:
        ProviderMissingError: there is no such provider, or a package that it needs is not installed.
    """
    check_provider_name(name)
    entry = _entries()[name.lower()]
    try:
        found: type[Any] = entry.load()
    except ImportError as error:
        package = entry.dist.name if entry.dist is not None else "skyward-jupyter"
        source = f"skyward-jupyter[{name.lower()}]" if package == "skyward-jupyter" else package
        raise ProviderMissingError(
            f"Provider {name!r} needs a package that is not installed ({error.name or error}); "
            f"install it with `pip install '{source}'`"
        ) from error
    return found
