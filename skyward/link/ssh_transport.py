"""What a connection to a machine does for us, whichever program makes it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from skyward.provider import SSHAccess

__all__ = [
    "ALIVE_EVERY",
    "ALIVE_MISSES",
    "CIPHERS",
    "CONNECT_WITHIN",
    "Completed",
    "LinkError",
    "Transport",
    "refused",
    "to_the_end",
]

CONNECT_WITHIN = 10.0
"""Seconds that one attempt to connect may take."""

ALIVE_EVERY = 2
ALIVE_MISSES = 3
"""A connection is given up when this many questions, so many seconds apart, have gone without an answer."""

CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""Preferred over others: with them a tunnel carries about twice as much as with ChaCha20."""


_ending: set[asyncio.Task[Any]] = set()


async def to_the_end[T](coroutine: Coroutine[Any, Any, T]) -> T:
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

    async def forward(self, port: int, host: str, remote: int, python: str) -> None:
        """Carry what connects to `port` on our loopback to a port that the machine reaches.

        `python` is an interpreter there, for whom that helps.

        Raises:
            LinkError: the port is taken, or the connection broke.
        """

    async def close(self) -> None:
        """End the connection. Twice does no harm."""


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
