"""Interface of a connection to a machine, common to all programs that make one."""

import asyncio
import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from skyward.process.background_tasks import BackgroundTasks

if TYPE_CHECKING:
    from skyward.providers.protocol import SSHAccess

__all__ = [
    "ALIVE_EVERY",
    "ALIVE_MISSES",
    "CIPHERS",
    "CONNECT_WITHIN",
    "Completed",
    "LinkError",
    "Transport",
    "is_path",
    "refused",
    "run_to_completion",
    "socket_directory",
]

CONNECT_WITHIN = 10.0
"""Seconds that one connection attempt may take."""

ALIVE_EVERY = 2
ALIVE_MISSES = 3
"""A connection is given up when this many keepalives, so many seconds apart, have had no answer."""

_STALE = 86_400.0
"""Seconds after which a Unix socket without a listener is removed."""

CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""Preferred ciphers: a tunnel has about twice the throughput that it has with ChaCha20."""


_ending = BackgroundTasks()


async def run_to_completion[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also if the caller is cancelled; return its result."""
    return await asyncio.shield(_ending.spawn(coroutine))


class LinkError(ConnectionError):
    """A machine cannot be reached. With `final`, another attempt is pointless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


@dataclass(frozen=True, slots=True)
class Completed:
    """Result of a command."""

    status: int
    out: str
    err: str


class Transport(Protocol):
    """One connection, until it breaks."""

    broken: asyncio.Future[str]
    """Ends with the reason, once the connection has broken."""

    async def run(self, command: str, given: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
        """Run a command with `given` as its standard input. `on_line` gets each line of its output, at once.

        Raises:
            LinkError: the connection was lost before the command ended.
        """

    async def forward(self, local: str, host: str, remote: int, python: str) -> None:
        """Forward connections to `local` to a port that the machine can reach.

        `local` is `host:port` on our loopback, or the path of a Unix socket, which is replaced if it exists. `python`
        is an interpreter on the machine, for transports that need one.

        Raises:
            LinkError: the port is in use, or the connection was lost.
        """

    async def close(self) -> None:
        """End the connection. Idempotent."""


def is_path(local: str) -> bool:
    """Return whether the local end of a tunnel is a Unix socket."""
    return local.startswith("/")


def socket_directory() -> Path:
    """Return the directory of this user's Unix sockets, which no other user can enter. It is never removed.

    A socket is removed with its connection, unless the client was killed: sockets older than a day are removed here.

    Raises:
        LinkError: another user has created it.
    """
    path = Path(tempfile.gettempdir()) / f"sky-ssh-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    state = path.lstat()
    if path.is_symlink() or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise LinkError(f"{path} must be a directory that only you can access (mode 700)", final=True)
    for left in path.iterdir():
        with contextlib.suppress(OSError):  # another process of ours removed it
            if left.stat().st_mtime < time.time() - _STALE and not _answers(left):
                left.unlink()
    return path


def _answers(path: Path) -> bool:
    """Return whether a program listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def refused(access: "SSHAccess", output: str) -> LinkError:
    """Return the error for a failed connection, from the output of the program that tried it."""
    where = access.target
    source = access.known_hosts or ("the key that was given" if access.host_key else "the known hosts")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if "IDENTIFICATION HAS CHANGED" in output or "Host key is not trusted" in output:
        return LinkError(
            f"{where} shows another host key than {source} has for it: it is not the same machine, or was reinstalled; "
            "if you expected that, remove the old key (`ssh-keygen -R`) and connect again",
            final=True,
        )
    if "Host key verification failed" in output:
        return LinkError(f"the host key of {where} is not in {source}; add it (`ssh-keyscan` shows it)", final=True)
    if "Permission denied" in output:
        return LinkError(f"{where} accepts none of our keys: {lines[-1]}", final=True)
    return LinkError(f"{where} cannot be reached: {lines[-1] if lines else 'the connection ended at once'}")
