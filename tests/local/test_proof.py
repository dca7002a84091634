"""Neither an unauthenticated client nor an impostor gets anything useful from the client or a worker."""

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest

import skyward as sky
from skyward.errors import NodeStartError
from skyward.link.bulk import BulkLane
from skyward.link.channel import Channel
from skyward.link.connection.hello import WorkerProcess
from skyward.link.launch import start_worker
from skyward.providers.protocol import LocalAccess
from skyward.wire.protocol.messages import Blob, Cancel
from skyward.wire.transport.bulk import PUT
from skyward.wire.transport.secrets import SECRETS_VARIABLE
from skyward.wire.transport.trust import NodeSecrets, issue_secrets
from tests.attacker import Bomb

pytestmark = pytest.mark.local

OURS, ITS = issue_secrets("node 1", b"s" * 32)
OTHER, _ = issue_secrets("node 1", b"o" * 32)
"""Of a node with the same name: only the secret distinguishes them."""


def ignore(_: object) -> None:
    """Values that a test does not check."""


@contextlib.asynccontextmanager
async def worker(directory: Path) -> AsyncIterator[WorkerProcess]:
    """A local worker."""
    environment = {"SKYWARD_NODE_ID": "0", SECRETS_VARIABLE: ITS.write()}
    started = await start_worker(LocalAccess("127.0.0.1", str(directory)), environment, 30)
    try:
        yield started
    finally:
        await started.stop()


async def greet(started: WorkerProcess, proof: NodeSecrets, within: float = 10.0, by: str = "") -> None:
    """Connect to the engine of a worker, directly or by another address, send a command, and disconnect."""
    address = started.hello.address
    channel = Channel(address, proof.credentials, within, ignore, ignore, dial=lambda wanted: by or wanted)
    try:
        await channel.connect()
        channel.send(Cancel(1))
    finally:
        await channel.close()


async def put(address: str, proof: NodeSecrets, data: bytes) -> None:
    """Send a blob over the bulk path."""
    lane = BulkLane(address, proof.key, "skyward-bulk-test")
    try:
        await asyncio.wrap_future(lane.move(PUT, Blob(b"k" * 32, len(data)), memoryview(data)))
    finally:
        lane.close()
        await asyncio.to_thread(lane.join)


def on_a_worker(directory: Path, check: Callable[[WorkerProcess], Coroutine[Any, Any, None]]) -> None:
    """Check a worker, and that it serves its client as before."""

    async def go() -> None:
        async with worker(directory) as started:
            await check(started)
            await greet(started, OURS)
            await put(started.hello.bulk, OURS, b"still there")

    asyncio.run(go())


def test_pass_of_another_node_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.link.bulk._CONNECT_WITHIN", 0.5)

    async def check(started: WorkerProcess) -> None:
        with pytest.raises(NodeStartError, match="cannot be reached"):
            await greet(started, OTHER, within=2.0)
        with pytest.raises(ConnectionError, match="another program listens at the node.s address"):
            await put(started.hello.bulk, OTHER, b"data")

    on_a_worker(tmp_path, check)


class Tap:
    """A port that forwards to another, and records the bytes of each caller."""

    def __init__(self, address: str) -> None:
        self.sent: list[bytearray] = []
        self._there = address.rpartition(":")
        self._passing: set[asyncio.Task[None]] = set()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                sent += data
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one caller."""
        sent = bytearray()
        self.sent.append(sent)
        far_reader, far_writer = await asyncio.open_connection(self._there[0], int(self._there[2]))
        await asyncio.gather(self._pass(reader, far_writer, sent), self._pass(far_reader, writer, bytearray()))


@contextlib.asynccontextmanager
async def tap(address: str) -> AsyncIterator[tuple[Tap, str]]:
    tapped = Tap(address)
    server = await asyncio.start_server(tapped.serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield tapped, f"{host}:{port}"


async def answer_to(address: str, sent: bytes) -> bytes:
    """Return the answer of a port to `sent`, until it closes the connection."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    answer = b""
    with contextlib.suppress(ConnectionError):
        writer.write(sent)
        answer = await reader.read()
    writer.close()
    return answer


def test_replay_of_an_honest_connection_is_refused(tmp_path: Path) -> None:
    """Each port closes the connection, and sends only its part of a handshake that it cannot finish."""

    async def check(started: WorkerProcess) -> None:
        async with tap(started.hello.address) as (engine, by):
            await greet(started, OURS, by=by)
        async with tap(started.hello.bulk) as (bulk, by):
            await put(by, OURS, b"data" * 1000)
        assert len(bulk.sent) == 1
        assert len(bulk.sent[0]) > 4000
        assert len(await answer_to(started.hello.bulk, bytes(bulk.sent[0]))) <= 64, "not a nonce and a proof"
        assert engine.sent
        for sent in engine.sent:
            assert b"Cancel" not in sent
            assert len(await answer_to(started.hello.address, bytes(sent))) < 4096, "not a handshake and an alert"

    on_a_worker(tmp_path, check)


def test_pickle_of_an_unauthenticated_client_is_not_unpickled(tmp_path: Path) -> None:
    async def check(started: WorkerProcess) -> None:
        bomb = pickle.dumps(Bomb(str(tmp_path / "bomb")))
        for address in (started.hello.address, started.hello.bulk):
            for sent in (bomb, len(bomb).to_bytes(4) + bomb, b"SKY1" + bytes(32) + bytes(32) + bomb):
                await answer_to(address, sent + bytes(4096))

    on_a_worker(tmp_path, check)
    assert not (tmp_path / "bomb").exists()


def test_impostor_at_the_port_of_a_worker_learns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It receives a nonce and the first message of a handshake: nothing that it could replay to the worker."""
    monkeypatch.setattr("skyward.link.bulk._CONNECT_WITHIN", 0.5)

    async def go() -> None:
        received: list[bytes] = []

        async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(os.urandom(64))
            with contextlib.suppress(ConnectionError):
                received.append(await reader.read())
            writer.close()

        async with await asyncio.start_server(impostor, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            channel = Channel(f"{host}:{port}", OURS.credentials, 2.0, ignore, ignore)
            with pytest.raises(NodeStartError):
                await channel.connect()
            await channel.close()
            of_engine, received[:] = list(received), []
            with pytest.raises(ConnectionError, match="another program listens"):
                await put(f"{host}:{port}", OURS, b"data")
        assert of_engine
        assert {each[:2] for each in of_engine} == {b"\x16\x03"}, "not records of a TLS handshake"
        assert {each[5:6] for each in of_engine} == {b"\x01"}, "not the greeting, which has no secret"
        assert received
        assert {(len(each), each[:4]) for each in received} == {(36, b"SKY1")}

    asyncio.run(go())


@sky.function
def around() -> tuple[dict[str, str], bytes]:
    """Return the environment of a task and of its child, and the initial one of its process and the worker."""
    inherited = subprocess.run([sys.executable, "-c", "import os; print(os.environ)"], capture_output=True, check=True)
    shown, process = b"", os.getpid()
    while process > 1 and Path("/proc/self").exists():  # the slot, the worker, its supervisors, and the client
        shown += Path(f"/proc/{process}/environ").read_bytes()
        process = int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return dict(os.environ), inherited.stdout + shown


def test_no_secret_is_readable_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In no argument of a process, environment of a task, file, log or `repr`."""
    made: list[NodeSecrets] = []

    def remembering(name: str, seed: bytes) -> tuple[NodeSecrets, NodeSecrets]:
        both = issue_secrets(name, seed)
        made.extend(both)
        return both

    monkeypatch.setattr("skyward.control.act.nodes.node.issue_secrets", remembering)
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    caplog.set_level("DEBUG")
    with sky.Compute(nodes=1, worker=sky.Worker(executor="process")) as pool:
        environment, inherited = around() >> pool
        assert "SKYWARD_BEAT" not in environment, "only a worker with a lease may have it, and not its tasks"
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        secrets = [each.key.hex() for each in made] + [
            line for each in made for line in each.credentials.key.decode().splitlines() if "KEY" not in line
        ]
        assert len(secrets) == 4
        seen = [
            *(word for each in psutil.process_iter() for word in _words(each)),
            *environment.values(), inherited.decode(), caplog.text, repr(made), repr(pool),
            *(path.read_bytes().decode("latin-1") for path in files),
        ]  # fmt: skip  # one location per word
        assert not [secret for secret in secrets if any(secret in each for each in seen)]
        assert {path.name for path in files} >= {"worker.log", "journal.db"}, "not the files of a pool"
        assert not [str(path) for path in files if open_to_others(path, tmp_path)]


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


def open_to_others(path: Path, top: Path) -> bool:
    """Return whether other users can read a file, through every folder from `top` down."""
    ways = [each.stat().st_mode & 0o005 == 0o005 for each in path.parents if each.is_relative_to(top) and each != top]
    return all(ways) and bool(path.stat().st_mode & 0o004)
