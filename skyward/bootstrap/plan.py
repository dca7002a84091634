"""Everything that a node needs before its worker can start, as one frozen value."""

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from skyward.bootstrap.includes import Includes, collect
from skyward.bootstrap.source import PackageSource, find_source
from skyward.errors import SpecError
from skyward.specs.image import Image, PipIndex

__all__ = ["OnClient", "Plan", "PluginStep", "client_settings"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.:~=/-]*", re.IGNORECASE)
_DIRECTORY = re.compile(r"(/|~/)[^\x00-\x1f\"'\\$`]+")

_FORWARDED = frozenset({
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
})  # fmt: skip  # one name a line would be no clearer
_TAKEN = frozenset({
    "apt", "began", "begun", "candidate", "client", "clock", "digest", "elapsed", "env", "facts", "git", "image_hash",
    "lacking", "late", "layered", "left", "limit", "logs", "mark", "minor", "name", "names", "package", "plugins",
    "pyenv", "python", "root", "seconds", "skyward", "source", "state", "status", "timeout", "took", "tree", "uv",
    "value", "wheel", "wheel_name",
})  # fmt: skip  # as above
"""Variables of the script itself, which users cannot set."""

_OF_THIS_MACHINE = re.compile(
    r"UV_(PYTHON|PROJECT|WORKING|TOOL|CACHE|PROJECT_ENVIRONMENT|INTERNAL|RUN|ENV|CONFIG)(_.*)?"
)
"""Names of uv's settings that apply to this machine and its projects."""

_OF_ANY_MACHINE = frozenset({"UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS", "UV_PYTHON_DOWNLOADS_JSON_URL"})


@dataclass(frozen=True, slots=True)
class PluginStep:
    """A plugin's set-up of a machine: commands for `sh`, run at each bootstrap, so they must be idempotent."""

    name: str
    commands: str


@dataclass(frozen=True, slots=True)
class OnClient:
    """An environment on the client's own machine. Nothing of its system is changed.

    Attributes:
        python: the client's interpreter.
        layered: True if the environment also has the packages of that interpreter.
        source: the folder that the client imports Skyward from; a layered environment imports it from there.
        digest: hash of everything else that distinguishes the environment.
    """

    python: str
    layered: bool
    source: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The environment of a node, and how to make it.

    Attributes:
        python: version, such as "3.13" or "3.13.1".
        source: source of Skyward.
        pip, pip_indexes, apt, env, shell_vars: see `Image`.
        includes: files to send.
        plugins: set-up steps of plugins.
        directory: directory on the node; "~/..." is below the home there. None is "/opt/skyward" for root, and
            "~/.skyward" for others.
        settings: environment variables of pip, uv and TLS for the bootstrap: where packages come from. They do not
            change the environment, so they are not part of its hash.
        timeout: seconds for the whole bootstrap.
        on_client: set for an environment on the client's machine; None for any other machine.

    Raises:
        SpecError: a value cannot be used on a node; the message names it.
    """

    python: str
    source: PackageSource
    pip: tuple[str, ...] = ()
    pip_indexes: tuple[PipIndex, ...] = ()
    apt: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    shell_vars: Mapping[str, str] = field(default_factory=dict)
    includes: Includes = field(default_factory=Includes, repr=False)
    plugins: tuple[PluginStep, ...] = ()
    directory: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 300.0
    on_client: OnClient | None = None

    def __post_init__(self) -> None:
        for kind, names in (("env", self.env), ("shell_vars", self.shell_vars), ("settings", self.settings)):
            for name in names:
                if not _VARIABLE.fullmatch(name):
                    raise SpecError(f"{kind} names a variable {name!r}, which is not a valid name in a shell.")
                if name in _TAKEN or name.startswith("limit_"):
                    raise SpecError(
                        f"{kind} names a variable {name!r}, which the bootstrap itself uses: write it in capitals."
                    )
        for requirement in self.pip:
            if "\n" in requirement:
                raise SpecError(f"pip must have one requirement in each entry, but got {requirement!r}.")
            for name in _REFERENCE.findall(requirement):
                if name not in self.shell_vars and name not in self.env:
                    raise SpecError(f"pip has {requirement!r}, and neither shell_vars nor env defines {name}.")
        for package in self.apt:
            if not _PACKAGE.fullmatch(package):
                raise SpecError(f"apt must have names of packages, but got {package!r}.")
        if self.directory is not None and not _DIRECTORY.fullmatch(self.directory):
            raise SpecError(f"directory must be an absolute path, or begin with '~/', but got {self.directory!r}.")

    @classmethod
    def of(
        cls,
        image: Image,
        *,
        directory: str | None = None,
        plugins: Sequence[PluginStep] = (),
        settings: Mapping[str, str] | None = None,
        source: PackageSource | None = None,
        cwd: Path | None = None,
        search_path: Sequence[str] | None = None,
    ) -> "Plan":
        """Return the plan for `image`. Reads the files that it includes.

        `cwd` is the base of relative includes; `search_path` is the import path here, by default `sys.path`.

        Raises:
            SpecError: a value cannot be used on a node, or an include cannot be sent.
        """
        paths = sys.path if search_path is None else search_path
        return cls(
            python=image.resolved_python,
            source=source or find_source(image.skyward_source),
            pip=image.pip,
            pip_indexes=image.pip_indexes,
            apt=image.apt,
            env=image.env,
            shell_vars=image.shell_vars,
            includes=collect(image.includes, image.excludes, cwd, paths) if image.includes else Includes(),
            plugins=tuple(plugins),
            directory=directory,
            settings=dict(settings or {}),
            timeout=image.bootstrap_timeout,
        )

    @cached_property
    def image_hash(self) -> str:
        """Identity of the environment: 12 hex digits. Plans with the same identity share it on a machine.

        Included files, sources of packages, and set-up steps of plugins are not part of it.
        """
        made_of: list[object] = [
            self.python,
            self.source.requirement,
            self.source.digest,
            self.source.dependencies,
            self.pip,
            [(index.url, index.packages) for index in self.pip_indexes],
            self.apt,
            sorted(self.env.items()),
            list(self.shell_vars.items()),  # ordered: one may use those before it
        ]
        if self.on_client is not None:
            made_of += [self.on_client.layered, self.on_client.digest]
        return hashlib.sha256(json.dumps(made_of, separators=(",", ":")).encode()).hexdigest()[:12]


def client_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in `environ` for package indexes and certificates, for `Plan.settings`.

    Valid if the node can use the same addresses and files as this machine. Contains secrets if the addresses do.
    """
    return {
        name: value
        for name, value in sorted(environ.items())
        if name in _FORWARDED
        or name in _OF_ANY_MACHINE
        or (name.startswith("UV_") and not _OF_THIS_MACHINE.fullmatch(name))
    }
