"""Connections to a machine through a local command. Here the command is `env`, and the machine is this one."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from skyward.errors import NodeStartError
from skyward.link.connection.transport import LinkError
from skyward.link.exec.transport import ExecTransport
from skyward.link.ssh.connect import SSHLink
from skyward.providers.protocol import ExecAccess
from tests.waiting import wait_for_async

pytestmark = pytest.mark.local

HERE = ExecAccess(("env", "HERE=yes"), "this machine", grace=5)


def on_it(test: Callable[[SSHLink], Awaitable[None]]) -> None:
    async def go() -> None:
        link = await SSHLink.open(HERE, 10)
        try:
            async with asyncio.timeout(30):
                await test(link)
        finally:
            await link.close()

    asyncio.run(go())


def marked(sign: str) -> list[int]:
    """Return the processes of this machine with `sign` on their command lines."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and sign.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                found.append(int(entry))
    return found


def test_commands_run_on_the_machine() -> None:
    async def test(link: SSHLink) -> None:
        lines: list[str] = []
        done = await link.run("cat; echo $HERE; echo oh >&2; exit 3", b"given\n", lines.append)
        assert (done.status, done.out, done.err) == (3, "given\nyes\n", "oh\n")
        assert lines == ["given", "yes"]
        assert (await link.run("sh -c 'kill -KILL $$'")).status == 137

    on_it(test)


def test_interrupted_command_has_no_exit_status() -> None:
    """A status that was not received is not invented."""

    async def test(link: SSHLink) -> None:
        seconds = 1_000_000 + os.getpid()  # of this run only
        running = asyncio.create_task(link.run(f"exec sleep {seconds}"))
        session = link._transport
        assert isinstance(session, ExecTransport)
        sign = f"{session._sign}.run"
        await wait_for_async(lambda: marked(f"sleep\0{seconds}"), "the command to run")
        for pid in (*marked(sign), *marked(f"sleep\0{seconds}")):  # first the shell, which would send the status
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(LinkError, match="the connection to this machine was lost"):
            await running

    on_it(test)


def test_files_are_written_to_the_machine(tmp_path: Path) -> None:
    async def test(link: SSHLink) -> None:
        await link.put(f"{tmp_path}/with space", b"content")
        assert (tmp_path / "with space").read_bytes() == b"content"
        with pytest.raises(LinkError, match="could not be written"):
            await link.put(f"{tmp_path}/no/such/folder", b"")

    on_it(test)


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """The port of a server that returns what it received, after the end of the input."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def heard(address: str, said: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def test_tunnels_carry_both_directions_and_keep_their_ports_when_the_connection_breaks() -> None:
    async def test(link: SSHLink) -> None:
        async with echo() as port:
            address = await link.tunnel("127.0.0.1", port, sys.executable)
            large = os.urandom(3_000_000)
            assert await asyncio.gather(*(heard(address, large) for _ in range(3))) == [large] * 3
            before = link._transport
            assert isinstance(before, ExecTransport)
            os.killpg(before._process.pid, signal.SIGKILL)
            await wait_for_async(lambda: link._transport is not before, "the reconnect")
            await link.run("true")
            assert await heard(address, b"again") == b"again"

    on_it(test)


def test_tunnel_limits_concurrent_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.link.exec.transport._MOST_CARRIED", 2)

    async def test(link: SSHLink) -> None:
        async with echo() as port:
            address = await link.tunnel("127.0.0.1", port, sys.executable)
            host, _, local = address.rpartition(":")
            held = [await asyncio.open_connection(host, int(local)) for _ in range(2)]
            transport = link._transport
            assert isinstance(transport, ExecTransport)
            await wait_for_async(lambda: len(transport._tunnels) == 3, "two connections to be carried")
            waiting = asyncio.create_task(heard(address, b"hello"))
            await link.run("true")
            assert len(transport._tunnels) == 3
            for _, writer in held:
                writer.close()
            assert await waiting == b"hello"

    on_it(test)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_connections_of_other_users_are_closed_and_run_no_command() -> None:
    """However many: each would be a running command, such as `docker exec`."""

    async def test(link: SSHLink) -> None:
        async with echo() as port:
            address = await link.tunnel("127.0.0.1", port, sys.executable)
            script = str(Path(__file__).parents[1] / "attacker.py")
            other = await asyncio.create_subprocess_exec(
                sys.executable, "-I", script, "--idle", "50", address,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip  # one option per line would hide the command
            try:
                assert other.stdout is not None
                await other.stdout.readline()
                assert await heard(address, b"hello") == b"hello"
                transport = link._transport
                assert isinstance(transport, ExecTransport)
                await wait_for_async(
                    lambda: len(transport._tunnels) == 1, "the unauthenticated connections to be closed"
                )
            finally:
                other.kill()
                await other.wait()

    on_it(test)


def test_frozen_machine_is_noticed() -> None:
    """The remains of the old connection are not waited for, though they hold the ends of its pipes."""

    async def test(link: SSHLink) -> None:
        before = link._transport
        assert isinstance(before, ExecTransport)
        os.killpg(before._process.pid, signal.SIGSTOP)
        try:
            assert await before.broken == "no answer for 6 s"
            assert (await link.run("echo back")).out == "back\n"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(before._process.pid, signal.SIGKILL)

    on_it(test)


def test_tunnel_to_a_closed_port_ends_at_once() -> None:
    async def test(link: SSHLink) -> None:
        async with echo() as port:
            pass
        with contextlib.suppress(ConnectionError):
            assert await heard(await link.tunnel("127.0.0.1", port, sys.executable), b"hello") == b""

    on_it(test)


@pytest.mark.parametrize("turns", range(6))
def test_clients_that_connect_while_a_tunnel_closes_are_dropped(turns: int) -> None:
    """At any point between being accepted and being forwarded: an unclosed socket is an error of this test."""

    async def go() -> None:
        transport = await ExecTransport.connect(HERE)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        await transport.forward(f"127.0.0.1:{port}", "127.0.0.1", 1, sys.executable)
        await asyncio.sleep(0)
        with socket.create_connection(("127.0.0.1", port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            await transport.close()

    asyncio.run(go())
    gc.collect()


def test_remote_processes_end_with_the_connection() -> None:
    """Also if the client was killed: the process only sees the end of a pipe."""

    async def test(link: SSHLink) -> None:
        seconds = 2_000_000 + os.getpid()  # of this run only
        running = asyncio.create_task(link.run(f"sleep {seconds}"))
        session = link._transport
        assert isinstance(session, ExecTransport)
        await wait_for_async(lambda: marked(f"sleep\0{seconds}"), "the command to run")
        assert session._process.stdin is not None
        session._process.stdin.close()
        with pytest.raises(LinkError):
            await running
        await wait_for_async(lambda: not marked(session._sign), "all of the connection to end")
        await wait_for_async(lambda: not marked(f"sleep\0{seconds}"), "the command to end")

    on_it(test)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/no/such/engine",), "this machine cannot be entered: .*no/such/engine"),
        (("sh", "-c", "echo 'Error: No such container: x' >&2; exit 1"), "cannot be entered: Error: No such container"),
    ],
)
def test_machine_that_is_gone_is_not_retried(command: tuple[str, ...], said: str) -> None:
    with pytest.raises(NodeStartError, match=said):
        asyncio.run(SSHLink.open(ExecAccess(command, "this machine"), 1000))


def test_machine_that_is_not_up_yet_is_retried(tmp_path: Path) -> None:
    script = 'if [ -e "$0" ]; then exec "$@"; fi; touch "$0"; echo not yet >&2; exit 1'
    access = ExecAccess(("sh", "-c", script, f"{tmp_path}/tried"), "this machine")

    async def go() -> None:
        link = await SSHLink.open(access, 30)
        await link.close()

    asyncio.run(go())


def test_machine_that_does_not_answer_is_given_up() -> None:
    access = ExecAccess(("sh", "-c", "exit 1"), "this machine")
    with pytest.raises(NodeStartError, match="this machine cannot be entered: it ended; gave up after 1 s"):
        asyncio.run(SSHLink.open(access, 1))
