"""What the nodes of a pool are like."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from skyward.accelerators import Accelerator, parse_accelerator
from skyward.errors import SpecError
from skyward.specs.image import Image, Volume
from skyward.specs.nodes import Nodes, NodesLike
from skyward.values import Value, choice, number, of_type

__all__ = ["Allocation", "Architecture", "Spec", "SpecFields"]

type Allocation = Literal["spot-if-available", "spot", "on-demand", "cheapest"]
type Architecture = Literal["x86_64", "arm64"]


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
    plugins: Iterable[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec(Value):
    """Which machines a pool is made of, and where they come from.

    Attributes:
        provider: settings of a provider, such as `sky.Local()`; None for local nodes.
        accelerator: accelerators of each node; a text such as "A100:4" is read as one.
        nodes: how many nodes.
        vcpus: virtual CPUs of a node.
        memory_gb: memory of a node, GB.
        disk_gb: disk of a node, GB.
        architecture: of the CPUs.
        allocation: spot or on-demand machines.
        image: environment of a node.
        region: where, in the provider's own names.
        max_hourly_cost: the most that one node may cost, USD per hour.
        ttl: seconds that a node outlives its client.
        volumes: buckets to mount.
        plugins: what to add to the environment and around the tasks.

    Raises:
        SpecError: a field has a value that is not allowed.
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
    plugins: tuple[object, ...] = ()

    if TYPE_CHECKING:

        def __init__(self, **fields: Unpack[SpecFields]) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.provider, type):
            name = self.provider.__name__
            raise SpecError(f"provider must be the settings of a provider, and got the class: write `{name}()`.")
        accelerator: object = self.accelerator
        if isinstance(accelerator, str):
            self._set(accelerator=parse_accelerator(accelerator))
        elif accelerator is not None:
            if callable(accelerator):
                name = getattr(accelerator, "__name__", None) or repr(accelerator)
                raise SpecError(f"accelerator must be an accelerator: call it, `{name}()`.")
            of_type(accelerator, "accelerator", Accelerator, "accelerator=sky.accelerators.A100()")
        for name in ("vcpus", "memory_gb", "disk_gb", "max_hourly_cost"):
            number(getattr(self, name), name, optional=True)
        choice(self.architecture, "architecture", Architecture, optional=True)
        choice(self.allocation, "allocation", Allocation)
        of_type(self.image, "image", Image, "image=sky.Image(pip=['numpy'])")
        if self.region is not None:
            of_type(self.region, "region", str, "region='us-east-1'")
        number(self.ttl, "ttl", zero=True)
        self._set(
            nodes=Nodes.of(self.nodes),
            volumes=_listed(self.volumes, "volumes", "sky.Volume('bucket', '/data')"),
            plugins=_listed(self.plugins, "plugins", "sky.plugins.torch()"),
        )
        for volume in self.volumes:
            of_type(volume, "volumes", Volume, "volumes=[sky.Volume('bucket', '/data')]")
        mounts = [volume.mount for volume in self.volumes]
        for mount in mounts:
            if mounts.count(mount) > 1:
                raise SpecError(f"volumes mount two buckets at {mount!r}: give each a mount of its own.")


def _listed(value: object, name: str, example: str) -> tuple[object, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise SpecError(f"{name} must be a list, as in `{name}=[{example}]`, but got {value!r}.")
    return tuple(value)
