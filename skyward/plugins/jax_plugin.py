"""The plugin for JAX: its packages, and distributed systems for collectives."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from skyward.plugins.packages import NEWEST, check_version, has_own_packages, versioned, with_packages
from skyward.specs.plugin import Plugin, Requires
from skyward.values.validation import choice

if TYPE_CHECKING:
    from skyward.accelerators import Accelerator
    from skyward.specs.image import Image
    from skyward.specs.spec import Spec

__all__ = ["Jax", "JaxCuda"]

type JaxCuda = Literal["auto", "cuda12", "cuda13"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jax(Plugin):
    """Compute with JAX: the members of a broadcast are the processes of one distributed system.

    A task of `train() @ pool` finds `jax.distributed` initialized, and the devices of all nodes in `jax.devices()`. A
    task of `f() >> pool` has the devices of its node only, and waits for nobody. If a member is lost or fails, the
    others are stopped. The process of a member is replaced after its task.

    Members connect on the private network, without encryption or a password.

    Attributes:
        cuda: CUDA of the packages: "cuda12", "cuda13", or "auto" for the one that fits the spec's accelerator; None for
            JAX without any. Without effect on local nodes.
        version: version of JAX, such as "0.12.0" or ">=0.10", or "latest".
        procs_per_node: members on each node; one has all devices of its node, which is what JAX expects.
        restarts: how often a collective is run again after one of its members was lost.
        meeting_timeout: seconds that its members have to meet before they begin, once each has a process.

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> with sky.Compute(accelerator="A100:4", nodes=2, plugins=[sky.plugins.jax()]) as pool:
        ...     losses = train(steps=100) @ pool
    """

    name = "jax"
    excludes = frozenset({"accelerate", "torch"})
    on_node = "skyward.plugins.nodes.jax_node:JaxNode"

    cuda: JaxCuda | None = "auto"
    version: str = NEWEST
    procs_per_node: int | Literal["auto"] = 1
    restarts: int = 0
    meeting_timeout: float = 60.0

    def __post_init__(self) -> None:
        choice(self.cuda, "cuda", JaxCuda, optional=True)
        check_version(self.version, "version")
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
        """Return the environment with JAX, for the accelerators of the machine."""
        if not has_own_packages(spec):
            return image
        extra = _extra(spec.accelerator) if self.cuda == "auto" else self.cuda
        return with_packages(image, versioned(f"jax[{extra}]" if extra else "jax", self.version))


def _extra(accelerator: "Accelerator | None") -> str | None:
    """Return the extra of JAX for an accelerator; None for CPUs, and for one whose maker is unknown."""
    known = (accelerator.metadata if accelerator is not None else None) or {}
    if known.get("manufacturer") == "Google":
        return "tpu"
    if known.get("manufacturer") != "NVIDIA" and "cuda_min" not in known:
        return None
    newest = known.get("cuda_max", "")
    return "cuda12" if newest and int(newest.partition(".")[0]) <= 12 else "cuda13"
