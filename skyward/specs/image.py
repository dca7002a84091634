"""Environment of a node, set up before tasks run."""

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from skyward.errors import SpecError
from skyward.specs.variables import check_variables
from skyward.values.validation import (
    FrozenMap,
    Secret,
    Value,
    choice,
    listed,
    of_type,
    seconds,
    shown,
    strings,
    text_map,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Image", "PipIndex", "SkywardSource"]

type SkywardSource = Literal["auto", "local", "github", "pypi"]

DEFAULT_EXCLUDES = ("__pycache__", "*.pyc", "*.pyo", ".git", ".venv", "node_modules", "*.egg-info")

_PYTHON = re.compile(r"3\.([0-9]{1,3})(\.[0-9]{1,3})?")
_OLDEST_PYTHON = 12


@dataclass(frozen=True, slots=True)
class PipIndex(Value):
    """Package index in addition to PyPI, used for `packages` only.

    Attributes:
        url: address of the index.
        packages: names of the packages that come from it.

    Raises:
        SpecError: `url` is not an address, or `packages` is not a list of names.

    Example:
        >>> index = sky.PipIndex(url="https://wheels.example.com/simple", packages=("torch",))
        >>> sky.Compute(image=sky.Image(pip=["torch"], pip_indexes=[index]))
    """

    url: str
    packages: tuple[str, ...] = ()

    if TYPE_CHECKING:

        def __init__(self, url: str, packages: Iterable[str] = ()) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or "://" not in self.url:
            raise SpecError(
                f"PipIndex url must be an address, such as 'https://host/simple', but got {shown(self.url)}."
            )
        self._set(packages=strings(self.packages, "packages", "['torch']"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(Value):
    """Environment of a node. Equal images produce the same environment.

    Attributes:
        python: version of Python, or "auto" for the version of this process.
        pip: packages to install.
        pip_indexes: package indexes in addition to PyPI.
        apt: system packages to install.
        env: environment variables of the tasks. Values are never shown, and never stored in plain text.
        shell_vars: variables whose values are commands, run on the node; `pip` may use them as `${NAME}`.
        includes: local folders and `.py` files to send.
        excludes: patterns of files not to send, matched against each part of a path.
        skyward_source: source from which a node installs Skyward: "local", this copy, which is sent; "pypi", this
            version from the package index; "github", this version from the repository; or "auto", which is "pypi" if
            this copy was installed from an index, and "local" if it came from a wheel file, a folder or a checkout.
        metrics: metrics that a node measures: "default", a tuple of metrics, or None for none.
        bootstrap_timeout: seconds that the setup may take.

    Raises:
        SpecError: a field has a value that is not allowed.

    Example:
        >>> sky.Compute(image=sky.Image(pip=["scikit-learn>=1.5"], env={"OMP_NUM_THREADS": "1"}))
    """

    python: str = "auto"
    pip: tuple[str, ...] = ()
    pip_indexes: tuple[PipIndex, ...] = ()
    apt: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=FrozenMap)
    shell_vars: Mapping[str, str] = field(default_factory=FrozenMap)
    includes: tuple[str, ...] = ()
    excludes: tuple[str, ...] = DEFAULT_EXCLUDES
    skyward_source: SkywardSource = "auto"
    metrics: tuple[object, ...] | Literal["default"] | None = "default"
    bootstrap_timeout: float = 300.0

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            python: str = "auto",
            pip: Iterable[str] = (),
            pip_indexes: Iterable[PipIndex] = (),
            apt: Iterable[str] = (),
            env: Mapping[str, str] = ...,
            shell_vars: Mapping[str, str] = ...,
            includes: Iterable[str] = (),
            excludes: Iterable[str] = (),
            skyward_source: SkywardSource = "auto",
            metrics: Iterable[object] | Literal["default"] | None = "default",
            bootstrap_timeout: float = 300.0,
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_python(self.python)
        indexes = listed(self.pip_indexes, "pip_indexes", "sky.PipIndex('https://host/simple')", PipIndex)
        for index in indexes:
            of_type(index, "pip_indexes", PipIndex, "pip_indexes=[sky.PipIndex('https://host/simple')]")
        choice(self.skyward_source, "skyward_source", SkywardSource)
        seconds(self.bootstrap_timeout, "bootstrap_timeout")
        env = text_map(self.env, "env", "{'KERAS_BACKEND': 'jax'}")
        shell_vars = text_map(self.shell_vars, "shell_vars", "{'CUDA': 'nvidia-smi --version'}")
        check_variables(env, shell_vars)
        self._set(
            pip=strings(self.pip, "pip", "['numpy', 'torch']"),
            pip_indexes=indexes,
            apt=strings(self.apt, "apt", "['ffmpeg']"),
            env=FrozenMap({name: Secret(value) for name, value in env.items()}),
            shell_vars=shell_vars,
            includes=strings(self.includes, "includes", "['./my_module/']"),
            excludes=strings(self.excludes, "excludes", "['*.pyc']"),
            metrics=self.metrics if self.metrics in (None, "default") else listed(self.metrics, "metrics", "..."),
        )

    @property
    def resolved_python(self) -> str:
        """Requested version of Python, with "auto" resolved."""
        return f"{sys.version_info.major}.{sys.version_info.minor}" if self.python == "auto" else self.python

    def env_hash(self) -> str:
        """Return a digest of the environment: 12 hex digits, equal for images with the same environment."""
        return _digest(self._environment())

    def content_hash(self) -> str:
        """Return a digest of the environment and its version of Skyward: 12 hex digits."""
        from importlib.metadata import PackageNotFoundError, version  # slow to load, rarely used

        try:
            own_version = version("skyward-jupyter")
        except PackageNotFoundError:  # run from a checkout
            own_version = "local"
        return _digest({**self._environment(), "skyward": own_version})

    def _environment(self) -> dict[str, Any]:
        return {
            "python": self.resolved_python,
            "pip": self.pip,
            "pip_indexes": [(index.url, index.packages) for index in self.pip_indexes],
            "apt": self.apt,
            "env": dict(self.env),
            "shell_vars": dict(self.shell_vars),
            "includes": self.includes,
            "excludes": self.excludes,
            "skyward_source": self.skyward_source,
        }


def _digest(value: dict[str, Any]) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _check_python(version: object) -> None:
    if isinstance(version, str) and version == "auto":
        return
    found = _PYTHON.fullmatch(version) if isinstance(version, str) else None
    if found is None:
        raise SpecError(f"python must be a version, such as '3.13', or 'auto', but got {shown(version)}.")
    if int(found[1]) < _OLDEST_PYTHON:
        raise SpecError(
            f"python must be 3.{_OLDEST_PYTHON} or newer, which Skyward needs on a node, but got {version}."
        )
