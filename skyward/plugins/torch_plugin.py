"""The plugin for PyTorch: its packages, and process groups for collectives."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from skyward.errors import SpecError
from skyward.plugins.packages import NEWEST, check_version, has_own_packages, versioned, with_packages
from skyward.specs.plugin import Plugin, Requires
from skyward.values.validation import FrozenMap, choice, seconds, shown

if TYPE_CHECKING:
    from skyward.specs.image import Image
    from skyward.specs.spec import Spec

__all__ = ["Torch", "TorchBackend"]

type TorchBackend = Literal["gloo", "nccl"]

_BUILD: Final = re.compile(r"auto|cpu|xpu|cu[0-9]{2,3}|rocm[0-9]+(\.[0-9]+){1,2}")
_SELECTS: Final = "UV_TORCH_BACKEND"
"""Variable by which uv selects PyTorch's builds, which it knows the indexes of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch(Plugin):
    """Train with PyTorch: the members of a broadcast are one process group.

    A task of `train() @ pool` finds `torch.distributed` initialized, the variables that `torchrun` sets, and its GPU
    selected. A task of `f() >> pool` has no group, and waits for nobody. If a member is lost or fails, the others are
    stopped.

    Members connect on the private network, without encryption or a password. gloo and the object collectives unpickle
    what they receive: use them only where every machine of that network is trusted.

    Attributes:
        backend: "nccl", "gloo", or None for NCCL on nodes with a GPU, and gloo on others.
        cuda: build of PyTorch: "auto" for the one that fits the driver of each machine, "cpu", "cu130", "rocm7.1" and
            the like; None for that of the configured package index. Without effect on local nodes.
        version: version of PyTorch, such as "2.13.0" or ">=2.10", or "latest".
        vision: version of torchvision; None to leave it out.
        audio: version of torchaudio; None to leave it out.
        procs_per_node: members on each node; "auto" for one per accelerator, and one without any.
        restarts: how often a collective is run again after one of its members was lost.
        meeting_timeout: seconds that its members have to meet before they begin, once each has a process.
        timeout: seconds that a collective operation may take; None for PyTorch's default.

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> with sky.Compute(accelerator="A100:4", nodes=2, plugins=[sky.plugins.torch()]) as pool:
        ...     losses = train(epochs=3) @ pool
    """

    name = "torch"
    excludes = frozenset({"jax"})
    on_node = "skyward.plugins.nodes.torch_node:TorchNode"

    backend: TorchBackend | None = None
    cuda: str | None = "auto"
    version: str = NEWEST
    vision: str | None = None
    audio: str | None = None
    procs_per_node: int | Literal["auto"] = "auto"
    restarts: int = 0
    meeting_timeout: float = 60.0
    timeout: float | None = None

    def __post_init__(self) -> None:
        choice(self.backend, "backend", TorchBackend, optional=True)
        if self.cuda is not None and not (isinstance(self.cuda, str) and _BUILD.fullmatch(self.cuda)):
            raise SpecError(
                "cuda must be a build of PyTorch, such as 'cu130', 'rocm7.1' or 'cpu', 'auto', or None for that of the "
                f"package index, but got {shown(self.cuda)}."
            )
        check_version(self.version, "version")
        check_version(self.vision, "vision", optional=True)
        check_version(self.audio, "audio", optional=True)
        seconds(self.timeout, "timeout", optional=True)
        self.requires()

    def requires(self) -> Requires:
        """Require a process for each task, and that a broadcast is one collective."""
        return Requires(
            executor="process",
            together=True,
            same_devices=self.backend is None,
            procs_per_node=self.procs_per_node,
            restarts=self.restarts,
            meeting_timeout=self.meeting_timeout,
        )

    def image(self, image: "Image", spec: "Spec") -> "Image":
        """Return the environment with PyTorch, in the build that fits the machine."""
        if not has_own_packages(spec):
            return image
        extras = {"torchvision": self.vision, "torchaudio": self.audio}
        wanted = [versioned(name, version) for name, version in extras.items() if version is not None]
        changed = with_packages(image, versioned("torch", self.version), *wanted)
        if self.cuda is None or _SELECTS in image.env:
            return changed
        return replace(changed, env={**changed.env, _SELECTS: self.cuda})

    def settings(self) -> Mapping[str, Any]:
        """Return the settings of process groups."""
        return FrozenMap({"backend": self.backend, "timeout": self.timeout})
