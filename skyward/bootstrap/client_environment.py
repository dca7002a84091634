"""A separate environment for nodes that are processes on this machine, if their image requires one.

It is layered over the environment of this process if both have the same Python: the nodes have the packages that are
installed here, and those of `Image.pip`. With another Python it has only the packages of the image, and Skyward. It is
kept in the user's cache, under a hash of its inputs, for later pools; `bootstrap` makes it as on any other machine.
"""

import asyncio
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from skyward.bootstrap.compare import Mismatches
from skyward.bootstrap.events import PhaseEvent
from skyward.bootstrap.layer import package_folders
from skyward.bootstrap.plan import OnClient, Plan
from skyward.bootstrap.requirements import own_references
from skyward.bootstrap.runner import BootstrapError, ScriptExecutor, bootstrap, worker_environment
from skyward.bootstrap.source import PackageSource, find_source, worker_requirements
from skyward.errors import SpecError
from skyward.specs.image import Image

__all__ = [
    "ClientEnvironment",
    "cache_directory",
    "check_requirements",
    "client_plan",
    "for_installer",
    "has_own_environment",
    "is_python_here",
    "make_client_environment",
]

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_PATH = re.compile(r"(?:\.{1,2}|~)(?:/.*)?|/.*")
_EDITABLE = ("-e ", "--editable ")
_CAUSES = ("error:", "cause:", "ERROR:")
"""Beginnings of the lines in which uv says why it failed."""
_FIND_LINKS = {"PIP_FIND_LINKS": " ", "UV_FIND_LINKS": ","}
"""Variables with folders and addresses of packages, and the separators in their values."""

_COLOURS = frozenset({"CLICOLOR_FORCE", "FORCE_COLOR"})
"""Variables that request colours, as ipykernel sets them. The installer's output is kept as plain text."""


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """An existing environment.

    Attributes:
        python: its interpreter.
        variables: environment variables for its workers.
        notes: its differences from this process, a sentence each.
    """

    python: str
    variables: Mapping[str, str]
    notes: tuple[str, ...] = ()


def has_own_environment(image: Image) -> bool:
    """Return whether local nodes of `image` need an environment other than that of this process."""
    return bool(image.pip) or not is_python_here(image.resolved_python)


def is_python_here(version: str) -> bool:
    """Return whether `version`, such as "3.13" or "3.13.1", is the version of this process."""
    return f"{platform.python_version()}.".startswith(f"{version}.")


def cache_directory() -> Path:
    """Return the directory of the environments: `SKYWARD_CACHE_DIR`, or "skyward" in the user's cache directory."""
    given = os.environ.get("SKYWARD_CACHE_DIR")
    if given:
        return Path(given).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("skyward")


def check_requirements(image: Image) -> None:
    """Check `image.pip`, as far as possible before the commands of `shell_vars` have run.

    Raises:
        SpecError: see `client_plan`.
    """
    variables = own_references(image)
    for requirement in image.pip:
        _requirement(requirement, variables)


def client_plan(image: Image, computed: Mapping[str, str]) -> Plan:
    """Return the plan for the environment of `image` on this machine; `computed` has the values of its `shell_vars`.

    The variables of the image are not part of the plan, except those that `pip` refers to, so that their values, which
    may be secrets, are not written to disk: the commands inherit them.

    Raises:
        SpecError: `pip` refers to an undefined variable, or to a folder.
    """
    variables = {**image.env, **computed}
    layered = is_python_here(image.resolved_python)
    pip = tuple(_requirement(each, variables) for each in image.pip)
    inputs: list[object] = [sorted(variables.items()), [_stamp(each) for each in pip]]
    root = str(Path(__file__).resolve().parents[2])
    if layered:
        inputs += [
            sys.executable,
            sys.version,
            root,
            os.environ.get("PYTHONPATH"),
            list(_installed(package_folders())),
        ]
    digest = hashlib.sha256(json.dumps(inputs).encode(errors="surrogateescape")).hexdigest()
    return Plan(
        python=platform.python_version() if layered else image.resolved_python,
        source=PackageSource("", worker_requirements()) if layered else find_source("local"),
        pip=pip,
        pip_indexes=image.pip_indexes,
        directory=str(cache_directory()),
        timeout=image.bootstrap_timeout,
        on_client=OnClient(sys.executable, layered, root, digest),
    )


def _requirement(text: str, variables: Mapping[str, str]) -> str:
    """Return a requirement with the values of its variables; if it is a path, as an absolute path."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in variables:
            raise SpecError(f"pip has {text!r}, and neither shell_vars nor env defines {found[1]}.")
        return variables[found[1]]

    resolved = _REFERENCE.sub(value, text).strip()
    path = _path_of(resolved)
    if path is None:
        return resolved
    if resolved.startswith(_EDITABLE) or path.is_dir():
        raise SpecError(
            f"Image.pip names the folder {text!r}, whose later edits the nodes would not see: install it in the "
            f"environment of this process, which local nodes have too, or send its package with Image(includes=[...])."
        )
    return resolved if "://" in resolved else str(path)


def _path_of(requirement: str) -> Path | None:
    """Return the path that a requirement names; None for any other requirement."""
    text = requirement
    for option in _EDITABLE:
        text = text.removeprefix(option).lstrip()
    _, at, address = text.partition("@")
    if at and address.strip().startswith("file://"):
        return Path(unquote(urlsplit(address.strip()).path))
    if text.startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    if _PATH.fullmatch(text.partition("[")[0]):
        return Path(text.partition("[")[0]).expanduser().absolute()
    return None


def _stamp(requirement: str) -> tuple[int, int] | None:
    """Return size and time of the file that a requirement names, whose content may change."""
    path = _path_of(requirement)
    with suppress(OSError):
        if path is not None:
            found = path.stat()
            return found.st_size, found.st_mtime_ns
    return None


def _installed(folders: Iterable[str]) -> Iterable[tuple[str, list[str]]]:
    """Yield the packages in `folders`, by the names of their metadata, which contain their versions."""
    for folder in folders:
        with suppress(OSError):
            yield folder, sorted(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info")))


def for_installer(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for uv, with the folder of the package uv on PATH, and with absolute folders of packages."""
    folders = [environ.get("PATH", os.defpath), os.path.dirname(sys.executable)]
    with suppress(ImportError, FileNotFoundError):
        from uv import find_uv_bin

        folders.append(os.path.dirname(find_uv_bin()))
    links = {name: mark.join(map(_absolute, environ.get(name, "").split(mark))) for name, mark in _FIND_LINKS.items()}
    plain = {name: value for name, value in environ.items() if name not in _COLOURS}
    found = {name: value for name, value in links.items() if value}
    return {**plain, **found, "PATH": os.pathsep.join(folders), "NO_COLOR": "1"}


def _absolute(place: str) -> str:
    return os.path.abspath(place) if place.strip() and "://" not in place else place


async def make_client_environment(
    image: Image,
    computed: Mapping[str, str],
    shell: Callable[[Mapping[str, str]], ScriptExecutor],
    report: Callable[[PhaseEvent], None],
) -> ClientEnvironment:
    """Make the environment of `image`, or check that it exists; `report` gets the phase events.

    Args:
        image: the image of the nodes.
        computed: the values of its `shell_vars`.
        shell: returns an executor on this machine, for an environment of variables.
        report: called with each phase event.

    Raises:
        SpecError: see `client_plan`.
        BootstrapError: the environment cannot be made.
    """
    plan = await asyncio.to_thread(client_plan, image, computed)
    environ = {**os.environ, **image.env, **computed}
    try:
        ready = await bootstrap(shell(for_installer(environ)), plan, report)
    except BootstrapError as error:
        raise BootstrapError(_failure(image, error), error.phase, error.lines, error.log, late=error.late) from None
    notes = Mismatches(ready.facts, "a local node").at_join()
    programs = os.path.dirname(ready.facts.executable)
    path = os.pathsep.join((programs, environ.get("PATH", os.defpath)))
    variables = {**worker_environment(plan, ready), "PATH": path}
    return ClientEnvironment(ready.facts.executable, variables, tuple(notes))


def _cause(lines: Sequence[str]) -> str:
    """Return the cause that uv gives in the last lines of its output, in parentheses; empty if it gives none."""
    causes = [line.strip() for line in lines if line.strip().startswith(_CAUSES)]
    return f" ({causes[-1].partition(':')[2].strip().removeprefix('Because ').removesuffix('.')})" if causes else ""


def _failure(image: Image, error: BootstrapError) -> str:
    """Return the first line of an error that continues with the last lines of a phase."""
    within = f" within the {image.bootstrap_timeout:g} s of bootstrap_timeout" if error.late else ""
    if error.phase == "deps":
        packages = ", ".join(image.pip) or "those of Skyward"
        return f"its packages ({packages}) could not be installed on this machine{within}{_cause(error.lines)}"
    return f"its environment could not be made on this machine{within}"
