"""Plugins of the tests."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from skyward.specs import Image, Spec
from skyward.specs.plugin import Plugin, PluginStep, Requires
from skyward.values.validation import Secret

__all__ = ["Early", "Late", "Lonely", "Tokens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens(Plugin):
    """A plugin that uses every part of the protocol for values."""

    name = "tokens"
    requirement = "skyward-tokens"

    version: str = "1"
    token: str | None = None

    def image(self, image: Image, spec: Spec) -> Image:
        """Add a package and a variable."""
        package = f"tokens=={self.version}"
        pip = image.pip if package in image.pip else (*image.pip, package)
        return replace(image, pip=pip, env={**image.env, "TOKENS_VERSION": self.version})

    def steps(self, spec: Spec) -> tuple[PluginStep, ...]:
        """Make a folder."""
        return (PluginStep("tokens", 'mkdir -p "$HOME/tokens"'),)

    def settings(self) -> Mapping[str, Any]:
        """Send the token."""
        return {"token": Secret(self.token or "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Early(Plugin):
    """A plugin that others come after."""

    name = "early"
    value: str = "early"

    def image(self, image: Image, spec: Spec) -> Image:
        """Set a variable."""
        return replace(image, env={**image.env, "SHARED": self.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Late(Plugin):
    """A plugin that comes after `Early`, and needs processes."""

    name = "late"
    after = frozenset({"early"})
    value: str = "early"

    def requires(self) -> Requires:
        """Require processes."""
        return Requires(executor="process")

    def image(self, image: Image, spec: Spec) -> Image:
        """Set the same variable."""
        return replace(image, env={**image.env, "SHARED": self.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lonely(Plugin):
    """A plugin that excludes `Early`, and needs an accelerator."""

    name = "lonely"
    excludes = frozenset({"early"})

    def requires(self) -> Requires:
        """Require an accelerator."""
        return Requires(accelerator=True)
