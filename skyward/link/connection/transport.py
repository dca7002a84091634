"""What a connection to a machine does for us, whichever program makes it."""

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
"""Seconds that one attempt to connect may take."""

ALIVE_EVERY = 2
ALIVE_MISSES = 3
"""A connection is given up when this many questions, so many seconds apart, have gone without an answer."""

_STALE = 86_400.0
"""Seconds after which a Unix socket at which nobody listens is removed."""

CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""Preferred over others: with them a tunnel carries about twice as much as with ChaCha20."""


_ending: set[asyncio.Task[Any]] = set()


async def run_to_completion[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of what must happen whole: it goes on where the caller is cancelled."""
    task = asyncio.get_running_loop().create_task(coroutine)
    _ending.add(task)
    task.add_done_callback(_ending.discard)
    return await asyncio.shield(task)


class LinkError(ConnectionError):
    """A machine cannot be reached. With `final`, trying again would not help."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


@dataclass(frozen=True, slots=True)
class Completed:
    """What became of a command."""

    status: int
    out: str
    err: str


class Transport(Protocol):
    """One connection, as long as it lasts."""

    broken: asyncio.Future[str]
    """Done, with the reason, once the connection is no more."""

    async def run(self, command: str, given: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
        """Run a command with `given` as its standard input. `on_line` takes each line that it prints, at once.

        Raises:
            LinkError: the connection broke before the command ended.
        """

    async def forward(self, local: str, host: str, remote: int, python: str) -> None:
        """Carry what connects to `local` to a port that the machine reaches.

        `local` is `host:port` on our loopback, or the path of a Unix socket, which is replaced where it exists.
        `python` is an interpreter there, for whom that helps.

        Raises:
            LinkError: the port is taken, or the connection broke.
        """

    async def close(self) -> None:
        """End the connection. Twice does no harm."""


def is_path(local: str) -> bool:
    """Return whether the local end of a tunnel is a Unix socket."""
    return local.startswith("/")


def socket_directory() -> Path:
    """Return the directory of this user's Unix sockets, which nobody else can enter. It stays.

    A socket goes with its connection, unless the client was killed: those are removed here when they are a day old.

    Raises:
        LinkError: somebody else has made it.
    """
    path = Path(tempfile.gettempdir()) / f"sky-ssh-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    state = path.lstat()
    if path.is_symlink() or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise LinkError(f"{path} must be a directory of yours alone (mode 700)", final=True)
    for left in path.iterdir():
        with contextlib.suppress(OSError):  # another process of ours has removed it
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


def refused(access: "SSHAccess", said: str) -> LinkError:
    """What to raise for a connection that was not made, from what the program that tried it `said`."""
    where = access.target
    source = access.known_hosts or ("the key that was given" if access.host_key else "the known hosts")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if "IDENTIFICATION HAS CHANGED" in said or "Host key is not trusted" in said:
        return LinkError(
            f"{where} shows another host key than {source} has for it: it is not the same machine, or was set up anew; "
            "if you know why, remove the old key (`ssh-keygen -R`) and connect again",
            final=True,
        )
    if "Host key verification failed" in said:
        return LinkError(f"the host key of {where} is not in {source}; add it (`ssh-keyscan` shows it)", final=True)
    if "Permission denied" in said:
        return LinkError(f"{where} lets none of our keys in: {lines[-1]}", final=True)
    return LinkError(f"{where} cannot be reached: {lines[-1] if lines else 'the connection ended at once'}")
