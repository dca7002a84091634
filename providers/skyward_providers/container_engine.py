"""A container engine, as its own command drives it: `docker`, `podman`, or one that takes the same words.

The command, and not a package that speaks to the socket: it is there wherever the engine is, it is the same for all of
them, and it knows the user's contexts, remote engines (`DOCKER_HOST`, `ssh://`, TLS) and logins to registries.
"""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal

from skyward.errors import ProviderMissingError, ProvisioningError

__all__ = ["Engine", "EngineError", "EngineInfo"]

_KNOWN = ("docker", "podman")
_WITHIN = 60.0
"""Seconds that a command has, unless more are given."""

_NOISE = ("See '", "Run '", "WARNING:", "Usage:", "exit status")
_PREFIXES = ("docker: ", "Error response from daemon: ", "Error: ")


class EngineError(ProvisioningError):
    """The engine refused a command, or did not answer in time. The message is the last that it said."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine says of its machine. `memory` in bytes; `gpus`: whether it can give containers NVIDIA GPUs."""

    name: str
    vcpus: int
    memory: int
    architecture: str
    gpus: bool


class Engine:
    """The engine that `binary` drives: at `host`, or wherever the command itself finds one.

    Attributes:
        words: how its command begins.
        podman: whether it is podman, which has another word for a few things.

    Raises:
        ProviderMissingError: there is no such command.
    """

    def __init__(self, binary: str | None, host: str | None) -> None:
        found = next(filter(shutil.which, (binary,) if binary else _KNOWN), None)
        if found is None:
            wanted = f"there is no `{binary}`" if binary else "there is neither `docker` nor `podman`"
            raise ProviderMissingError(
                f"sky.Container needs the command of a container engine, and {wanted} on PATH: install Docker or "
                "podman, or name its command with `sky.Container(binary=...)`."
            )
        self.podman = "podman" in os.path.basename(found)
        self.words: tuple[str, ...] = (found,)
        if host is not None:
            self.words += ("--url" if self.podman else "--host", host)

    async def call(self, *words: str, within: float = _WITHIN) -> str:
        """What the command prints.

        Raises:
            EngineError: it failed.
        """
        command = " ".join((os.path.basename(self.words[0]), *words[:1]))
        # Into files, which need no end: podman leaves a process behind that holds its output for as long as it lives.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.words, *words,
                    stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err,
                    start_new_session=True,  # so that Ctrl-C in a terminal is for us alone
                )  # fmt: skip  # one option a line would hide the command
            except OSError as error:
                raise EngineError(f"`{command}` could not be started: {error}") from None
            try:
                async with asyncio.timeout(within):
                    status = await process.wait()
            except TimeoutError:
                raise EngineError(f"`{command}` did not end within {within:.0f} s") from None
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
            if status:
                raise EngineError(_said(_text(err)) or f"`{command}` ended with {status}")
            return _text(out)

    async def info(self) -> EngineInfo:
        """What it says of its machine.

        Raises:
            EngineError: it does not answer.
        """
        said = self.words[0]
        try:
            words = json.loads(await self.call("info", "--format", "json" if self.podman else "{{json .}}", within=30))
            if errors := words.get("ServerErrors"):
                raise EngineError(str(errors[0]))
            return _podman_info(words) if self.podman else _docker_info(words)
        except EngineError as error:
            denied = "permission denied" in str(error)
            fix = "see that you may use its socket (group `docker`)" if denied else "start it"
            raise EngineError(
                f"The container engine does not answer `{os.path.basename(said)} info`: {str(error).rstrip('.')}; "
                f"{fix}, or say where one is with `sky.Container(host=...)`."
            ) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise EngineError(f"`{said} info` says nothing that can be understood ({error!r}).") from None

    async def inspect(self, name: str) -> Mapping[str, Any] | None:
        """What the engine knows of a container; None where there is none of that name."""
        try:
            found = json.loads(await self.call("container", "inspect", name))
        except EngineError as error:
            if missing(error, "container"):
                return None
            raise
        words: Mapping[str, Any] = found[0]
        return words


def missing(error: EngineError, kind: Literal["container", "image", "network"]) -> bool:
    """Whether the engine refused because there is none of that kind by the name that was given, or it is just going."""
    said = str(error).lower()
    if f"no such {kind}" in said:
        return True
    match kind:
        case "container":
            return "removal of container" in said and "already in progress" in said
        case "image":
            return "image not known" in said
        case "network":
            return "network" in said and "not found" in said


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _said(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(_NOISE)]
    last = lines[-1] if lines else ""
    for prefix in _PREFIXES:
        last = last.removeprefix(prefix)
    return last


def _docker_info(words: Mapping[str, Any]) -> EngineInfo:
    gpus = "nvidia" in (words.get("Runtimes") or {}) or "nvidia" in json.dumps(words.get("DiscoveredDevices"))
    return EngineInfo(words["Name"], words["NCPU"], words["MemTotal"], _architecture(words["Architecture"]), gpus)


def _podman_info(words: Mapping[str, Any]) -> EngineInfo:
    host = words["host"]
    # podman knows GPUs as devices that a specification on its machine describes, and does not list them.
    return EngineInfo(host["hostname"], host["cpus"], host["memTotal"], _architecture(host["arch"]), True)


def _architecture(name: str) -> str:
    return "arm64" if name in ("arm64", "aarch64") else "x86_64"
