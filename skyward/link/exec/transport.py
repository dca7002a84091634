"""A connection to a machine that is entered by a local command, such as `docker exec -i NAME`.

Each operation there is such a command: one lasts as long as the connection (the session), one runs for each of our
commands, and one for each tunnelled connection, whose socket is its standard input and output, so that its bytes do not
pass through this process. The machine needs a shell, and Python for tunnels; no server.

When this process is gone, for any reason, the standard input of the session ends, and it kills the running commands.
"""

import asyncio
import contextlib
import functools
import os
import secrets
import shlex
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Self

from skyward.link.connection.owner import is_of_this_user
from skyward.link.connection.programs import run_here
from skyward.link.connection.transport import (
    ALIVE_EVERY,
    ALIVE_MISSES,
    CONNECT_WITHIN,
    Completed,
    LinkError,
    is_path,
    run_to_completion,
)
from skyward.process.background_tasks import BackgroundTasks
from skyward.providers.protocol import ExecAccess

__all__ = ["ExecTransport"]

_SIGN = "skyward-session-"
"""Prefix of a connection's sign. Containers look for it: one without a session or a worker ends itself."""

_SESSION = """
echo up
cat
for process in /proc/[0-9]*; do
  if grep -qs "$0.run" "$process/cmdline"; then kill -KILL "-${process#/proc/}" || kill -KILL "${process#/proc/}"; fi
done 2>/dev/null
"""
"""Session: echoes its input, and kills the remaining commands of this connection at the end of input."""

_RUN = """
({command}
)
printf '\\n%s %d\\n' "$0" "$?" >&2
"""
"""Command that prints its exit status at the end: without it, the command was cut off."""

_RELAY = """
import os, socket, sys, threading
remote = socket.create_connection((sys.argv[1], int(sys.argv[2])))
remote.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def take():
    while data := os.read(0, 1 << 20):
        remote.sendall(data)
    remote.shutdown(socket.SHUT_WR)
threading.Thread(target=take, daemon=True).start()
while data := memoryview(remote.recv(1 << 20)):
    while data:
        data = data[os.write(1, data):]
"""

_GONE = (
    *("no such container", "is not running", "container state improper"),  # of container engines
    *('(notfound): pods "', "in a completed pod"),  # of kubectl, for a pod
    *("has expired", "invalid job id specified"),  # of Slurm, for a job
)
"""Messages for a machine that will not come back."""

_PAUSE_AFTER_STRANGER = 0.01
"""Seconds until the next connection is accepted after one of another user."""

_MOST_CARRIED = 64
"""Connections that a tunnel carries at a time, each with its own command. Others wait in the listen queue."""

_LINES = 20
_REASON_WITHIN = 0.5
_CLOSE_WITHIN = 2.0
"""Seconds that a broken connection has to report the reason, and a closed one to end by itself."""


class ExecTransport:
    """`Transport` over a local command."""

    def __init__(self, access: ExecAccess, process: asyncio.subprocess.Process, sign: str) -> None:
        loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[str] = loop.create_future()
        self._access = access
        self._process = process
        self._sign = sign
        self._errors: deque[str] = deque(maxlen=_LINES)
        self._up: asyncio.Future[None] = loop.create_future()
        self._unanswered = 0
        self._pinging = loop.create_task(self._ping())
        self._watching = loop.create_task(self._watch())
        self._tunnels = BackgroundTasks()

    @classmethod
    async def connect(cls, access: ExecAccess) -> Self:
        """Connect, in one attempt.

        Raises:
            LinkError: the attempt failed.
        """
        sign = f"{_SIGN}{secrets.token_hex(8)}"
        try:
            process = await asyncio.create_subprocess_exec(
                *_words(access, "sh", "-c", _SESSION, sign),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # so that Ctrl-C in a terminal does not reach it
            )  # fmt: skip  # one option a line would hide the command
        except OSError as error:
            raise LinkError(f"{access.target} cannot be entered: {error}", final=True) from None
        self = cls(access, process, sign)
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                await asyncio.wait((self._up, self.broken), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self.close()
            raise LinkError(f"{access.target} cannot be entered: it did not answer in time") from None
        except BaseException:
            await self.close()
            raise
        if not self._up.done():
            raise self._refused(self.broken.result())
        return self

    def _refused(self, message: str) -> LinkError:
        gone = any(words in message.lower() for words in _GONE)
        return LinkError(f"{self._access.target} cannot be entered: {message}", final=gone)

    async def _watch(self) -> None:
        """Read the session's output until it ends, or no longer answers; then end the connection."""
        reading = asyncio.gather(self._read_answers(), self._listen())
        await asyncio.wait((reading, self._pinging), return_when=asyncio.FIRST_COMPLETED)
        self._pinging.cancel()
        with contextlib.suppress(TimeoutError):  # another process may hold its output open, and live on
            async with asyncio.timeout(_REASON_WITHIN):
                await reading
                await self._process.wait()
        # Kills the process, and closes the pipes that another process may hold; there is no public API for that.
        self._process._transport.close()  # type: ignore[attr-defined]
        self.broken.set_result(self._errors[-1] if self._errors else "it ended")

    async def _read_answers(self) -> None:
        assert self._process.stdout is not None
        while await self._process.stdout.readline():
            self._unanswered = 0
            if not self._up.done():
                self._up.set_result(None)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            if text := line.decode(errors="replace").strip():
                self._errors.append(text)

    async def _ping(self) -> None:
        """Ping the session repeatedly: a frozen machine, or a cut cable, is silent."""
        assert self._process.stdin is not None
        await asyncio.wait([self._up])
        while self._unanswered < ALIVE_MISSES:
            self._unanswered += 1
            if not self._process.stdin.is_closing():  # otherwise it is ending, which `_watch` notices
                with contextlib.suppress(ConnectionError):
                    self._process.stdin.write(b"\n")
                    await self._process.stdin.drain()
            await asyncio.sleep(ALIVE_EVERY)
        self._errors.append(f"no answer for {ALIVE_EVERY * ALIVE_MISSES} s")

    async def run(self, command: str, stdin: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
        sign = f"{self._sign}.run"
        words = _words(self._access, "sh", "-c", _RUN.format(command=command), sign)
        done = await run_here(words, stdin, on_line)
        err, mark, status = done.err.rpartition(f"\n{sign} ")
        if not mark:
            errors = done.err.strip().splitlines()
            raise LinkError(f"the connection to {self._access.target} was lost: {errors[-1] if errors else 'it ended'}")
        return Completed(int(status), done.out, err)

    async def forward(self, local: str, host: str, remote: int, python: str) -> None:
        try:
            listening = _listen(local)
        except OSError as error:
            raise LinkError(f"no tunnel to {self._access.target}: {error}") from None
        listening.setblocking(False)
        command = _words(self._access, python, "-ISc", _RELAY, host, str(remote))
        self._tunnels.spawn(_accept(listening, command, self._tunnels.spawn))

    async def close(self) -> None:
        await run_to_completion(self._close())

    async def _close(self) -> None:
        await self._tunnels.cancel()
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                await asyncio.shield(self._watching)
        self._pinging.cancel()
        await self._watching


def _words(access: ExecAccess, *remote: str) -> tuple[str, ...]:
    """Return the arguments of the local command that runs a command on the machine."""
    is_shell = getattr(access, "shell", False)  # an entry of an older journal may lack the attribute
    return (*access.command, *(map(shlex.quote, remote) if is_shell else remote))


def _listen(local: str) -> socket.socket:
    """Return a socket that listens at `local`."""
    if not is_path(local):
        host, _, port = local.rpartition(":")
        return socket.create_server((host, int(port)))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(local)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(local)
        os.chmod(local, 0o600)
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


async def _accept(
    listening: socket.socket, command: tuple[str, ...], keep: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
) -> None:
    """Accept connections, and carry each with a command of its own."""
    carried: set[asyncio.Task[None]] = set()
    with listening:
        while True:
            while len(carried) >= _MOST_CARRIED:
                await asyncio.wait(carried, return_when=asyncio.FIRST_COMPLETED)
            await _wait_readable(listening)
            # No `await` until the connection has an owner: nothing closes what a cancelled task was about to return.
            with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
                connection, _ = listening.accept()
                if not is_of_this_user(connection):  # no command runs for another user
                    connection.close()
                    await asyncio.sleep(_PAUSE_AFTER_STRANGER)
                    continue
                task = keep(_carry(connection, command))
                carried.add(task)
                task.add_done_callback(carried.discard)
                task.add_done_callback(functools.partial(_close, connection))


async def _wait_readable(listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(listening, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listening)


def _close(connection: socket.socket, _carried: asyncio.Task[None]) -> None:
    connection.close()


async def _carry(connection: socket.socket, command: tuple[str, ...]) -> None:
    with connection:
        connection.setblocking(True)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        both = connection.fileno()
        process = await asyncio.create_subprocess_exec(
            *command, stdin=both, stdout=both, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
        )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
