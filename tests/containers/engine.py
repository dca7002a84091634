"""A container engine for the tests: Docker's daemon in separate namespaces, with one image.

Its network, mounts and processes are isolated, so this host's firewall, forwarding and bridges are unchanged, and all
of it ends with the test run, even a killed one. Needs root, `docker.io` and iproute2.

The image is almost empty: its containers mount the files of this host, read-only, including the virtual environment of
the tests. `MOUNTS` are the options for that.
"""

import contextlib
import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

__all__ = ["IMAGE", "MOUNTS", "Engine", "cgroups", "remove_cgroups", "why_not"]

IMAGE = "skyward-test:1"
ROOT = Path(__file__).parents[2]
_READY_WITHIN = 60.0
_EMPTY_WITHIN = 5.0
_OF_DOCKER = {"docker": "docker.io", "dockerd": "docker.io"}

_START = """
set -e
ip link set lo up
mount -t tmpfs tmpfs /run
exec dockerd --data-root {state}/data --exec-root /run/docker --pidfile /run/docker.pid -H unix://{state}/sock \\
  --cgroup-parent /{name} --bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false
"""


def _shown() -> Iterator[str]:
    """Yield the folders that the containers mount, each once."""
    paths = {Path("/usr"), ROOT, Path(sys.prefix), Path(sys.base_prefix)}
    yield from (str(path) for path in sorted(paths) if not any(path != each and each in path.parents for each in paths))


MOUNTS = tuple(word for path in _shown() for word in ("--volume", f"{path}:{path}:ro"))


def why_not(needed: Mapping[str, str] = MappingProxyType(_OF_DOCKER)) -> str:
    """Return the reason why an engine that needs these commands and packages cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "a container engine of our own needs root"
    wanted = {**needed, "ip": "iproute2", "setpriv": "util-linux"}
    missing = sorted({package for command, package in wanted.items() if not shutil.which(command)})
    return f"containers need {', '.join(missing)}" if missing else ""


class Engine:
    """A running engine.

    Attributes:
        host: its address, for `docker --host`.
        command: first arguments of its command.
    """

    def __init__(self) -> None:
        self._name = f"skyward-test-{secrets.token_hex(4)}"
        self._state = Path(tempfile.mkdtemp(prefix="docker-"))
        self.host = f"unix://{self._state}/sock"
        with (self._state / "log").open("w") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
                 "--mount-proc", "sh", "-c", self._start()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip  # one option a line would hide the command
        try:
            self.command = self._command()
            self._wait()
            self._import()
        except BaseException:
            self.close()
            raise

    def _start(self) -> str:
        """Return the script of its first process."""
        return _START.format(state=self._state, name=self._name)

    def _command(self) -> tuple[str, ...]:
        return ("docker", "--host", self.host)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of `sky.Container` for this engine, with this host's files mounted."""
        return {"host": self.host, "options": MOUNTS}

    @property
    def network_namespace(self) -> str:
        """Path of its network namespace."""
        return f"/proc/{self._process.pid}/ns/net"

    def _wait(self) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        while True:
            with contextlib.suppress(RuntimeError):
                self.call("version")
                return
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"the engine did not come up: {(self._state / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def _import(self) -> None:
        """Import an image of empty folders, with links into the mounts, and a user."""
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for name in ("etc", "root", "tmp", "usr", "run", "var"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
                archive.addfile(entry)
            for name in ("bin", "sbin", "lib", "lib64"):
                if Path("/usr", name).exists():
                    entry = tarfile.TarInfo(name)
                    entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
                    archive.addfile(entry)
            files = {"etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n", "etc/group": b"root:x:0:\n"}
            files["etc/ld.so.cache"] = Path("/etc/ld.so.cache").read_bytes()
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o644
                archive.addfile(entry, io.BytesIO(content))
        self.call("import", "-", IMAGE, given=made.getvalue())

    def call(self, *words: str, given: bytes = b"") -> str:
        """Run a command of the engine, and return its output."""
        command = [*self.command, *words]
        done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode().strip()}")
        return done.stdout.decode()

    def containers(self) -> list[str]:
        """Return the names of its containers, including exited ones."""
        return self.call("ps", "--all", "--format", "{{.Names}}").split()

    def of(self, pool: str) -> list[str]:
        """Return the containers with the label of a pool of that name."""
        listed = self.call("ps", "--all", "--format", '{{.Names}} {{.Label "skyward-pool"}}').splitlines()
        return [name for name, _, label in (line.partition(" ") for line in listed) if label.startswith(f"{pool}-")]

    def networks(self) -> list[str]:
        """Return its networks, except the default ones."""
        return self.call("network", "ls", "--filter", "type=custom", "--format", "{{.Name}}").split()

    def inspect(self, name: str) -> Mapping[str, Any]:
        """Return its description of a container."""
        words: Mapping[str, Any] = json.loads(self.call("container", "inspect", name))[0]
        return words

    def entering(self, name: str) -> list[int]:
        """Return the processes of this host that run the engine's `exec` in a container."""
        found = []
        for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"exec" in words and name.encode() in words:
                    found.append(pid)
        return found

    def close(self) -> None:
        """Stop the engine, with all its containers."""
        with contextlib.suppress(RuntimeError):
            if left := self.containers():
                self.call("rm", "--force", *left)
        self._process.kill()
        self._process.wait()
        remove_cgroups(cgroups(self._name))
        shutil.rmtree(self._state, ignore_errors=True)


def cgroups(name: str) -> list[Path]:
    """Return the control groups of that name, in every hierarchy."""
    return sorted(Path("/sys/fs/cgroup").glob(f"**/{name}"), reverse=True)


def remove_cgroups(paths: Sequence[Path]) -> None:
    """Remove control groups and those inside them, once their processes have ended."""
    deadline = time.monotonic() + _EMPTY_WITHIN
    while left := [path for path in paths if path.exists()]:
        for path in left:
            for folder in [*sorted(path.glob("**/"), reverse=True), path]:
                with contextlib.suppress(OSError):
                    folder.rmdir()
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
