"""A container engine, driven through its command: `docker`, `podman`, or one with the same arguments.

The command is used instead of a client library for the engine's socket: it is installed with every engine, is the same
for all of them, and knows the user's contexts, remote engines (`DOCKER_HOST`, `ssh://`, TLS) and registry logins.
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
"""Default timeout of a command in seconds."""

_NOISE = ("See '", "Run '", "WARNING:", "Usage:", "exit status")
_PREFIXES = ("docker: ", "Error response from daemon: ", "Error: ")


class EngineError(ProvisioningError):
    """Raised if the engine refuses a command, or does not answer in time. The message is the last line it printed."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Facts about an engine's machine. `memory` in bytes; `gpus`: True if containers can have NVIDIA GPUs.

    `id` tells the engine apart from others: images are stored in one engine.
    """

    name: str
    vcpus: int
    memory: int
    architecture: str
    gpus: bool
    id: str


class Engine:
    """The engine of the command `binary`: at `host`, or at the command's default address.

    Attributes:
        words: first arguments of every command.
        podman: True for podman, which has other names for a few options.

    Raises:
        ProviderMissingError: the command is not installed.
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
        """Run a command of the engine, and return its output.

        Raises:
            EngineError: the command failed, or did not end within `within` seconds.
        """
        command = " ".join((os.path.basename(self.words[0]), *words[:1]))
        # Files instead of pipes: podman leaves a process that keeps the output open, so that a pipe would never end.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.words, *words,
                    stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err,
                    start_new_session=True,  # Ctrl-C in a terminal must not reach it
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
                raise EngineError(_last_line(_text(err)) or f"`{command}` ended with {status}")
            return _text(out)

    async def info(self) -> EngineInfo:
        """Return facts about the engine's machine.

        Raises:
            EngineError: the engine does not answer.
        """
        binary = os.path.basename(self.words[0])
        try:
            words = json.loads(await self.call("info", "--format", "json" if self.podman else "{{json .}}", within=30))
            if errors := words.get("ServerErrors"):
                raise EngineError(str(errors[0]))
            return _podman_info(words) if self.podman else _docker_info(words)
        except EngineError as error:
            denied = "permission denied" in str(error)
            fix = "check that you may use its socket (group `docker`)" if denied else "start it"
            raise EngineError(
                f"The container engine does not answer `{binary} info`: {str(error).rstrip('.')}; "
                f"{fix}, or name another with `sky.Container(host=...)`."
            ) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise EngineError(f"`{binary} info` printed unexpected output ({error!r}).") from None

    async def inspect(self, name: str) -> Mapping[str, Any] | None:
        """Return the engine's description of a container; None if it does not exist."""
        try:
            found = json.loads(await self.call("container", "inspect", name))
        except EngineError as error:
            if missing(error, "container"):
                return None
            raise
        words: Mapping[str, Any] = found[0]
        return words


def missing(error: EngineError, kind: Literal["container", "image", "network"]) -> bool:
    """Return whether the engine failed because the named object does not exist, or is being removed."""
    text = str(error).lower()
    if f"no such {kind}" in text:
        return True
    match kind:
        case "container":
            return "removal of container" in text and "already in progress" in text
        case "image":
            return "image not known" in text
        case "network":
            return "network" in text and "not found" in text


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(_NOISE)]
    last = lines[-1] if lines else ""
    for prefix in _PREFIXES:
        last = last.removeprefix(prefix)
    return last


def _docker_info(words: Mapping[str, Any]) -> EngineInfo:
    gpus = "nvidia" in (words.get("Runtimes") or {}) or "nvidia" in json.dumps(words.get("DiscoveredDevices"))
    architecture = _architecture(words["Architecture"])
    id = words.get("ID") or f"{words['Name']}:{words.get('DockerRootDir')}"
    return EngineInfo(words["Name"], words["NCPU"], words["MemTotal"], architecture, gpus, id)


def _podman_info(words: Mapping[str, Any]) -> EngineInfo:
    host = words["host"]
    # podman knows GPUs as CDI devices, and does not list them here.
    id = f"{host['hostname']}:{words.get('store', {}).get('graphRoot')}"
    return EngineInfo(host["hostname"], host["cpus"], host["memTotal"], _architecture(host["arch"]), True, id)


def _architecture(name: str) -> str:
    return "arm64" if name in ("arm64", "aarch64") else "x86_64"
