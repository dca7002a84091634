"""Everything that a node needs before its worker can start, as one frozen value."""

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

from skyward.bootstrap.events import MachineNeeds
from skyward.bootstrap.includes import Includes, collect
from skyward.bootstrap.peers import EnvironmentSource
from skyward.bootstrap.source import PackageSource, find_source
from skyward.errors import SpecError
from skyward.specs.image import Image, PipIndex
from skyward.specs.plugin import PluginStep

__all__ = ["Helper", "OnClient", "Plan", "Supplies", "Supply", "SupplyKind", "client_settings"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.:~=/-]*", re.IGNORECASE)
_DIRECTORY = re.compile(r"(/|~/)[^\x00-\x1f\"'\\$`]+")

_FORWARDED = frozenset({
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
})  # fmt: skip  # one name a line would be no clearer
_TAKEN = frozenset({
    "apt", "ask", "began", "begun", "candidate", "client", "clock", "computed", "count", "digest", "digester", "each",
    "elapsed", "env", "facts", "file", "git", "helped", "host", "image_hash", "index", "into", "kind", "lacking",
    "late", "layered", "left", "libc", "limit", "logs", "machine", "mark", "minor", "moved", "name", "names", "package",
    "peer", "place", "plugins", "port", "process", "program", "pyenv", "python", "reason", "receiver", "root",
    "sample", "seal", "seconds", "seen", "skyward", "source", "state", "status", "supplied", "target", "timeout",
    "took", "tree", "tools", "unpacker", "uv", "value", "values", "version", "wheel", "wheel_name",
})  # fmt: skip  # as above
"""Variables of the script itself, which users cannot set."""

_OF_THIS_MACHINE = re.compile(
    r"UV_(PYTHON|PROJECT|WORKING|TOOL|CACHE|PROJECT_ENVIRONMENT|INTERNAL|RUN|ENV|CONFIG)(_.*)?"
)
"""Names of uv's settings that apply to this machine and its projects."""

_OF_ANY_MACHINE = frozenset({"UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS", "UV_PYTHON_DOWNLOADS_JSON_URL"})


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


type SupplyKind = Literal["uv", "python", "wheel"]


@dataclass(frozen=True, slots=True)
class Supply:
    """A file that the client sends to a machine that cannot fetch packages.

    Attributes:
        kind: "uv", a compressed program; "python", a compressed archive of one folder; or "wheel".
        name: name of the wheel, or of the folder in the archive.
        origin: its path here.
        digest: its SHA-256, in hex.
    """

    kind: SupplyKind
    name: str
    origin: Path
    digest: str

    @classmethod
    def of(cls, kind: SupplyKind, name: str, origin: Path) -> "Supply":
        """Return a file as a supply. Reads the file."""
        with origin.open("rb") as stream:
            return cls(kind, name, origin, hashlib.file_digest(stream, "sha256").hexdigest())


@dataclass(frozen=True)
class Supplies:
    """The supplies that one kind of machine needs for a plan.

    Attributes:
        files: the files.
        has_packages: False if the machine can fetch packages: then these are only uv, Python or both.
        requirements: exact requirements of the environment, which the wheels satisfy.
        skyward: exact requirement of Skyward; "" if the plan sends a wheel of its own.
    """

    files: tuple[Supply, ...]
    has_packages: bool
    requirements: tuple[str, ...] = ()
    skyward: str = ""

    @cached_property
    def manifest(self) -> str:
        """One line for each file: digest, kind, name."""
        return "\n".join(f"{file.digest} {file.kind} {file.name}" for file in self.files)

    @cached_property
    def size(self) -> int:
        """Size of all files, in bytes."""
        return sum(file.origin.stat().st_size for file in self.files)


class Helper(Protocol):
    """Help of the client for machines that cannot fetch packages: see `supplies`."""

    async def index(self) -> str:
        """Return the address of the usual package index; "" if it is unknown."""

    async def collect(self, plan: "Plan", machine: MachineNeeds) -> Supplies:
        """Return what a machine needs.

        Raises:
            NodeStartError: it cannot be had here either.
        """


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
        helper: collects supplies for machines that cannot fetch packages; None if these fail.
        peers: nodes that may send the environment; None if there are none.

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
    helper: Helper | None = field(default=None, repr=False, compare=False)
    peers: EnvironmentSource | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for kind, names in (("env", self.env), ("shell_vars", self.shell_vars), ("settings", self.settings)):
            for name in names:
                if not _VARIABLE.fullmatch(name):
                    raise SpecError(f"{kind} names a variable {name!r}, which is not a valid name in a shell.")
                if name in _TAKEN or name.startswith(("limit_", "peer_")):
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
        helper: Helper | None = None,
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
            helper=helper,
        )

    @property
    def is_same_everywhere(self) -> bool:
        """False if uv chooses packages for the GPU of each machine, so that the environment of another may be wrong."""
        return all("UV_TORCH_BACKEND" not in given for given in (self.settings, self.env, self.shell_vars))

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
