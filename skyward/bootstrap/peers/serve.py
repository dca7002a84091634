"""Run on a node, by the interpreter of its environment: sends that environment to one other node of the pool.

    python -m skyward.bootstrap.peers.serve <REQUEST

It prints one line of JSON with the port, its size if it is too small, or a reason to refuse; and at the end, one with
the outcome. The other node sends a line with the token, and receives an archive with the folder `env`, and `python` if
the base interpreter is Skyward's own. Then it asks for the seal in the same way. The environment is sent as it was
installed: without variables, files of tasks, settings of the bootstrap and included files, which are elsewhere.
"""

import contextlib
import hashlib
import hmac
import io
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from skyward.bootstrap.facts import facts  # circular: this is a program of its own, which nothing imports
from skyward.bootstrap.peers.offer import PROCESSORS, EnvironmentRequest, MachineKind, seal

__all__ = ["EnvironmentFiles", "RefusedError", "SendOutcome", "main", "send"]

type SendOutcome = Literal["sent", "unreached", "broken"]
"""Outcome of a request: the environment was sent; the other node never came; or the transfer was interrupted."""

_COMES_WITHIN = 15.0
"""Seconds in which the other node must connect. Its own limit is shorter."""

_SAYS_WITHIN = 2.0
_SILENCE = 8.0
"""Seconds that a connection may take for its first line, and for anything after that."""

_BLOCK = 1024 * 1024
_LONGEST_LINE = 200
_PARENT_CHECKED_EVERY = 1.0


class RefusedError(Exception):
    """Raised when the environment must not be sent; the message is the reason."""


@dataclass(frozen=True, slots=True)
class EnvironmentFiles:
    """The files to send.

    Attributes:
        folders: paths of folders and links, by their names in the archive.
        base: path of the interpreter that the environment needs besides; "" if it is among the folders.
        size: size in bytes.
    """

    folders: tuple[tuple[str, Path], ...]
    base: str
    size: int

    @classmethod
    def of(cls, env: Path, interpreter: Path, prefix: Path) -> "EnvironmentFiles":
        """Return the contents of an environment.

        Args:
            env: the environment, `ROOT/envs/HASH`.
            interpreter: path of its base interpreter.
            prefix: the folder of that.

        Raises:
            RefusedError: the environment was changed since it was made, so that it is not what the image says.
        """
        root = env.parents[1]
        mark = root / "state" / env.name / "ready"
        try:
            made = mark.stat().st_mtime
            packages = json.loads(mark.read_text().splitlines()[1])["packages"]
        except (OSError, LookupError, ValueError):
            raise RefusedError("its environment is incomplete") from None
        if json.loads(facts())["packages"] != packages:
            raise RefusedError("packages of its environment were changed")
        size = 0
        for path, found in _files(env):
            if found.st_mtime > made and not _is_compiled(path):
                raise RefusedError(f"its environment was changed ({path.name})")
            size += found.st_size
        folders = [("env", env)]
        own = root / "python"
        if own not in prefix.resolve().parents and own.resolve() not in prefix.resolve().parents:
            return cls(tuple(folders), str(interpreter), size)
        names = sorted(name for name in os.listdir(own) if not name.startswith("."))
        folders += [(f"python/{name}", own / name) for name in names if (own / name).resolve() == prefix.resolve()]
        return cls(tuple(folders), "", size + sum(file.st_size for _, file in _files(prefix)))


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the regular files below a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):  # a temporary file of the interpreter
                    yield Path(entry.path), entry.stat(follow_symlinks=False)


def _is_compiled(path: Path) -> bool:
    return path.parent.name == "__pycache__"


class _Sink(io.RawIOBase):
    """The connection as a file, with the digest of all that was written."""

    def __init__(self, connection: socket.socket) -> None:
        self.digest = hashlib.sha256()
        self._connection = connection
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self._connection.sendall(data)
        self._written += len(data)
        return len(data)


def send(connection: socket.socket, contents: EnvironmentFiles) -> str:
    """Send the archive; return its SHA-256 in hex.

    Raises:
        OSError: the connection was lost, or a file was changed meanwhile.
    """
    sink = _Sink(connection)
    with (
        io.BufferedWriter(sink, _BLOCK) as blocks,
        tarfile.TarFile(fileobj=blocks, mode="w", format=tarfile.GNU_FORMAT, copybufsize=_BLOCK) as archive,
    ):
        for name, folder in contents.folders:
            _add(archive, name, folder)
    return str(sink.digest.hexdigest())


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    """Add a file, link or folder. Compiled modules may disappear, as the interpreter replaces them."""
    if _is_compiled(path) and path.suffix != ".pyc":
        return
    try:
        if path.is_symlink() or path.is_dir():
            entry = archive.gettarinfo(path, name)
            archive.addfile(_plain(entry))
        elif path.is_file():
            with path.open("rb") as content:
                entry = archive.gettarinfo(arcname=name, fileobj=content)
                if entry.islnk():  # a second name of a file: sent as a file, so that the first may disappear
                    entry.type, entry.size = tarfile.REGTYPE, os.fstat(content.fileno()).st_size
                archive.addfile(_plain(entry), content)
            return
    except FileNotFoundError:
        if not _is_compiled(path):
            raise
        return
    if path.is_dir() and not path.is_symlink():
        for each in sorted(os.listdir(path)):
            _add(archive, f"{name}/{each}", path / each)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _accept(listener: socket.socket, token: str, until: float) -> socket.socket:
    """Return the next connection that presents the token.

    Raises:
        TimeoutError: there was none in time.
    """
    while True:
        listener.settimeout(max(0.01, until - time.monotonic()))
        connection, _ = listener.accept()
        try:
            connection.settimeout(_SAYS_WITHIN)
            if hmac.compare_digest(_line(connection), token.encode()):
                connection.settimeout(_SILENCE)
                return connection
        except OSError:
            pass
        connection.close()
        if time.monotonic() > until:
            raise TimeoutError


def _line(connection: socket.socket) -> bytes:
    said = b""
    while not said.endswith(b"\n") and len(said) < _LONGEST_LINE:
        block = connection.recv(_LONGEST_LINE)
        if not block:
            break
        said += block
    return said.removesuffix(b"\n")


def _serve(listener: socket.socket, request: EnvironmentRequest, contents: EnvironmentFiles) -> SendOutcome:
    try:
        connection = _accept(listener, request.token, time.monotonic() + _COMES_WITHIN)
    except TimeoutError:
        return "unreached"
    try:
        with connection:
            digest = send(connection, contents)
        with _accept(listener, request.token, time.monotonic() + _SILENCE) as connection:
            connection.sendall(f"{seal(request.key, digest)}\n".encode())
    except OSError:
        return "broken"
    return "sent"


def _end_with(parent: int) -> None:
    """End this process with its parent, which ends when the client's connection does."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECKED_EVERY)
    os._exit(1)


def _kind() -> MachineKind:
    system = os.uname()
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except ValueError:
        libc = None
    if not libc:
        raise RefusedError("its C library is not glibc")
    found = subprocess.run(["sh", "-c", PROCESSORS], capture_output=True, text=True, check=False)
    return MachineKind(system.sysname, system.machine, libc, found.stdout.strip())


def _check_kind(other: MachineKind, own: MachineKind, env: Path) -> None:
    """Check that the environment can be used on another kind of machine.

    Raises:
        RefusedError: the platforms differ; or the processors do, and packages were compiled on this machine.
    """
    if replace(other, processors="") != replace(own, processors=""):
        raise RefusedError("its platform is another one")
    if other.processors != own.processors and (built := _built(env)):
        raise RefusedError(f"its processors are others, and {built} was compiled for them")


def _built(env: Path) -> str:
    """Return a package that may have been compiled on this machine, by the tag of its wheel; "" if there is none."""
    for described in env.glob("lib/python*/site-packages/*.dist-info/WHEEL"):
        if any(line.startswith("Tag:") and "-linux_" in line for line in described.read_text().splitlines()):
            return described.parent.name.removesuffix(".dist-info")
    return ""


def _say(words: dict[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(words)}\n")
    sys.stdout.flush()


def main() -> None:
    """Serve one request."""
    request = EnvironmentRequest.read(sys.stdin.read())
    signal.alarm(max(1, round(request.within)))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        _check_kind(request.kind, _kind(), Path(sys.prefix))
        base = str(getattr(sys, "_base_executable", sys.executable))
        contents = EnvironmentFiles.of(Path(sys.prefix), Path(base), Path(sys.base_prefix))
        if contents.size < request.least:
            _say({"small": contents.size})
            return
        listener = socket.create_server((request.address, 0), family=_family(request.address), backlog=2)
    except (RefusedError, OSError) as error:
        _say({"refused": str(error)})
        return
    with listener:
        answer = {
            "port": listener.getsockname()[1],
            "size": contents.size,
            "base": contents.base,
            "python": platform.python_version(),
        }
        _say(answer)
        _say({"outcome": _serve(listener, request, contents)})


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


if __name__ == "__main__":
    main()
