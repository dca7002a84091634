"""Check of this computer: what Skyward needs here, and what may go wrong. Nothing is created, and nothing costs money.

Each check is a function of its own, and each finding says what is to be done about it.
"""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, Literal

from skyward.errors import JournalError, SkywardError
from skyward.formatting import count_text, money_text, size_text

__all__ = ["Finding", "describe_findings", "examine_computer"]

type Level = Literal["ok", "note", "problem"]

_DISTRIBUTION: Final = "skyward-jupyter"
_PYTHON: Final = (3, 12)
_DISK: Final = 1 << 30
"""Bytes of free disk below which nodes on this computer, and the logs, may fail."""

_SKEW: Final = 5.0
"""Seconds by which two clocks may differ."""

_ANSWERS_WITHIN: Final = 10.0
_LONGEST_SOCKET: Final = 60
"""Characters of the folder of sockets from which their paths may be too long: 108 with the names."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        about: what was checked, in a word or two.
        level: "ok", "note" for what only some uses need, or "problem".
        text: what was found.
        fix: what to do about it, as an imperative; empty for nothing.
    """

    about: str
    level: Level
    text: str
    fix: str = ""


def examine_computer() -> list[Finding]:
    """Return the findings on this computer."""
    found: list[Finding] = []
    for about, check in _CHECKS.items():
        try:
            found += check()
        except Exception as error:  # the others are still worth knowing
            reason = " ".join(str(error).split()) or type(error).__name__
            found.append(Finding(about, "problem", f"could not be checked: {reason}"))
    return found


def describe_findings(findings: Iterable[Finding]) -> list[str]:
    """Return lines on this computer."""
    words = {"ok": "ok", "note": "note", "problem": "PROBLEM"}
    lines = [
        f"  {words[each.level]}: {each.about}: {each.text}{f'; {each.fix}' if each.fix else ''}" for each in findings
    ]
    return ["this computer:", *lines]


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    text = f"{version} at {sys.executable}"
    if sys.version_info < _PYTHON:
        yield Finding("Python", "problem", text, "install Python 3.12 or newer")
    else:
        yield Finding("Python", "ok", text)


def _ssh() -> Iterator[Finding]:
    path = shutil.which("ssh")
    if path is not None:
        said = _said([path, "-V"])
        yield Finding("ssh", "ok", said or path)
    elif importlib.util.find_spec("asyncssh") is not None:
        yield Finding(
            "ssh", "note", "no command `ssh`, so asyncssh is used, which is slower", "install OpenSSH's client"
        )
    else:
        fix = "install OpenSSH's client, or `pip install 'skyward-jupyter[ssh]'`"
        yield Finding("ssh", "problem", "no command `ssh`, so that no machine of a cloud can be reached", fix)


def _containers() -> Iterator[Finding]:
    engine = next((name for name in ("docker", "podman") if shutil.which(name)), None)
    if engine is None:
        fix = "install Docker or Podman to use them"
        yield Finding("Docker", "note", "neither Docker nor Podman, so no nodes in containers here", fix)
        return
    done = _run([engine, "info", "--format", "{{json .}}"])
    if done is None or done.returncode:
        why = "it did not answer" if done is None else (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        reason = why if isinstance(why, str) else "".join(why)
        fix = f"start its service, or let this user use it (`{engine} info` must work)"
        yield Finding("Docker", "note", f"{engine} cannot be used: {reason}", fix)
    else:
        yield Finding("Docker", "ok", f"{engine} answers")


def _journal() -> Iterator[Finding]:
    from skyward.journal import data_directory
    from skyward.pool.reaping.recorded_pools import recorded_pools

    try:
        pools = recorded_pools()
        folder = data_directory()
    except JournalError as error:
        yield Finding("journal", "problem", str(error))
        return
    if not os.access(folder, os.W_OK):
        fix = "make it writable, or name another folder in SKYWARD_DATA_DIR"
        yield Finding("journal", "problem", f"{folder} cannot be written, so no machine can be requested", fix)
        return
    yield Finding("journal", "ok", f"{count_text(len(pools), 'pool')} in {folder}")
    left = [pool for pool in pools if not pool.owner and (pool.per_hour or pool.unanswered)]
    for pool in left:
        cost = f", for {money_text(pool.per_hour)} per hour" if pool.per_hour else ""
        what = count_text(len(pool.machines), "machine") + cost
        if pool.unanswered:
            what += f", and {count_text(pool.unanswered, 'request')} without an answer"
        attach = f", `sky.attach({pool.name!r})` goes on with it" if pool.attachable else ""
        yield Finding(
            "journal",
            "problem",
            f"pool {pool.name!r} of an ended process still has {what}",
            f"`skyward down {pool.name}` ends it{attach}",
        )


def _files() -> Iterator[Finding]:
    from skyward.config import load

    try:
        config = load()
        for name in config.pools:
            config.pool(name)
        for name in config.providers:
            config.provider(name)
    except SkywardError as error:
        yield Finding("skyward.toml", "problem", str(error), "correct the file")
        return
    read = ", ".join(str(file.path) for file in config.files)
    yield Finding("skyward.toml", "ok", read or "none, so that every setting has its default")


def _ports() -> Iterator[Finding]:
    for address in ("127.0.0.1", "127.12.34.56"):
        try:
            with socket.socket() as bound:
                bound.bind((address, 0))
        except OSError as error:
            where = "tunnels" if address == "127.0.0.1" else "nodes on this computer"
            fix = "allow processes to listen on the loopback interface"
            yield Finding("ports", "problem", f"{where} cannot listen on {address}: {error.strerror}", fix)
            return
    folder = Path(tempfile.gettempdir())
    if len(str(folder)) > _LONGEST_SOCKET:
        fix = "set TMPDIR to a folder with a short path"
        yield Finding("ports", "problem", f"the path of {folder} is too long for sockets of ssh", fix)
        return
    yield Finding("ports", "ok", "processes can listen on the loopback interface")


def _disk() -> Iterator[Finding]:
    from skyward.journal import data_directory

    for what, folder in {"the journal": data_directory(), "temporary files": Path(tempfile.gettempdir())}.items():
        free = shutil.disk_usage(folder).free
        if free < _DISK:
            fix = "free some space there"
            yield Finding("disk", "problem", f"only {size_text(free)} free for {what} in {folder}", fix)
        else:
            yield Finding("disk", "ok", f"{size_text(free)} free for {what}")


def _clock() -> Iterator[Finding]:
    from skyward.journal import data_directory

    now, installed = time.time(), Path(__file__).stat().st_mtime
    fix = "set the clock, and let it be kept by NTP: certificates and costs depend on it"
    if now < installed - _SKEW:
        yield Finding(
            "clock", "problem", f"it says {time.strftime('%Y-%m-%d')}, before this package was installed", fix
        )
        return
    with tempfile.NamedTemporaryFile(dir=data_directory()) as file:
        skew = Path(file.name).stat().st_mtime - time.time()
    if abs(skew) > _SKEW:
        text = f"the disk of the journal is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} it"
        yield Finding("clock", "problem", text, "synchronize the clocks of this computer and of its file server")
        return
    done = (
        _run(["timedatectl", "show", "--property=NTPSynchronized", "--value"]) if shutil.which("timedatectl") else None
    )
    if done is not None and done.stdout.strip() == "no":
        yield Finding("clock", "note", "it is not kept by NTP", "switch that on: `timedatectl set-ntp true`")
    else:
        yield Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %z"))


def _versions() -> Iterator[Finding]:
    from skyward.pool.health.names import conflict

    ours = _installed(_DISTRIBUTION)
    if ours is None:
        fix = f"install {_DISTRIBUTION} in this environment"
        yield Finding("versions", "problem", "the package is imported from a folder, and not installed", fix)
    wrong = [] if ours is None else list(_unmet(ours))
    for text in wrong:
        fix = f"`pip install --upgrade {_DISTRIBUTION}` in this environment"
        yield Finding("versions", "problem", text, fix)
    if sentence := conflict():
        yield Finding("versions", "problem", sentence)
    elif ours is not None and not wrong:
        yield Finding("versions", "ok", f"{_DISTRIBUTION} {ours.version}, with what it requires")


def _unmet(ours: Distribution) -> Iterator[str]:
    """Yield what a distribution requires and does not have here."""
    try:
        from packaging.requirements import Requirement
    except ImportError:  # no part of what we require
        return
    for text in ours.requires or ():
        required = Requirement(text)
        if required.marker is not None and not required.marker.evaluate({"extra": ""}):
            continue
        found = _installed(required.name)
        if found is None:
            yield f"{required.name} is required, and is not installed"
        elif not required.specifier.contains(found.version, prereleases=True):
            yield f"{required.name} {found.version} is installed, but {required.specifier} is required"


def _jupyter() -> Iterator[Finding]:
    if importlib.util.find_spec("IPython") is None:
        yield Finding("notebooks", "note", "IPython is not installed here", "install it to use `%%sky`")
        return
    if importlib.util.find_spec("jupyterlab") is None:
        fix = "`pip install 'skyward-jupyter[notebook]'`, if JupyterLab runs in this environment"
        yield Finding("JupyterLab", "note", "it is not installed in this environment", fix)
        return
    panel = next((path for path in _panels() if path.exists()), None)
    ours = _installed(_DISTRIBUTION)
    again = f"`pip install --force-reinstall --no-deps {_DISTRIBUTION}`"
    if panel is None:
        yield Finding("JupyterLab", "problem", "it does not find Skyward's panel", again)
        return
    version = json.loads(panel.read_text()).get("version")
    if ours is not None and version != ours.version:
        yield Finding("JupyterLab", "problem", f"its panel is of version {version}, and not {ours.version}", again)
        return
    yield Finding("JupyterLab", "ok", f"it has Skyward's panel, {panel.parent}")
    if importlib.util.find_spec("anywidget") is None:
        yield Finding(
            "notebooks", "note", "anywidget is not installed, so pools have no live view", "install anywidget"
        )


def _panels() -> Iterator[Path]:
    """Yield the places where JupyterLab looks for the panel."""
    try:
        from jupyter_core.paths import jupyter_path

        folders = jupyter_path("labextensions")
    except ImportError:
        folders = [f"{sys.prefix}/share/jupyter/labextensions"]
    for folder in folders:
        yield Path(folder) / "skyward-panel" / "package.json"


_CHECKS: Final[dict[str, Callable[[], Iterator[Finding]]]] = {
    "Python": _python,
    "versions": _versions,
    "JupyterLab": _jupyter,
    "ssh": _ssh,
    "Docker": _containers,
    "journal": _journal,
    "skyward.toml": _files,
    "ports": _ports,
    "disk": _disk,
    "clock": _clock,
}
"""The checks, in the order of their findings."""


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _said(words: list[str]) -> str:
    """Return the first line that a command prints; empty if it fails."""
    done = _run(words)
    lines = [] if done is None else (done.stdout + done.stderr).splitlines()
    return lines[0].strip() if lines else ""


def _run(words: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Return what a command says; None if it cannot be run, or does not answer."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERS_WITHIN,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
