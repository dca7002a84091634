"""The link to one machine, over SSH or a local command: commands, files and tunnels over one connection.

The connection is made again whenever it breaks.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shlex
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Self

from skyward.errors import NodeStartError
from skyward.link.connection.transport import (
    Completed,
    LinkError,
    Transport,
    is_path,
    run_to_completion,
    socket_directory,
)
from skyward.link.exec.transport import ExecTransport
from skyward.link.ssh.asyncssh import AsyncSSH
from skyward.link.ssh.openssh import OpenSSH, openssh_here
from skyward.providers.protocol import ExecAccess, RemoteAccess, SSHAccess

__all__ = ["SSHLink"]

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 2.0
"""Seconds between connection attempts: doubled from the first to the longest, unless the access sets them."""

_PORTS = 5
"""Ports tried for a tunnel: another program may take a port between our check and its use."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Tunnel:
    local: str
    host: str
    remote: int
    python: str


class SSHLink:
    """The link to one machine. Lives on the library's loop.

    A connection that breaks is made again, with its tunnels, on the same local ports where they are free; only after
    `access.grace` seconds without one is the link lost.

    Attributes:
        lost: ends, with the reason, once the machine is given up.
        since: when the connection was made, on the clock of the loop; infinity while there is none.
    """

    def __init__(self, access: RemoteAccess, transport: Transport) -> None:
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.since = asyncio.get_running_loop().time()
        self._access = access
        self._transport = transport
        self._tunnels: dict[tuple[str, int], _Tunnel] = {}
        self._sockets: list[_Tunnel] = []
        self._settled = asyncio.Event()
        self._settled.set()
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    @classmethod
    async def open(cls, access: RemoteAccess, within: float) -> Self:
        """Connect, and return the link. A machine that does not answer yet is tried again.

        Raises:
            NodeStartError: it did not answer `within` so many seconds, refuses us, or is not the expected machine.
        """
        pauses = _pauses(access)
        message = f"{access.target} cannot be reached"
        try:
            async with asyncio.timeout(within):
                while True:
                    try:
                        return cls(access, await _connect(access))
                    except LinkError as error:
                        if error.final:
                            raise NodeStartError(str(error)) from None
                        message = str(error)
                    await asyncio.sleep(next(pauses))
        except TimeoutError:
            raise NodeStartError(f"{message}; gave up after {within:.0f} s") from None

    async def run(self, command: str, stdin: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
        """Run a command with `stdin` as its standard input. `on_line` gets each line of its output, at once.

        Raises:
            LinkError: the connection was lost before it ended, or the machine is lost.
        """
        return await (await self._connected()).run(command, stdin, on_line)

    async def put(self, path: str, data: bytes) -> None:
        """Write a file, readable by the user alone, in an existing directory. Atomic.

        Raises:
            LinkError: the connection was lost, or the file could not be written.
        """
        name = shlex.quote(path)
        script = f"umask 077; cat >{name}.part && mv -f {name}.part {name}"
        done = await self.run(f"sh -c {shlex.quote(script)}", data)
        if done.status:
            raise LinkError(f"{path} could not be written on {self._access.target}: {done.err.strip()}")

    async def tunnel(self, host: str, remote: int, python: str = "python3") -> str:
        """Forward a port that the machine reaches to a local one, and return its `host:port`.

        Any user of this machine can connect there, and can listen there while the connection is broken: both ends of a
        tunnelled connection must authenticate themselves, and protect their data, as TLS does. The port may change
        after a break; `dial` returns the current one.

        `python` is an interpreter of the machine, for transports that need one.

        Raises:
            LinkError: the connection was lost, or no port was free.
        """
        tunnel = self._tunnels.get((host, remote))
        if tunnel is None:
            tunnel = _Tunnel(_free_port(), host, remote, python)
            await _forward(await self._connected(), tunnel)
            self._tunnels[host, remote] = tunnel
        return tunnel.local

    async def socket(self, host: str, remote: int, python: str = "python3") -> str:
        """Forward a remote port to a Unix socket that only this user can open, and return its path.

        Raises:
            LinkError: the connection was lost, or the socket could not be made.
        """
        path = str(socket_directory() / secrets.token_hex(8))
        tunnel = _Tunnel(path, host, remote, python)
        await _forward(await self._connected(), tunnel)
        self._sockets.append(tunnel)
        return path

    def dial(self, host: str, remote: int) -> str:
        """Return the current local address for a port that `tunnel` forwards; for any other, the port itself."""
        tunnel = self._tunnels.get((host, remote))
        return f"{host}:{remote}" if tunnel is None else tunnel.local

    async def _connected(self) -> Transport:
        await self._settled.wait()
        if self.lost.done():
            raise LinkError(self.lost.result(), final=True)
        return self._transport

    def _set_lost(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)
        self._settled.set()

    async def _keep(self) -> None:
        """Connect again whenever the connection breaks, until an outage exceeds the grace."""
        loop = asyncio.get_running_loop()
        while True:
            reason = await asyncio.shield(self._transport.broken)
            self._settled.clear()
            self.since = inf
            since = loop.time()
            _logger.info("the connection to %s was lost (%s); connecting again", self._access.target, reason)
            await self._transport.close()
            try:
                async with asyncio.timeout(self._access.grace):
                    self._transport = await self._reconnect()
            except TimeoutError:
                grace = f"{self._access.grace:g} s"
                self._set_lost(f"connection lost ({reason}); could not reconnect within {grace}")
                return
            except LinkError as error:
                self._set_lost(str(error))
                return
            _logger.info("connected to %s again after %.1f s", self._access.target, loop.time() - since)
            self.since = loop.time()
            self._settled.set()

    async def _reconnect(self) -> Transport:
        for pause in _pauses(self._access):
            try:
                transport = await _connect(self._access)
                try:
                    for tunnel in (*self._tunnels.values(), *self._sockets):
                        await _forward(transport, tunnel)
                except BaseException:
                    await transport.close()
                    raise
            except LinkError as error:
                if error.final:
                    raise
            else:
                return transport
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    async def close(self) -> None:
        """Close the connection and its tunnels. Idempotent."""
        await run_to_completion(self._close())

    async def _close(self) -> None:
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        self._set_lost("the connection was closed")
        with contextlib.suppress(LinkError):
            await self._transport.close()
        for tunnel in self._sockets:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(tunnel.local)


async def _forward(transport: Transport, tunnel: _Tunnel) -> None:
    """Make a tunnel, at another local port if its own is in use: another program may have taken it during an outage."""
    for attempts_left in reversed(range(_PORTS)):
        try:
            await transport.forward(tunnel.local, tunnel.host, tunnel.remote, tunnel.python)
        except LinkError:
            if not attempts_left or transport.broken.done() or is_path(tunnel.local):
                raise
            tunnel.local = _free_port()
        else:
            return


def _pauses(access: RemoteAccess) -> Iterator[float]:
    """Yield the seconds before each next connection attempt, without end."""
    fixed = access.retry_every if isinstance(access, SSHAccess) else None
    pause = fixed or _FIRST_PAUSE
    while True:
        yield pause
        pause = fixed or min(2 * pause, _LONGEST_PAUSE)


async def _connect(access: RemoteAccess) -> Transport:
    if isinstance(access, ExecAccess):
        return await ExecTransport.connect(access)
    if openssh_here():
        return await OpenSSH.connect(access)
    return await AsyncSSH.connect(access)


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
