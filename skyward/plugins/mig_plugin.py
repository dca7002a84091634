"""The plugin for MIG: each process of a node has a slice of a GPU of its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from skyward import accelerators
from skyward.errors import SpecError
from skyward.specs.plugin import Plugin, PluginStep, Requires
from skyward.values.validation import of_type, shown

if TYPE_CHECKING:
    from skyward.accelerators import Accelerator
    from skyward.specs.nodes import Worker
    from skyward.specs.spec import Spec  # circular: a spec has plugins, whose methods take it

__all__ = ["Mig"]

_PROFILE = re.compile(r"([1-9]g\.[1-9][0-9]{0,2}gb)([+-][a-z.]+)?")

_SEVENTHS: Final = (7, 4, 3, 2, 1, 1)
"""Most instances of each profile of a GPU with seven slices, in the order of their names in `_PROFILES`."""

_PROFILES: Final[Mapping[tuple[str, str], Mapping[str, int]]] = {
    **{
        model: dict(zip(names.split(), _SEVENTHS, strict=True))
        for model, names in {
            ("A100", "40GB"): "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
            ("A100", "80GB"): "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
            ("A800", "80GB"): "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
            ("H100", "80GB"): "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
            ("H100", "94GB"): "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
            ("GH200", "96GB"): "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
            ("H200", "141GB"): "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
            ("B200", "180GB"): "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
        }.items()
    },
    ("RTX_PRO_6000", "96GB"): {"1g.24gb": 4, "2g.48gb": 2, "4g.96gb": 1},
}
"""Most instances of each profile, by name and memory of the model; those with extensions are like those without."""

_MODELS: Final = frozenset(name for name, _ in _PROFILES)

_NOT_LISTED: Final = frozenset({"B100", "GB200", "RTX_PRO_4500"})
"""Models that have MIG, of which the profiles are not known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig(Plugin):
    """Divide the GPUs of a node into MIG instances of one profile, and give the n-th to the n-th process.

    The set-up of a machine enables MIG on as many of its GPUs as `accelerator` counts, and creates as many instances
    as fit next to those that exist. Nothing is ever destroyed: they may belong to a pool that runs. On a machine that
    outlives the pool they stay until it is restarted, or until `nvidia-smi mig -dci` and `nvidia-smi mig -dgi`; a warm
    machine is taken over by pools with the same profile only.
    It needs root, or sudo without a password, where something is missing. Containers rarely allow it.

    Attributes:
        profile: name of the profile, such as "1g.10gb"; `nvidia-smi mig -lgip` lists them.

    Raises:
        SpecError: `profile` is not the name of a profile.

    Example:
        >>> worker = sky.Worker(concurrency=7)
        >>> sky.Compute(accelerator="A100", worker=worker, plugins=[sky.plugins.mig(profile="1g.10gb")])
    """

    name = "mig"
    excludes = frozenset({"mps"})
    changes_machine = True
    on_node = "skyward.plugins.nodes.mig_node:MigOnNode"

    profile: str

    def __post_init__(self) -> None:
        of_type(self.profile, "profile", str, "profile='1g.10gb'")
        if not _PROFILE.fullmatch(self.profile):
            raise SpecError(f"profile must be the name of a MIG profile, such as '1g.10gb', but got {self.profile!r}.")

    def requires(self) -> Requires:
        """Require an accelerator, and processes: each sees one device, from its start on."""
        return Requires(executor="process", accelerator=True)

    def check(self, spec: "Spec", worker: "Worker") -> None:
        """Check the profile, and that there is an instance for each process, as far as the catalogue tells.

        Raises:
            SpecError: the accelerator has no MIG, other profiles, or too few instances.
        """
        accelerator = spec.accelerator
        if accelerator is None or (each := self._most(accelerator)) is None:
            return
        most = each * ceil(accelerator.count)
        if worker.concurrency > most:
            raise SpecError(
                f"{accelerator} has at most {most} MIG instances of profile {self.profile!r}, but `worker=` has "
                f"concurrency={worker.concurrency}: lower it, or use a smaller profile."
            )

    def steps(self, spec: "Spec") -> tuple[PluginStep, ...]:
        """Return the step that makes the instances which are missing."""
        count = 1 if spec.accelerator is None else ceil(spec.accelerator.count)
        return (PluginStep("mig", f"profile='{self.profile}'\ncount={count}\n{_commands()}"),)

    def settings(self) -> Mapping[str, Any]:
        """Return the profile."""
        return {"profile": self.profile}

    def _most(self, accelerator: "Accelerator") -> int | None:
        """Return how many instances one GPU can have; None if the catalogue does not tell.

        Raises:
            SpecError: the accelerator has no MIG, or has other profiles.
        """
        name = accelerator.name
        if name in accelerators.names() and name not in _MODELS | _NOT_LISTED:
            raise SpecError(
                f"Plugin 'mig' needs a GPU with MIG, such as {', '.join(sorted(_MODELS))}, but accelerator is "
                f"{accelerator}: take another one, or leave the plugin out."
            )
        profiles = _PROFILES.get((name, accelerator.memory))
        found = _PROFILE.fullmatch(self.profile)
        if profiles is None or found is None:
            return None
        if found[1] not in profiles:
            raise SpecError(
                f"Plugin 'mig' has profile={shown(self.profile)}, but the profiles of {accelerator.with_count(1)} are "
                f"{', '.join(profiles)}: use one of them."
            )
        return 1 if found[2] in ("+me", "+me.all") else profiles[found[1]]


@cache
def _commands() -> str:
    return files("skyward.plugins").joinpath("mig.sh").read_text(encoding="utf-8")
