"""The plugin for Accelerate, which the Trainer of Transformers uses too."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from skyward.plugins.accelerate_config import frozen_config, variables_of
from skyward.plugins.packages import NEWEST, check_version, has_own_packages, versioned, with_packages
from skyward.plugins.torch_plugin import Torch
from skyward.specs.plugin import Plugin, Requires
from skyward.values.validation import FrozenMap

if TYPE_CHECKING:
    from skyward.specs.image import Image
    from skyward.specs.spec import Spec

__all__ = ["Accelerate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerate(Plugin):
    """Train with Accelerate, or with the Trainer of Transformers: the members of a broadcast are one process group.

    A task of `train() @ pool` makes an `Accelerator()`, or a `Trainer`, which finds the group. A task of `f() >> pool`
    has none. The plugin `torch` beside it selects the version, the build and the backend of PyTorch; without it, they
    are its defaults.

    Attributes:
        config: settings like those of `accelerate config`: `mixed_precision`, `gradient_accumulation_steps`, `use_cpu`,
            `debug`, `cpu_affinity`, and tables `dynamo`, `fsdp`, `deepspeed` and `parallelism`, with the names that
            Accelerate has, without their prefixes.
        version: version of Accelerate, such as "1.15.0" or ">=1.10", or "latest".
        procs_per_node: members on each node; "auto" for one per accelerator, and one without any.
        restarts: how often a collective is run again after one of its members was lost.
        meeting_timeout: seconds that its members have to meet before they begin, once each has a process.

    Raises:
        SpecError: a field has a value that is not allowed, or a key is unknown.

    Example:
        >>> sharded = {"mixed_precision": "bf16", "fsdp": {"version": 2, "reshard_after_forward": True}}
        >>> with sky.Compute(accelerator="A100:4", plugins=[sky.plugins.accelerate(config=sharded)]) as pool:
        ...     losses = train(epochs=3) @ pool
    """

    name = "accelerate"
    after = frozenset({"torch"})
    excludes = frozenset({"jax"})
    on_node = "skyward.plugins.nodes.accelerate_node:AccelerateNode"

    config: Mapping[str, Any] = field(default_factory=FrozenMap)
    version: str = NEWEST
    procs_per_node: int | Literal["auto"] = "auto"
    restarts: int = 0
    meeting_timeout: float = 60.0

    def __post_init__(self) -> None:
        check_version(self.version, "version")
        self._set(config=frozen_config(self.config))
        variables_of(self.config)
        self.requires()

    def requires(self) -> Requires:
        """Require a process for each task, and that a broadcast is one collective."""
        return Requires(
            executor="process",
            together=True,
            same_devices=True,
            procs_per_node=self.procs_per_node,
            restarts=self.restarts,
            meeting_timeout=self.meeting_timeout,
        )

    def image(self, image: "Image", spec: "Spec") -> "Image":
        """Return the environment with Accelerate, what its configuration needs, and PyTorch."""
        if not has_own_packages(spec):
            return image
        if not any(plugin.name == Torch.name for plugin in spec.plugins):
            image = Torch().image(image, spec)
        needed = ["deepspeed"] if "deepspeed" in self.config else []
        return with_packages(image, versioned("accelerate", self.version), *needed)

    def settings(self) -> Mapping[str, Any]:
        """Return the variables that Accelerate reads."""
        return FrozenMap({"variables": dict(variables_of(self.config))})
