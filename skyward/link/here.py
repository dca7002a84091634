"""Running a program here that does its work elsewhere."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from skyward.link.ssh_transport import Completed

__all__ = ["run_here"]

_LIMIT = 8 * 1024 * 1024
"""Bytes that one line of a program's output may have."""


async def run_here(words: Sequence[str], given: bytes = b"", on_line: Callable[[str], None] | None = None) -> Completed:
    """What became of a program with `given` as its standard input. It is killed where the caller is cancelled.

    `on_line` takes each line of its output, at once.
    """
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        start_new_session=True, limit=_LIMIT,  # a session of its own: Ctrl-C in a terminal is for us alone
    )  # fmt: skip  # one option a line would hide the command
    try:
        _, out, err = await asyncio.gather(
            _feed(process.stdin, given), _lines(process.stdout, on_line), _lines(process.stderr, None)
        )
        status = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return Completed(status, out, err)


async def _feed(writer: asyncio.StreamWriter | None, given: bytes) -> None:
    if writer is None:
        return
    # It did not want all of it, and its status says whether that is bad. uvloop raises RuntimeError if it has ended.
    with contextlib.suppress(ConnectionError, RuntimeError):
        writer.write(given)
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
