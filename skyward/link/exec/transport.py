"""A connection to a machine that is entered by a command here, such as `docker exec -i NAME`.

Each thing that we do there is such a command: one stays for as long as the connection does, one runs for each of our
commands, and one for each connection that goes through a tunnel, whose socket is its standard input and output, so that
its bytes do not pass through this process. The machine needs a shell for that, and Python for tunnels; no server.

When we are gone, however we went, the standard input of the one that stays ends, and it ends the commands that run.
"""

import asyncio
import contextlib
import functools
import os
import secrets
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Self

from skyward.link.connection.connection_owner import is_of_this_user
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
from skyward.providers.protocol import ExecAccess

__all__ = ["ExecTransport"]

_SIGN = "skyward-session-"
"""How the sign of a connection begins. Containers look for it: one with no session and no worker ends itself."""

_STAY = """
echo up
cat
for process in /proc/[0-9]*; do
  if grep -qs "$0.run" "$process/cmdline"; then kill -KILL "-${process#/proc/}" || kill -KILL "${process#/proc/}"; fi
done 2>/dev/null
"""
"""Answers what it hears, and ends what of this connection still runs when it hears no more."""

_RUN = """
({command}
)
printf '\\n%s %d\\n' "$0" "$?" >&2
"""
"""Says at the end how the command went: without that, it was cut."""

_RELAY = """
import os, socket, sys, threading
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def take():
    while data := os.read(0, 1 << 20):
        there.sendall(data)
    there.shutdown(socket.SHUT_WR)
threading.Thread(target=take, daemon=True).start()
while data := memoryview(there.recv(1 << 20)):
    while data:
        data = data[os.write(1, data):]
"""

_GONE = ("no such container", "is not running", "container state improper")
"""What engines say of a container that will not come back."""

_AFTER_STRANGER = 0.01
"""Seconds until the next connection is accepted after one of another user."""

_MOST_CARRIED = 64
"""Connections that a tunnel carries at a time, each with a command of its own. Others wait in the listen queue."""

_LINES = 20
_LAST_WORDS = 0.5
_CLOSE_WITHIN = 2.0
"""Seconds that a connection which is over has to say why, and one that is closed to end by itself."""


class ExecTransport:
    """A connection. See `Transport`."""

    def __init__(self, access: ExecAccess, process: asyncio.subprocess.Process, sign: str) -> None:
        loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[str] = loop.create_future()
        self._access = access
        self._process = process
        self._sign = sign
        self._said: deque[str] = deque(maxlen=_LINES)
        self._up: asyncio.Future[None] = loop.create_future()
        self._unanswered = 0
        self._pinging = loop.create_task(self._ping())
        self._watching = loop.create_task(self._watch())
        self._tunnels: set[asyncio.Task[None]] = set()

    @classmethod
    async def connect(cls, access: ExecAccess) -> Self:
        """Connect, once.

        Raises:
            LinkError: it did not work out.
        """
        sign = f"{_SIGN}{secrets.token_hex(8)}"
        try:
            process = await asyncio.create_subprocess_exec(
                *access.command, "sh", "-c", _STAY, sign,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # so that Ctrl-C in a terminal is for us alone
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

    def _refused(self, said: str) -> LinkError:
        gone = any(words in said.lower() for words in _GONE)
        return LinkError(f"{self._access.target} cannot be entered: {said}", final=gone)

    async def _watch(self) -> None:
        """Hear what stays there until it ends, or no longer answers, which is when the connection ends."""
        hearing = asyncio.gather(self._hear(), self._listen())
        await asyncio.wait((hearing, self._pinging), return_when=asyncio.FIRST_COMPLETED)
        self._pinging.cancel()
        with contextlib.suppress(TimeoutError):  # another process may hold its output, and live on
            async with asyncio.timeout(_LAST_WORDS):
                await hearing
                await self._process.wait()
        # Kills it, and lets go of the pipes that another may hold; nothing public does that.
        self._process._transport.close()  # type: ignore[attr-defined]
        self.broken.set_result(self._said[-1] if self._said else "it ended")

    async def _hear(self) -> None:
        assert self._process.stdout is not None
        while await self._process.stdout.readline():
            self._unanswered = 0
            if not self._up.done():
                self._up.set_result(None)

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            if text := line.decode(errors="replace").strip():
                self._said.append(text)

    async def _ping(self) -> None:
        """Ask it again and again whether it is there: a frozen machine, or a cut cable, says nothing by itself."""
        assert self._process.stdin is not None
        await asyncio.wait([self._up])
        while self._unanswered < ALIVE_MISSES:
            self._unanswered += 1
            if not self._process.stdin.is_closing():  # else it is ending, which `_watch` is about to see
                with contextlib.suppress(ConnectionError):
                    self._process.stdin.write(b"\n")
                    await self._process.stdin.drain()
            await asyncio.sleep(ALIVE_EVERY)
        self._said.append(f"it has not answered for {ALIVE_EVERY * ALIVE_MISSES} s")

    async def run(self, command: str, given: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
        """See `Transport`."""
        sign = f"{self._sign}.run"
        words = (*self._access.command, "sh", "-c", _RUN.format(command=command), sign)
        done = await run_here(words, given, on_line)
        err, mark, status = done.err.rpartition(f"\n{sign} ")
        if not mark:
            said = done.err.strip().splitlines()
            raise LinkError(f"the connection to {self._access.target} broke: {said[-1] if said else 'it ended'}")
        return Completed(int(status), done.out, err)

    async def forward(self, local: str, host: str, remote: int, python: str) -> None:
        """See `Transport`."""
        try:
            listening = _listen(local)
        except OSError as error:
            raise LinkError(f"no tunnel to {self._access.target}: {error}") from None
        listening.setblocking(False)
        command = (*self._access.command, python, "-ISc", _RELAY, host, str(remote))
        self._keep(_accept(listening, command, self._keep))

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tunnels.add(task)
        task.add_done_callback(self._tunnels.discard)
        return task

    async def close(self) -> None:
        """See `Transport`."""
        await run_to_completion(self._close())

    async def _close(self) -> None:
        tunnels = tuple(self._tunnels)
        for task in tunnels:
            task.cancel()
        await asyncio.gather(*tunnels, return_exceptions=True)
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                await asyncio.shield(self._watching)
        self._pinging.cancel()
        await self._watching


def _listen(local: str) -> socket.socket:
    """A socket that listens at `local`."""
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
    """Have each connection carried by a command of its own."""
    carried: set[asyncio.Task[None]] = set()
    with listening:
        while True:
            while len(carried) >= _MOST_CARRIED:
                await asyncio.wait(carried, return_when=asyncio.FIRST_COMPLETED)
            await _someone_there(listening)
            # Without an `await` until it has an owner: what a cancelled task was about to be given, nobody closes.
            with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
                connection, _ = listening.accept()
                if not is_of_this_user(connection):  # for whom a command would be run otherwise
                    connection.close()
                    await asyncio.sleep(_AFTER_STRANGER)
                    continue
                task = keep(_carry(connection, command))
                carried.add(task)
                task.add_done_callback(carried.discard)
                task.add_done_callback(functools.partial(_let_go, connection))


async def _someone_there(listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(listening, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listening)


def _let_go(connection: socket.socket, _carried: asyncio.Task[None]) -> None:
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
