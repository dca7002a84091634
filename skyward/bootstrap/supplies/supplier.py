"""Collection, on this machine, of what a machine needs that cannot fetch packages.

uv resolves and downloads here for the platform of that machine, with the settings of this process. Packed files are
kept in the user's cache. All nodes of a pool that need the same share one collection.
"""

import asyncio
import gzip
import hashlib
import os
import platform
import re
import secrets
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from skyward.bootstrap.client_environment import cache_directory, for_installer, is_python_here
from skyward.bootstrap.events import MachineNeeds
from skyward.bootstrap.plan import Plan, Supplies, Supply, SupplyKind, client_settings
from skyward.bootstrap.runner import ScriptExecutor
from skyward.bootstrap.supplies.interpreter import pack_folder, pack_interpreter
from skyward.bootstrap.supplies.platforms import Platform
from skyward.bootstrap.supplies.wheels import archives, pack_wheel, wheel_name
from skyward.errors import NodeStartError

__all__ = ["Supplier"]

_UNUSED_FOR = 30 * 86400.0
"""Seconds after which a packed file is removed."""

_LINES = 20

_RECENT = re.compile(r"uv (0\.([89]|\d\d+)\.|[1-9])")
_INDEX = re.compile(r"(?m)^--index-url (\S+)")


class Supplier:
    """Collects supplies. Lives on one loop.

    Args:
        shell: returns an executor on this machine, for an environment of variables.
        notify: called once, with a sentence, if a machine has to be set up from this computer.
    """

    def __init__(self, shell: Callable[[Mapping[str, str]], ScriptExecutor], notify: Callable[[str], object]) -> None:
        self._shell = shell
        self._notify = notify
        self._notified = False
        self._collecting: dict[tuple[object, ...], asyncio.Task[Supplies]] = {}
        self._index: asyncio.Task[str] | None = None

    def begin(self) -> asyncio.Task[str]:
        """Find the package index in the background, if that has not begun: the first machine needs it soon."""
        if self._index is None:
            self._index = asyncio.get_running_loop().create_task(self._find_index())
        return self._index

    async def index(self) -> str:
        """Return the address of the package index that uv uses here; "" if it is unknown."""
        return await asyncio.shield(self.begin())

    async def _find_index(self) -> str:
        tools = _Tools(self._shell, _environ({}))
        uv = await tools.find_uv()
        if not uv:
            return ""
        _, lines = await tools.run(f"{shlex.quote(uv)} pip compile --quiet --emit-index-url --no-header - </dev/null")
        found = _INDEX.search("\n".join(lines))
        return found[1] if found else ""

    async def collect(self, plan: Plan, machine: MachineNeeds) -> Supplies:
        """Return the supplies for a machine.

        Raises:
            NodeStartError: something cannot be fetched here either, or does not exist for its platform.
        """
        if not self._notified:
            self._notified = True
            self._notify(
                f"A machine cannot fetch {machine.lacking} ({machine.reason}): it is set up from this computer, over "
                "the connection."
            )
        key = (
            plan.image_hash, machine.kind, machine.has_uv, machine.has_python,
            machine.has_packages,
            machine.project, machine.requirements,
        )  # fmt: skip  # one a line would be no clearer
        task = self._collecting.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.get_running_loop().create_task(self._collect(plan, machine))
            self._collecting[key] = task
        return await asyncio.shield(task)

    async def _collect(self, plan: Plan, machine: MachineNeeds) -> Supplies:
        target = Platform.of(machine.kind.system, machine.kind.machine, machine.kind.libc)
        if target is None:
            raise NodeStartError(
                f"the machine cannot fetch packages ({machine.reason}), and this computer has none for "
                f"{machine.kind.system} on {machine.kind.machine}: install uv, Python and the packages on it"
            )
        tools = _Tools(self._shell, _environ({**plan.settings, **client_settings(plan.env)}))
        with tempfile.TemporaryDirectory(prefix="skyward-") as folder:
            return await _Collection(tools, plan, target, Path(folder)).run(machine)

    async def close(self) -> None:
        """Cancel collections in progress."""
        tasks = [*self._collecting.values(), *([self._index] if self._index is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _environ(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for uv here: settings of pip apply to it too."""
    environ = for_installer({**os.environ, **settings})
    as_uv = {
        "UV_DEFAULT_INDEX": environ.get("UV_INDEX_URL") or environ.get("PIP_INDEX_URL"),
        "UV_INDEX": environ.get("UV_EXTRA_INDEX_URL") or environ.get("PIP_EXTRA_INDEX_URL"),
        "UV_FIND_LINKS": ",".join(environ.get("PIP_FIND_LINKS", "").split()),
        "UV_INSECURE_HOST": environ.get("PIP_TRUSTED_HOST"),
        "SSL_CERT_FILE": environ.get("PIP_CERT"),
    }
    return {**{name: value for name, value in as_uv.items() if value}, **environ, "UV_NO_PROGRESS": "1"}


class _Tools:
    """Programs on this machine."""

    def __init__(self, shell: Callable[[Mapping[str, str]], ScriptExecutor], environ: Mapping[str, str]) -> None:
        self.environ = environ
        self._shell = shell(environ)

    async def run(self, command: str) -> tuple[int | None, list[str]]:
        """Run a command; return its status and its output."""
        lines: list[str] = []
        done = await self._shell.run(command, b"", lines.append)
        return done.status, [*lines, *done.err.splitlines()]

    async def check(self, command: str, what: str) -> list[str]:
        """Run a command; return its output.

        Raises:
            NodeStartError: it failed. The message names what it is for, and ends with its last lines.
        """
        status, lines = await self.run(command)
        if status:
            message = f"the machine cannot fetch packages, and this computer cannot get {what} for it:"
            raise NodeStartError("\n".join((message, *lines[-_LINES:])), "\n".join(lines))
        return lines

    async def find_uv(self) -> str:
        """Return the path of uv; "" if there is no recent one."""
        folders = f"{self.environ['PATH']}{os.pathsep}{cache_directory() / 'uv' / 'bin'}"
        found = (shutil.which("uv", path=folder) for folder in folders.split(os.pathsep) if folder)
        for uv in dict.fromkeys(filter(None, found)):
            _, lines = await self.run(f"{shlex.quote(uv)} --version")
            if any(map(_RECENT.match, lines)):
                return uv
        return ""

    async def uv(self) -> str:
        """Return the path of uv; it is installed if there is none."""
        found = await self.find_uv()
        if not found:
            pip = shlex.join((sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"))
            where = shlex.quote(str(cache_directory() / "uv"))
            await self.check(f"{pip} --upgrade --target {where} 'uv>=0.8'", "uv, which you can install here")
            found = await self.find_uv()
        return found


class _Collection:
    """One collection, in a folder of its own."""

    def __init__(self, tools: _Tools, plan: Plan, target: Platform, folder: Path) -> None:
        self._tools = tools
        self._plan = plan
        self._target = target
        self._folder = folder
        self._packed = cache_directory() / "supplies"
        self._uv = ""

    async def run(self, machine: MachineNeeds) -> Supplies:
        await asyncio.to_thread(self._prune)
        self._uv = await self._tools.uv()
        tools = [] if machine.has_uv else [await self._uv_of_target()]
        if not machine.has_python:
            tools.append(await self._python())
        if machine.has_packages:
            return Supplies(tuple(tools), has_packages=False)
        (self._folder / "pyproject.toml").write_text(machine.project)
        (self._folder / "requirements.txt").write_text(machine.requirements)
        installed = await self._install("-r pyproject.toml -r requirements.txt", "packages")
        own: Sequence[tuple[str, str, Path]] = ()
        if not self._plan.source.wheel:
            own = await self._install(f"--no-deps {shlex.quote(self._plan.source.requirement)}", "Skyward")
        wheels = [await self._wheel(name, archive) for name, _, archive in (*installed, *own)]
        pins = tuple(f"{name}=={version}" for name, version, _ in installed)
        skyward = "".join(f"{name}=={version}" for name, version, _ in own)
        return Supplies((*tools, *wheels), has_packages=True, requirements=pins, skyward=skyward)

    def _prune(self) -> None:
        self._packed.mkdir(parents=True, exist_ok=True)
        for path in self._packed.iterdir():
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _UNUSED_FOR:
                    path.unlink()

    async def _install(self, requirements: str, what: str) -> list[tuple[str, str, Path]]:
        """Install requirements for the target; return name, version and unpacked wheel of each package."""
        folder = tempfile.mkdtemp(dir=self._folder)
        no_index = self._tools.environ.get("PIP_NO_INDEX") or self._tools.environ.get("UV_NO_INDEX")
        options = (
            "--quiet", "--target", folder, "--link-mode", "symlink", "--python", sys.executable,
            "--python-version", ".".join(self._plan.python.split(".")[:2]),
            "--python-platform", self._target.for_wheels, *(("--no-index",) if no_index else ()),
        )  # fmt: skip  # an option beside its value
        install = shlex.join((self._uv, "pip", "install", *options))
        await self._tools.check(f"cd {shlex.quote(str(self._folder))} && {install} {requirements}", what)
        return await asyncio.to_thread(lambda: list(archives(Path(folder))))

    async def _wheel(self, name: str, archive: Path) -> Supply:
        wheel = await asyncio.to_thread(wheel_name, archive)
        if not self._target.runs_wheel(wheel):
            raise NodeStartError(
                f"the machine cannot fetch packages, and {name} has no wheel for it ({self._target.for_wheels}): "
                "install the packages on it, or select a version of it that has one"
            )
        return await self._pack("wheel", wheel, f"{archive.name}-{wheel}", partial(pack_wheel, archive))

    async def _uv_of_target(self) -> Supply:
        """Return uv for the target: this one, or that of the package uv."""
        program = Path(self._uv)
        if not self._target.runs_programs_of(Platform.of_client()):
            (version,) = await self._tools.check(f"{shlex.quote(self._uv)} --version", "uv")
            ((_, _, archive),) = await self._install(f"--no-deps uv=={version.split()[1]}", "uv")
            (program,) = archive.glob("*.data/scripts/uv")
        found = await asyncio.to_thread(program.stat)
        return await self._pack("uv", "uv", f"uv-{found.st_size}-{found.st_mtime_ns}.gz", partial(_compress, program))

    async def _python(self) -> Supply:
        """Return a Python for the target: one that uv downloads here, or that of this process."""
        folder = cache_directory() / "python"
        version, where = self._plan.python, self._target.for_python
        own = None
        if is_python_here(version) and self._target.runs_programs_of(Platform.of_client()):
            name = f"cpython-{platform.python_version()}-{where}"
            own = partial(self._pack, "python", name, f"{name}-{_own_stamp()}.tar.gz", partial(pack_interpreter, name))
            if (self._packed / f"{name}-{_own_stamp()}.tar.gz").exists():
                return await own()
        retries = "0" if own is not None else "3"
        command = ("env", f"UV_HTTP_RETRIES={retries}", self._uv, "python", "install", "--quiet", "--no-bin")
        _, lines = await self._tools.run(
            shlex.join((*command, "--install-dir", str(folder), f"cpython-{version}-{where}"))
        )
        found = [path for path in folder.glob(f"cpython-{version}*-{where}") if path.is_dir() and not path.is_symlink()]
        if found:
            newest = max(found, key=lambda path: [int(part) for part in path.name.split("-")[1].split(".")])
            file = f"{newest.name}-{newest.stat().st_mtime_ns}.tar.gz"
            return await self._pack("python", newest.name, file, partial(pack_folder, newest))
        with suppress(FileNotFoundError):
            if own is not None:
                return await own()
        message = (
            f"the machine has no Python {version} and cannot fetch one, and this computer cannot either: install it "
            "there, or select another with Image(python=...):"
        )
        raise NodeStartError("\n".join((message, *lines[-_LINES:])), "\n".join(lines))

    async def _pack(self, kind: SupplyKind, name: str, file: str, pack: Callable[[Path], None]) -> Supply:
        """Return a packed file, from the cache if it is there."""
        return await asyncio.to_thread(self._pack_now, kind, name, self._packed / file, pack)

    def _pack_now(self, kind: SupplyKind, name: str, path: Path, pack: Callable[[Path], None]) -> Supply:
        if path.exists():
            os.utime(path)
        else:
            part = path.with_name(f".{secrets.token_hex(8)}")
            try:
                pack(part)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        return Supply.of(kind, name, path)


def _compress(program: Path, path: Path) -> None:
    with program.open("rb") as content, path.open("wb") as raw, gzip.GzipFile("", "wb", 1, raw, 0) as packed:
        shutil.copyfileobj(content, packed, 1 << 20)


def _own_stamp() -> str:
    """Return what distinguishes the interpreter of this process from another of its version."""
    return hashlib.sha256(f"{sys.base_prefix}\n{sys.version}".encode()).hexdigest()[:12]
