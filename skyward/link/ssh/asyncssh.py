"""Our end of an SSH connection that asyncssh makes in a child process, for machines without an `ssh` command."""

import asyncio
import base64
import contextlib
import itertools
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any, Self

from skyward.link.connection.programs import end_within
from skyward.link.connection.transport import CONNECT_WITHIN, Completed, LinkError, refused, run_to_completion
from skyward.link.ssh.child import LINE_LIMIT
from skyward.providers.protocol import SSHAccess

__all__ = ["AsyncSSH"]

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Request:
    """A request without an answer."""

    done: "asyncio.Future[Completed]"
    on_line: Callable[[str], None] | None = None
    lines: list[str] = field(default_factory=list)


class AsyncSSH:
    """`Transport` over asyncssh."""

    def __init__(self, access: SSHAccess, process: asyncio.subprocess.Process) -> None:
        loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[str] = loop.create_future()
        self._access = access
        self._process = process
        self._numbers = itertools.count(1)
        self._requests: dict[int, _Request] = {}
        self._up: asyncio.Future[None] = loop.create_future()
        self._last_message = "the connection ended"
        self._reading = loop.create_task(self._read())

    @classmethod
    async def connect(cls, access: SSHAccess) -> Self:
        """Connect, in one attempt.

        Raises:
            LinkError: the attempt failed.
        """
        if find_spec("asyncssh") is None:
            raise LinkError(
                "there is no `ssh` command here, and asyncssh is not installed: install OpenSSH's client, or "
                "`pip install 'skyward-jupyter[ssh]'`",
                final=True,
            )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "skyward.link.ssh.child",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            start_new_session=True, limit=LINE_LIMIT,  # a new session: Ctrl-C in a terminal must not reach it
        )  # fmt: skip  # one option a line would hide the command
        self = cls(access, process)
        try:
            await self._write(asdict(access))
            async with asyncio.timeout(3 * CONNECT_WITHIN):
                await self._up
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise LinkError(f"{access.target} cannot be reached: it did not answer in time") from None
            raise
        return self

    async def _write(self, words: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # the process has ended, which `_read` reports
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
            await self._process.stdin.drain()

    async def _read(self) -> None:
        """Handle messages of the process until it ends, with the connection."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._handle(json.loads(line))
        await self._process.wait()
        for request in self._requests.values():
            if not request.done.done():
                request.done.set_exception(LinkError(f"the connection to {self._access.target} was lost"))
        if not self._up.done():
            self._up.set_exception(refused(self._access, self._last_message))
        self.broken.set_result(self._last_message)

    def _handle(self, words: dict[str, Any]) -> None:
        match words:
            case {"event": "up"}:
                self._up.set_result(None)
            case {"event": "refused", "message": message}:
                self._last_message = message
            case {"event": "new_host", "host": host}:
                _logger.warning("first connection to %s: its host key is trusted from now on", host)
            case {"id": id, "line": line} if id in self._requests:
                request = self._requests[id]
                request.lines.append(line)
                if request.on_line is not None:
                    request.on_line(line.rstrip("\n"))
            case {"id": id, "status": status, "err": err} if id in self._requests:
                request = self._requests.pop(id)
                request.done.set_result(Completed(status, "".join(request.lines), err))
            case {"id": id, "error": error} if id in self._requests:
                self._requests.pop(id).done.set_exception(LinkError(f"{self._access.target}: {error}"))

    async def _ask(self, words: dict[str, Any], on_line: Callable[[str], None] | None = None) -> Completed:
        if self.broken.done():
            raise LinkError(f"the connection to {self._access.target} was lost")
        id = next(self._numbers)
        request = self._requests[id] = _Request(asyncio.get_running_loop().create_future(), on_line)
        try:
            await self._write({"id": id, **words})
            return await request.done
        finally:
            if self._requests.pop(id, None) is not None:
                await self._write({"id": id, "do": "stop"})

    async def run(self, command: str, stdin: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
        return await self._ask({"do": "run", "command": command, "stdin": base64.b64encode(stdin).decode()}, on_line)

    async def forward(self, local: str, host: str, remote: int, python: str) -> None:
        await self._ask({"do": "forward", "local": local, "host": host, "remote": remote})

    async def close(self) -> None:
        await run_to_completion(self._close())

    async def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await end_within(self._process, self._reading, 2.0)
        if self._up.done() and not self._up.cancelled():
            self._up.exception()  # retrieved, so that asyncio does not log it
