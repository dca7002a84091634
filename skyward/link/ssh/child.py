"""Process that makes an SSH connection with asyncssh, so that a busy client does not slow its tunnels.

`python -m skyward.link.ssh.child` reads a line of JSON on standard input that says where to connect, then requests, one
a line; it writes their results to standard output in the same format. It ends with its standard input.
`skyward.link.ssh.asyncssh` is the other end.
"""

import asyncio
import base64
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyward.link.connection.transport import ALIVE_EVERY, ALIVE_MISSES, CIPHERS, CONNECT_WITHIN, is_path

if TYPE_CHECKING:
    import asyncssh

type _Words = Mapping[str, Any]

LINE_LIMIT = 16 * 1024 * 1024
"""Largest line in either direction, in bytes."""


def _report(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def _connect(access: _Words) -> "asyncssh.SSHClientConnection":
    import asyncssh

    options: dict[str, Any] = {
        "port": access["port"] or (),
        "username": access["user"] or (),
        "client_keys": access["client_keys"] or (),
        "connect_timeout": CONNECT_WITHIN,
        "login_timeout": CONNECT_WITHIN,
        "keepalive_interval": ALIVE_EVERY,
        "keepalive_count_max": ALIVE_MISSES,
        "encryption_algs": f"^{','.join(CIPHERS)}",
        "password_auth": False,
        "kbdint_auth": False,
    }
    if access["config"] is not None:
        options["config"] = None if access["config"] == "none" else [os.path.expanduser(access["config"])]  # noqa: ASYNC240  # reads the environment
    if access["host_key"] is not None:
        options["known_hosts"] = ([access["host_key"].encode()], [], [])
    elif access["known_hosts"] is not None:
        options["known_hosts"] = os.path.expanduser(access["known_hosts"])  # noqa: ASYNC240  # as above
    options = {name: value for name, value in options.items() if value != ()}
    try:
        return await asyncssh.connect(access["host"], **options)
    except asyncssh.HostKeyNotVerifiable:
        if access["host_key"] is not None or await asyncio.to_thread(_is_known, access):
            raise _RefusedError("IDENTIFICATION HAS CHANGED") from None
        if access["known_hosts"] is not None:
            raise _RefusedError("Host key verification failed.") from None
    key = await asyncssh.get_server_host_key(access["host"], **_address_options(options))
    if key is None:
        raise _RefusedError("Host key verification failed.")
    connection = await asyncssh.connect(access["host"], **{**options, "known_hosts": ([key], [], [])})
    await asyncio.to_thread(_add_host_key, access, key.export_public_key("openssh").decode().strip())
    _report(event="new_host", host=access["host"])
    return connection


def _address_options(options: _Words) -> dict[str, Any]:
    return {name: options[name] for name in ("port", "config") if name in options}


class _RefusedError(Exception):
    """Raised when the machine is not the expected one."""


def _known_hosts(access: _Words) -> Path:
    return Path(access["known_hosts"] or "~/.ssh/known_hosts").expanduser()


def _is_known(access: _Words) -> bool:
    """Return whether there is a host key for the machine."""
    import asyncssh

    try:
        known = asyncssh.read_known_hosts(str(_known_hosts(access)))
    except OSError:
        return False
    return any(asyncssh.match_known_hosts(known, access["host"], "", access["port"] or 22)[:2])


def _add_host_key(access: _Words, key: str) -> None:
    path = _known_hosts(access)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    host = access["host"] if access["port"] in (None, 22) else f"[{access['host']}]:{access['port']}"
    with path.open("a") as file:
        file.write(f"{host} {key}\n")


async def _run(connection: "asyncssh.SSHClientConnection", words: _Words) -> None:
    """Run a command, and report each line of its output, and its end."""
    import asyncssh

    id = words["id"]
    try:
        async with connection.create_process(words["command"], encoding=None) as process:
            errors = asyncio.ensure_future(process.stderr.read())
            process.stdin.write(base64.b64decode(words["stdin"]))
            process.stdin.write_eof()
            while line := await process.stdout.readline():
                _report(id=id, line=line.decode(errors="replace"))
            err = (await errors).decode(errors="replace")
            await process.wait_closed()
            if process.exit_status is None and not process.exit_signal:
                raise ConnectionError("the connection ended")
            _report(id=id, status=255 if process.exit_status is None else process.exit_status, err=err)
    except (OSError, asyncssh.Error) as error:
        _report(id=id, error=str(error) or type(error).__name__)


async def _forward(connection: "asyncssh.SSHClientConnection", words: _Words) -> None:
    import asyncssh

    try:
        if is_path(words["local"]):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(words["local"])
            await connection.forward_local_path_to_port(words["local"], words["host"], words["remote"])
        else:
            host, _, port = words["local"].rpartition(":")
            await connection.forward_local_port(host, int(port), words["host"], words["remote"])
    except (OSError, asyncssh.Error) as error:
        _report(id=words["id"], error=str(error) or type(error).__name__)
    else:
        _report(id=words["id"], status=0, err="")


async def _serve(connection: "asyncssh.SSHClientConnection", requests: asyncio.StreamReader) -> None:
    tasks: dict[int, asyncio.Task[None]] = {}
    while line := await requests.readline():
        words = json.loads(line)
        match words["do"]:
            case "run":
                tasks[words["id"]] = asyncio.ensure_future(_run(connection, words))
            case "forward":
                tasks[words["id"]] = asyncio.ensure_future(_forward(connection, words))
            case "stop" if words["id"] in tasks:
                tasks.pop(words["id"]).cancel()
        tasks = {id: task for id, task in tasks.items() if not task.done()}


async def _main() -> None:
    import asyncssh

    os.umask(0o077)  # its sockets are for this user alone
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader(limit=LINE_LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    access = json.loads(await requests.readline())
    try:
        connection = await _connect(access)
    except asyncssh.PermissionDenied as error:
        _report(event="refused", message=f"Permission denied: {error}")
        return
    except (OSError, asyncssh.Error, _RefusedError, TimeoutError) as error:
        _report(event="refused", message=str(error) or type(error).__name__)
        return
    async with connection:
        # A session, before any tunnel: sshd disables delays only for connections with a session.
        session = await connection.create_process("exec cat >/dev/null")
        _report(event="up")
        serving = asyncio.ensure_future(_serve(connection, requests))
        closed = asyncio.ensure_future(connection.wait_closed())
        await asyncio.wait({serving, closed}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        session.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(_main())
