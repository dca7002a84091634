"""The plugin for cuML, which runs scikit-learn, UMAP and HDBSCAN on GPUs without changes to the code."""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from skyward.errors import SpecError
from skyward.specs.plugin import Plugin, Requires
from skyward.values.validation import choice, of_type

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
            which newer drivers run too.
        version: version of cuML, such as "26.10.0" or ">=26.8"; None for the newest.

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> with sky.Compute(accelerator="A100", plugins=[sky.plugins.cuml()]) as pool:
        ...     labels = cluster(points) >> pool
    """

    name = "cuml"
    on_node = "skyward.plugins.nodes.cuml_node:CumlOnNode"

    cuda: CumlCuda = "auto"
    version: str | None = None

    def __post_init__(self) -> None:
        choice(self.cuda, "cuda", CumlCuda)
        if self.version is not None:
            of_type(self.version, "version", str, "version='26.10.0'")

    def requires(self) -> Requires:
        """Require an accelerator."""
        return Requires(accelerator=True)

    def image(self, image: "Image", spec: "Spec") -> "Image":
        """Return the environment with cuML and scikit-learn.

        Raises:
            SpecError: cuML does not run on the accelerator.
        """
        cuda = self._cuda(spec)
        wanted = (f"cuml-{cuda}{_specifier(self.version)}", "scikit-learn")
        return replace(image, pip=(*image.pip, *(each for each in wanted if each not in image.pip)))

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


def _specifier(version: str | None) -> str:
    """Return the end of a requirement: nothing, a version with its operator, or exactly a bare version."""
    if version is None:
        return ""
    return version if version[:1] in "<>=!~" else f"=={version}"
