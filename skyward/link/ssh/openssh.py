"""An SSH connection made by OpenSSH's own program, in a process of its own: two to three times as fast as one in ours.

One `ssh` is the master of the connection; commands and tunnels go through its control socket. Its own session is open
for as long as it is, for two reasons: sshd sends without delay only where there is a session, and when its standard
input ends, because we are gone, however we went, it ends the connection with all that goes through it.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
from collections import deque
from collections.abc import Callable
from typing import Self

from skyward.link.connection.programs import run_here
from skyward.link.connection.transport import (
    ALIVE_EVERY,
    ALIVE_MISSES,
    CIPHERS,
    CONNECT_WITHIN,
    Completed,
    LinkError,
    refused,
    run_to_completion,
    socket_directory,
)
from skyward.providers.protocol import SSHAccess

__all__ = ["OpenSSH", "openssh_here"]

_LINES = 20

_logger = logging.getLogger(__name__)


def openssh_here() -> bool:
    """Whether the program is installed."""
    return shutil.which("ssh") is not None


class OpenSSH:
    """A connection. See `Transport`."""

    def __init__(self, access: SSHAccess, process: asyncio.subprocess.Process, control: str, host: str) -> None:
        self.broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._access = access
        self._process = process
        self._control = control
        self._host = host
        self._said: deque[str] = deque(maxlen=_LINES)
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    @classmethod
    async def connect(cls, access: SSHAccess) -> Self:
        """Connect, once.

        Raises:
            LinkError: it did not work out.
        """
        control = str(socket_directory() / secrets.token_hex(8))
        host, checking = await _host_checking(access)
        sign = f"skyward-{secrets.token_hex(4)}"
        process = await asyncio.create_subprocess_exec(
            "ssh", *_options(access), *checking, "-o", "ControlMaster=yes", "-o", f"ControlPath={control}",
            "--", access.host, f"exec sh -c 'echo {sign}; cat >/dev/null; kill $PPID'",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that Ctrl-C in a terminal is for us alone
        )  # fmt: skip  # one option a line would hide the command
        self = cls(access, process, control, host)
        try:
            async with asyncio.timeout(CONNECT_WITHIN + 5):
                await self._greeted(sign)
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise LinkError(f"{access.target} cannot be reached: it did not answer in time") from None
            raise
        return self

    async def _greeted(self, sign: str) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.decode(errors="replace").strip() == sign:
                return
        await self.broken
        raise refused(self._access, "\n".join(self._said))

    async def _watch(self) -> None:
        """Read what the program has to say until it ends, which is when the connection does."""
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            text = line.decode(errors="replace").strip()
            self._said.append(text)
            if "Permanently added" in text:
                _logger.warning("%s was met for the first time: its host key is trusted from now on", self._host)
        await self._process.wait()
        said = [line for line in self._said if line]
        self.broken.set_result(said[-1] if said else "the connection ended")

    def _through(self, *more: str) -> list[str]:
        """A command that uses the connection, and makes none of its own where that is gone."""
        ours = ("-o", "ControlMaster=no", "-o", f"ControlPath={self._control}", "-o", "ProxyCommand=false")
        return ["ssh", "-F", "none", "-T", "-o", "LogLevel=ERROR", *ours, *more]

    async def run(self, command: str, given: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
        """See `Transport`."""
        done = await run_here(self._through("--", "machine", command), given, on_line)
        if done.status == 255 and (self.broken.done() or not done.out):
            raise LinkError(f"the connection to {self._access.target} broke: {done.err.strip() or 'it ended'}")
        return done

    async def forward(self, local: str, host: str, remote: int, python: str) -> None:
        """See `Transport`."""
        there = f"[{host}]" if ":" in host else host
        process = await asyncio.create_subprocess_exec(
            *self._through("-O", "forward", "-L", f"{local}:{there}:{remote}", "--", "machine"),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip  # one option a line would hide the command
        _, err = await process.communicate()
        if process.returncode:
            raise LinkError(f"no tunnel to {self._access.target}: {err.decode(errors='replace').strip()}")

    async def close(self) -> None:
        """See `Transport`."""
        await run_to_completion(self._close())

    async def _close(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        try:
            async with asyncio.timeout(2.0):
                await asyncio.shield(self._watching)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._watching
        with contextlib.suppress(FileNotFoundError):  # it goes with the program, unless that was killed
            os.unlink(self._control)


def _options(access: SSHAccess) -> list[str]:
    """The options of every connection: never ask anybody, never wait for long, carry nothing but what we ask for."""
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": f"{CONNECT_WITHIN:.0f}",
        "ConnectionAttempts": "1",
        "ServerAliveInterval": str(ALIVE_EVERY),
        "ServerAliveCountMax": str(ALIVE_MISSES),
        "Ciphers": f"^{','.join(CIPHERS)}",
        "ControlPersist": "no",
        "ClearAllForwardings": "yes",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "StreamLocalBindMask": "0177",
        "StreamLocalBindUnlink": "yes",  # a socket of the connection before this one
        "PermitLocalCommand": "no",
        "RemoteCommand": "none",
        "LogLevel": "INFO",
    }
    return ["-T", *(word for name, value in options.items() for word in ("-o", f"{name}={value}")), *identity(access)]


def identity(access: SSHAccess) -> list[str]:
    """The options that say which configuration counts, which port it is, and who we are there."""
    words = []
    if access.config is not None:
        words += ["-F", "none" if access.config == "none" else os.path.expanduser(access.config)]
    if access.port is not None:
        words += ["-p", str(access.port)]
    if access.user is not None:
        words += ["-l", access.user]
    for key in access.client_keys:
        words += ["-i", os.path.expanduser(key)]
    if access.client_keys:
        words += ["-o", "IdentitiesOnly=yes"]
    return words


async def _host_checking(access: SSHAccess) -> tuple[str, list[str]]:
    """The machine's own name or address, and the options that say which host key it must have."""
    if (options := pinned(access)) is not None:
        return access.host, options
    said = await _effective(access)
    strict = said.get("stricthostkeychecking") in ("true", "yes")  # the user's own wish to be asked or refused
    return said.get("hostname", access.host), ["-o", f"StrictHostKeyChecking={'yes' if strict else 'accept-new'}"]


def pinned(access: SSHAccess) -> list[str] | None:
    """The options that say which host key it must have, where the pool says so; None where the configuration does."""
    if access.host_key is not None:
        kind, key = access.host_key.split()[:2]
        known = f"KnownHostsCommand=/bin/echo %H {kind} {key}"
        files = ["-o", "UserKnownHostsFile=none", "-o", "GlobalKnownHostsFile=none"]
        return ["-o", "StrictHostKeyChecking=yes", "-o", known, *files]
    if access.known_hosts is not None:
        files = ["-o", f"UserKnownHostsFile={_quoted(access.known_hosts)}", "-o", "GlobalKnownHostsFile=none"]
        return ["-o", "StrictHostKeyChecking=yes", *files]
    return None


async def _effective(access: SSHAccess) -> dict[str, str]:
    """What the user's configuration says of the machine."""
    process = await asyncio.create_subprocess_exec(
        "ssh", "-G", *_options(access), "--", access.host,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip  # one option a line would hide the command
    out, err = await process.communicate()
    if process.returncode:
        raise LinkError(f"the SSH configuration cannot be read: {err.decode(errors='replace').strip()}", final=True)
    return dict(line.split(" ", 1) for line in out.decode(errors="replace").splitlines() if " " in line)


def _quoted(path: str) -> str:
    """A path as a configuration takes it."""
    return '"' + os.path.expanduser(path).replace("%", "%%") + '"'
