"""The plugin for Keras, on JAX, PyTorch or TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from skyward.errors import SpecError
from skyward.plugins.packages import NEWEST, check_version, has_own_packages, versioned, with_packages
from skyward.specs.plugin import Plugin
from skyward.values.validation import FrozenMap, choice

if TYPE_CHECKING:
    from skyward.specs.image import Image
    from skyward.specs.spec import Spec

__all__ = ["Keras", "KerasBackend"]

type KerasBackend = Literal["jax", "tensorflow", "torch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keras(Plugin):
    """Train with Keras.

    With the plugin `jax`, the members of a broadcast train one model: it is replicated on the devices of all nodes, and
    each member gives `fit` batches of its own. They begin with the same random numbers.

    Attributes:
        backend: backend of Keras, which another plugin or the image's `pip` must bring.
        version: version of Keras, such as "3.15.1" or ">=3.10", or "latest".

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> with sky.Compute(nodes=2, plugins=[sky.plugins.jax(), sky.plugins.keras()]) as pool:
        ...     losses = fit(epochs=3) @ pool
    """

    name = "keras"
    after = frozenset({"accelerate", "jax", "torch"})
    on_node = "skyward.plugins.nodes.keras_node:KerasNode"

    backend: KerasBackend = "jax"
    version: str = NEWEST

    def __post_init__(self) -> None:
        choice(self.backend, "backend", KerasBackend)
        check_version(self.version, "version")

    def image(self, image: "Image", spec: "Spec") -> "Image":
        """Return the environment with Keras.

        Raises:
            SpecError: neither a plugin nor the image brings the backend.
        """
        if not has_own_packages(spec):
            return image
        if not any(self.backend in each.lower() for each in (*image.pip, *(plugin.name for plugin in spec.plugins))):
            with_plugin = f"the plugin {self.backend!r}, or " if self.backend != "tensorflow" else ""
            raise SpecError(
                f"Plugin 'keras' has the backend {self.backend!r}, which nodes would not have: add {with_plugin}"
                f"`image=sky.Image(pip=[{self.backend!r}])`, or choose another backend."
            )
        return with_packages(image, versioned("keras", self.version))

    def settings(self) -> Mapping[str, Any]:
        """Return the backend."""
        return FrozenMap({"backend": self.backend})
