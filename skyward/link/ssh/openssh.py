"""An SSH connection made by OpenSSH's own program, in a separate process: two to three times as fast as asyncssh.

One `ssh` process is the master of the connection; commands and tunnels use its control socket. It keeps a session of
its own open, for two reasons: sshd disables delays only for connections with a session, and when its standard input
ends, because this process is gone for any reason, it closes the connection and all its tunnels.
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

from skyward.link.connection.programs import end_within, run_here
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

__all__ = ["OpenSSH", "batch", "login", "openssh_here"]

_LINES = 20

_logger = logging.getLogger(__name__)


def openssh_here() -> bool:
    """Return whether the `ssh` command is installed."""
    return shutil.which("ssh") is not None


class OpenSSH:
    """`Transport` over OpenSSH."""

    def __init__(self, access: SSHAccess, process: asyncio.subprocess.Process, control: str, host: str) -> None:
        self.broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._access = access
        self._process = process
        self._control = control
        self._host = host
        self._messages: deque[str] = deque(maxlen=_LINES)
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    @classmethod
    async def connect(cls, access: SSHAccess) -> Self:
        """Connect, in one attempt.

        Raises:
            LinkError: the attempt failed.
        """
        control = str(socket_directory() / secrets.token_hex(8))
        host, checking = await _host_checking(access)
        ready_mark = f"skyward-{secrets.token_hex(4)}"
        process = await asyncio.create_subprocess_exec(
            "ssh", *_options(access), *checking, "-o", "ControlMaster=yes", "-o", f"ControlPath={control}",
            "--", access.host, f"exec sh -c 'echo {ready_mark}; cat >/dev/null; kill $PPID'",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that Ctrl-C in a terminal does not reach it
        )  # fmt: skip  # one option a line would hide the command
        self = cls(access, process, control, host)
        try:
            async with asyncio.timeout(CONNECT_WITHIN + 5):
                await self._wait_ready(ready_mark)
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise LinkError(f"{access.target} cannot be reached: it did not answer in time") from None
            raise
        return self

    async def _wait_ready(self, ready_mark: str) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.decode(errors="replace").strip() == ready_mark:
                return
        await self.broken
        raise refused(self._access, "\n".join(self._messages))

    async def _watch(self) -> None:
        """Read the program's messages until it ends, with the connection."""
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            text = line.decode(errors="replace").strip()
            self._messages.append(text)
            if "Permanently added" in text:
                _logger.warning("first connection to %s: its host key is trusted from now on", self._host)
        await self._process.wait()
        messages = [line for line in self._messages if line]
        self.broken.set_result(messages[-1] if messages else "the connection ended")

    def _through(self, *more: str) -> list[str]:
        """Return a command that uses the connection, and never makes one of its own."""
        options = ("-o", "ControlMaster=no", "-o", f"ControlPath={self._control}", "-o", "ProxyCommand=false")
        return ["ssh", "-F", "none", "-T", "-o", "LogLevel=ERROR", *options, *more]

    async def run(self, command: str, stdin: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
        done = await run_here(self._through("--", "machine", command), stdin, on_line)
        if done.status == 255 and (self.broken.done() or not done.out):
            raise LinkError(f"the connection to {self._access.target} was lost: {done.err.strip() or 'it ended'}")
        return done

    async def forward(self, local: str, host: str, remote: int, python: str) -> None:
        address = f"[{host}]" if ":" in host else host
        process = await asyncio.create_subprocess_exec(
            *self._through("-O", "forward", "-L", f"{local}:{address}:{remote}", "--", "machine"),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip  # one option a line would hide the command
        _, err = await process.communicate()
        if process.returncode:
            raise LinkError(f"no tunnel to {self._access.target}: {err.decode(errors='replace').strip()}")

    async def close(self) -> None:
        await run_to_completion(self._close())

    async def _close(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        await end_within(self._process, self._watching, 2.0)
        with contextlib.suppress(FileNotFoundError):  # the program removes it, unless it was killed
            os.unlink(self._control)


def _options(access: SSHAccess) -> list[str]:
    """Return the options of every connection: no prompts, short timeouts, no forwarding that was not requested."""
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
        "StreamLocalBindUnlink": "yes",  # the socket of an earlier connection
        "PermitLocalCommand": "no",
        "RemoteCommand": "none",
        "LogLevel": "INFO",
    }
    return ["-T", *(word for name, value in options.items() for word in ("-o", f"{name}={value}")), *identity(access)]


def identity(access: SSHAccess) -> list[str]:
    """Return the options for the configuration file, the port and the login."""
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
    """Return the machine's real name or address, and the options for its host key."""
    if (options := pinned(access)) is not None:
        return access.host, options
    effective = await _effective(access)
    strict = effective.get("stricthostkeychecking") in ("true", "yes")  # the user requires known hosts
    return effective.get("hostname", access.host), ["-o", f"StrictHostKeyChecking={'yes' if strict else 'accept-new'}"]


def pinned(access: SSHAccess) -> list[str] | None:
    """Return the options for a host key that the pool sets; None where the user's configuration decides."""
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
    """Return the effective options of the user's configuration for the machine."""
    process = await asyncio.create_subprocess_exec(
        "ssh", "-G", *_options(access), "--", access.host,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip  # one option a line would hide the command
    out, err = await process.communicate()
    if process.returncode:
        raise LinkError(f"the SSH configuration cannot be read: {err.decode(errors='replace').strip()}", final=True)
    return dict(line.split(" ", 1) for line in out.decode(errors="replace").splitlines() if " " in line)


def _quoted(path: str) -> str:
    """Return a path as an SSH configuration needs it."""
    return '"' + os.path.expanduser(path).replace("%", "%%") + '"'


def batch(access: SSHAccess) -> list[str]:
    """Return the words of a command that runs another one on the machine, which follows as one word, without prompts.

    Options that the pool does not set come from the user's configuration.
    """
    return ["ssh", *_options(access), *(pinned(access) or ()), "--", access.host]


def login(access: SSHAccess) -> list[str]:
    """Return the words of a command that opens a shell on the machine.

    Options that the pool does not set come from the user's configuration.
    """
    return ["ssh", "-t", *identity(access), *(pinned(access) or ()), "--", access.host]
