"""The plugin for cuML, which runs scikit-learn, UMAP and HDBSCAN on GPUs without changes to the code."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from skyward.errors import SpecError
from skyward.plugins.packages import NEWEST, check_version, has_own_packages, versioned, with_packages
from skyward.specs.plugin import Plugin, Requires
from skyward.values.validation import choice

if TYPE_CHECKING:
    from skyward.specs.image import Image
    from skyward.specs.spec import Spec  # circular: a spec has plugins, whose methods take it

__all__ = ["Cuml"]

type CumlCuda = Literal["auto", "cu12", "cu13"]

_OLDER_THAN_VOLTA: Final = frozenset({"Kepler", "Pascal"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuml(Plugin):
    """Run scikit-learn, UMAP and HDBSCAN on the GPU of each node, by cuML's accelerator.

    It is switched on before anything is imported, and a node where that fails does not start. Estimators that cuML does
    not have run on the CPU, without a word. Processes that run for one call get slower, not faster.

    Attributes:
        cuda: major version of CUDA, "cu12" or "cu13"; "cu13" needs a driver of version 580 or newer. "auto" is "cu12",
            which newer drivers run too. Without effect on local nodes, which have the packages of this process.
        version: version of cuML, such as "26.10.0" or ">=26.8", or "latest".

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> with sky.Compute(accelerator="A100", plugins=[sky.plugins.cuml()]) as pool:
        ...     labels = cluster(points) >> pool
    """

    name = "cuml"
    on_node = "skyward.plugins.nodes.cuml_node:CumlOnNode"

    cuda: CumlCuda = "auto"
    version: str = NEWEST

    def __post_init__(self) -> None:
        choice(self.cuda, "cuda", CumlCuda)
        check_version(self.version, "version")

    def requires(self) -> Requires:
        """Require an accelerator."""
        return Requires(accelerator=True)

    def image(self, image: "Image", spec: "Spec") -> "Image":
        """Return the environment with cuML and scikit-learn.

        Raises:
            SpecError: cuML does not run on the accelerator.
        """
        package = f"cuml-{self._cuda(spec)}"
        if not has_own_packages(spec):
            return image
        return with_packages(image, versioned(package, self.version), "scikit-learn")

    def _cuda(self, spec: "Spec") -> str:
        """Return the name of the version of CUDA, "cu12" or "cu13"."""
        accelerator = spec.accelerator
        known = {} if accelerator is None or accelerator.metadata is None else accelerator.metadata
        last = known.get("cuda_max", "")
        if known.get("manufacturer", "NVIDIA") != "NVIDIA" or known.get("architecture") in _OLDER_THAN_VOLTA:
            raise SpecError(
                f"Plugin 'cuml' needs an NVIDIA GPU from Volta on, but accelerator is {accelerator}: take another "
                "one, such as `accelerator='A100'`, or leave the plugin out."
            )
        if self.cuda == "cu13" and re.match(r"1[0-2]\.", last):
            raise SpecError(
                f"Plugin 'cuml' has cuda='cu13', but the last version for {accelerator} is CUDA {last}: use "
                "`cuda='cu12'`."
            )
        return "cu12" if self.cuda == "auto" else self.cuda
