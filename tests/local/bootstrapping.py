"""A "node" for bootstraps: a separate home directory, a few given programs, and packages made by the tests.

The packages that a worker needs are packed again from the environment of the tests, so nothing is fetched.
"""

import asyncio
import contextlib
import os
import re
import stat
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import psutil

__all__ = ["Completed", "ShellNode", "make_index", "make_wheel", "repack"]

LEFT_OUT = {"INSTALLER", "REQUESTED", "direct_url.json", "RECORD"}


@dataclass(frozen=True)
class Completed:
    status: int | None
    out: str
    err: str


class ShellNode:
    """Runs commands in `sh` with an environment of only `bin` and the system."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bin = home / "bin"
        self.bin.mkdir(parents=True)
        self.commands: list[str] = []
        self.given: list[bytes] = []
        self.variables: dict[str, str] = {}
        self.path = f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin"
        self._running: list[asyncio.subprocess.Process] = []
        base: str = sys._base_executable  # type: ignore[attr-defined]  # the Python of a venv
        self.link(f"python{sys.version_info.major}.{sys.version_info.minor}", Path(base).resolve())

    def link(self, name: str, target: Path) -> None:
        """Put the program `target` on PATH."""
        (self.bin / name).symlink_to(target)

    def program(self, name: str, text: str) -> None:
        """Put a program of the test on PATH."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    async def run(self, command: str, given: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
        """Run a command, as an `Executor` does."""
        self.commands.append(command)
        self.given.append(given)
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", command,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={"HOME": str(self.home), "PATH": self.path, **self.variables}, cwd=self.home,
        )  # fmt: skip
        self._running.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.ensure_future(process.stderr.read())
        try:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(given)
                await process.stdin.drain()
            process.stdin.close()
            lines = []
            while line := await process.stdout.readline():
                lines.append(line.decode(errors="replace"))
                if on_line is not None:
                    on_line(lines[-1].rstrip("\n"))
            return Completed(await process.wait(), "".join(lines), (await errors).decode(errors="replace"))
        finally:
            self._running.remove(process)
            process.stdin.close()  # a process that is just being started may not be killed, and waits for its end
            _kill(process)
            await process.wait()
            await errors

    def kill(self) -> None:
        """Kill the running commands and all processes that they started."""
        for process in self._running:
            _kill(process)


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        for each in [parent, *parent.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def make_wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    """Return a wheel of one module that knows its version."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def make_index(folder: Path, wheels: Sequence[Path]) -> None:
    """Make the files of a package index, to be served, with these wheels."""
    for wheel in wheels:
        page = folder / re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()
        page.mkdir(parents=True, exist_ok=True)
        (page / wheel.name).symlink_to(wheel)
        with (page / "index.html").open("a") as listed:
            listed.write(f'<a href="{wheel.name}">{wheel.name}</a>\n')


def repack(folder: Path, name: str) -> Path:
    """Return a wheel built from the installed package `name`."""
    found = distribution(name)
    folder.mkdir(parents=True, exist_ok=True)
    files = [file for file in found.files or () if file.name not in LEFT_OUT and file.suffix != ".pyc"]
    (info,) = {file.parts[0] for file in files if file.parts[0].endswith(".dist-info")}
    tags = [line.partition(": ")[2] for line in (found.read_text("WHEEL") or "").splitlines() if line[:4] == "Tag:"]
    python, abi, _ = tags[0].split("-")
    platform = ".".join(dict.fromkeys(tag.rsplit("-", 1)[1] for tag in tags))
    path = folder / f"{info.removesuffix('.dist-info')}-{python}-{abi}-{platform}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            where = file.as_posix()
            if where.startswith("../"):  # a program
                where = f"{info.removesuffix('.dist-info')}.data/scripts/{os.path.basename(where)}"
            entry = zipfile.ZipInfo(where)
            entry.external_attr = (0o100755 if ".data/scripts/" in where else 0o100644) << 16
            archive.writestr(entry, Path(str(file.locate())).read_bytes())
        archive.writestr(f"{info}/RECORD", "")
    return path
