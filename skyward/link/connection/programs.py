"""Execution of programs on this machine: clients of remote machines, and the set-up of local nodes."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from skyward.link.connection.transport import Completed

__all__ = ["ClientShell", "end_within", "run_here"]

_LIMIT = 8 * 1024 * 1024
"""Largest line of a program's output, in bytes."""


class ClientShell:
    """Executor that runs commands with `sh` on this machine, for `bootstrap`.

    Args:
        environ: the environment of the commands.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def run(self, command: str, stdin: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
        """Run a command. If the caller is cancelled, the command is killed with all processes that it has started."""
        return await run_here(("sh", "-c", command), stdin, on_line, environ=self._environ, group=True)


async def run_here(
    words: Sequence[str],
    stdin: bytes = b"",
    on_line: Callable[[str], None] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    group: bool = False,
) -> Completed:
    """Run a program with `stdin` as its standard input, and return its result. It is killed if the caller is cancelled.

    `on_line` gets each line of its output, at once. `environ` is its environment, that of this process if None. With
    `group`, the processes that it has started are killed with it.
    """
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=environ, start_new_session=True, limit=_LIMIT,  # a new session: Ctrl-C in a terminal must not reach it
    )  # fmt: skip  # one option a line would hide the command
    try:
        _, out, err = await asyncio.gather(
            _feed(process.stdin, stdin), _lines(process.stdout, on_line), _lines(process.stderr, None)
        )
        status = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if group:
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            await process.wait()
    return Completed(status, out, err)


async def end_within(process: asyncio.subprocess.Process, reading: "asyncio.Future[None]", seconds: float) -> None:
    """Wait until `reading`, the reader of the program's output, has ended; kill the program after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.shield(reading)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await reading


async def _feed(writer: asyncio.StreamWriter | None, stdin: bytes) -> None:
    if writer is None:
        return
    # It may not read all input; its status says whether it failed. uvloop raises RuntimeError if it has ended.
    with contextlib.suppress(ConnectionError, RuntimeError):
        writer.write(stdin)
        await writer.drain()
    writer.close()


async def _lines(reader: asyncio.StreamReader | None, on_line: Callable[[str], None] | None) -> str:
    lines: list[str] = []
    while reader is not None and (line := await reader.readline()):
        text = line.decode(errors="replace")
        lines.append(text)
        if on_line is not None:
            on_line(text.rstrip("\n"))
    return "".join(lines)
