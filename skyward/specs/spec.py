"""Requirements on the machines of a pool."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from skyward.accelerators import Accelerator, parse_accelerator
from skyward.errors import SpecError
from skyward.specs.image import Image
from skyward.specs.nodes import Nodes, NodesLike
from skyward.specs.plugin import Plugin
from skyward.specs.plugin_order import ordered
from skyward.specs.volume import Volume, check_mounts
from skyward.values import limits
from skyward.values.needs import capability_set, resource_map
from skyward.values.validation import FrozenMap, Value, choice, listed, number, of_type, seconds, shown

__all__ = ["Allocation", "Architecture", "Spec", "SpecFields"]

type Allocation = Literal["spot-if-available", "spot", "on-demand", "cheapest"]
type Architecture = Literal["x86_64", "arm64"]

_NO_GPUS = frozenset({"Gaudi", "Inferentia", "TPU", "Trainium"})
"""Architectures of the catalogue that are not GPUs; tasks request them by these names."""


class SpecFields(TypedDict, total=False):
    """The fields of `Spec`, as keywords."""

    provider: object | None
    accelerator: Accelerator | str | None
    nodes: NodesLike
    vcpus: float | None
    memory_gb: float | None
    disk_gb: float | None
    architecture: Architecture | None
    allocation: Allocation
    image: Image
    region: str | None
    max_hourly_cost: float | None
    ttl: float
    volumes: Iterable[Volume]
    plugins: Iterable[Plugin]
    resources: Mapping[str, float]
    capabilities: Iterable[str]
    idle_timeout: float | None
    warm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec(Value):
    """Machines of a pool, and their provider.

    Attributes:
        provider: settings of a provider, such as `sky.Local()`; None for local nodes.
        accelerator: accelerators of each node; a string such as "A100:4" is parsed.
        nodes: number of nodes.
        vcpus: virtual CPUs of a node.
        memory_gb: memory of a node, GiB.
        disk_gb: disk of a node, GiB.
        architecture: architecture of the CPUs.
        allocation: spot or on-demand machines.
        image: environment of a node.
        region: region, by the provider's own name.
        max_hourly_cost: maximum price of one node, USD per hour.
        ttl: lease in seconds: how long a node outlives its client.
        volumes: buckets, or parts of them, on every node.
        plugins: plugins that extend the environment and wrap the tasks, such as `sky.plugins.torch()`.
        resources: resources of each node that tasks can request, in addition to those derived; 0 hides a derived one.
        capabilities: capabilities of each node that tasks can request, in addition to those derived.
        idle_timeout: seconds without a task before a node may be removed; None for `autoscale_idle_timeout`.
        warm: seconds for which rented machines are kept after the pool, for the next pool with the same needs; they
            cost money meanwhile. 0 for none.

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> sky.Compute(sky.Spec(provider=sky.SSH(hosts=["gpu1"]), accelerator="A100:4", nodes=2))
    """

    provider: object | None = None
    accelerator: Accelerator | None = None
    nodes: Nodes = field(default_factory=lambda: Nodes(1))
    vcpus: float | None = None
    memory_gb: float | None = None
    disk_gb: float | None = None
    architecture: Architecture | None = None
    allocation: Allocation = "spot-if-available"
    image: Image = field(default_factory=Image)
    region: str | None = None
    max_hourly_cost: float | None = None
    ttl: float = 600
    volumes: tuple[Volume, ...] = ()
    plugins: tuple[Plugin, ...] = ()
    resources: Mapping[str, float] = field(default_factory=FrozenMap)
    capabilities: frozenset[str] = frozenset()
    idle_timeout: float | None = None
    warm: float = 0

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[SpecFields]) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.provider, type):
            name = self.provider.__name__
            raise SpecError(f"provider must be the settings of a provider, but got the class: write `{name}()`.")
        if not (self.provider is None or isinstance(self.provider, str) or hasattr(self.provider, "create_provider")):
            raise SpecError(f"{shown(self.provider)} is not a provider; use one such as `sky.Local()`, or its name.")
        accelerator: object = self.accelerator
        if isinstance(accelerator, str):
            self._set(accelerator=parse_accelerator(accelerator))
        elif accelerator is not None:
            if callable(accelerator):
                name = getattr(accelerator, "__name__", None) or repr(accelerator)
                raise SpecError(f"accelerator must be an accelerator: call it, `{name}()`.")
            of_type(accelerator, "accelerator", Accelerator, "accelerator=sky.accelerators.A100()")
        number(self.vcpus, "vcpus", optional=True, most=limits.VCPUS)
        number(self.memory_gb, "memory_gb", optional=True, most=limits.GIB)
        number(self.disk_gb, "disk_gb", optional=True, most=limits.GIB)
        number(self.max_hourly_cost, "max_hourly_cost", optional=True, most=limits.USD)
        choice(self.architecture, "architecture", Architecture, optional=True)
        choice(self.allocation, "allocation", Allocation)
        of_type(self.image, "image", Image, "image=sky.Image(pip=['numpy'])")
        if self.region is not None:
            of_type(self.region, "region", str, "region='us-east-1'")
        seconds(self.ttl, "ttl", zero=True)
        seconds(self.idle_timeout, "idle_timeout", zero=True, optional=True)
        number(self.warm, "warm", zero=True, most=limits.WARM)
        self._set(
            nodes=Nodes.of(self.nodes),
            volumes=listed(self.volumes, "volumes", "sky.Volume('bucket', '/data')", (Volume, str)),
            plugins=ordered(listed(self.plugins, "plugins", "sky.plugins.torch()")),
            resources=resource_map(self.resources, zeros=True),
            capabilities=capability_set(self.capabilities),
        )
        for volume in self.volumes:
            if isinstance(volume, str):
                raise SpecError(
                    f"volumes takes values of sky.Volume, and text only in skyward.toml and --volume: write "
                    f"volumes=[sky.Volume.parse({volume!r})]."
                )
            of_type(volume, "volumes", Volume, "volumes=[sky.Volume('bucket', '/data')]")
        check_mounts(self.volumes)
        self._set(volumes=tuple(sorted(self.volumes, key=lambda volume: volume.mount)))  # their order means nothing

    @property
    def node_resources(self) -> Mapping[str, float]:
        """Resources of each node: `resources`, and "CPU", "memory" (GiB) and accelerators from the other fields.

        Accelerators count as "GPU" and by their name; those that are not GPUs by their kind, such as "TPU".
        """
        derived: dict[str, float] = {}
        if self.vcpus is not None:
            derived["CPU"] = self.vcpus
        if self.memory_gb is not None:
            derived["memory"] = self.memory_gb
        if self.accelerator is not None:
            derived |= dict.fromkeys(_kind_and_name(self.accelerator), self.accelerator.count)
        return resource_map({**derived, **self.resources})

    @property
    def node_capabilities(self) -> frozenset[str]:
        """Capabilities of each node: `capabilities`, and kind and name of accelerators, such as "gpu" and "a100"."""
        derived = () if self.accelerator is None else _kind_and_name(self.accelerator)
        return self.capabilities | capability_set(derived)


def _kind_and_name(accelerator: Accelerator) -> tuple[str, str]:
    """Return the names by which tasks request an accelerator: its kind and its own name."""
    architecture = accelerator.metadata.get("architecture") if accelerator.metadata else None
    return architecture if architecture in _NO_GPUS else "GPU", accelerator.name
