"""An environment that a machine receives from another, by the real programs of both ends.

Both are this computer: the environment is recorded as it is sent, removed, and sent again, in parts or changed.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import skyward as sky
from skyward.bootstrap import PHASES, BootstrapError, PhaseEvent, Plan, Ready, bootstrap
from skyward.bootstrap.peers import PROCESSORS, SMALL, EnvironmentOffer, EnvironmentRequest, MachineKind
from skyward.bootstrap.peers.offer import seal
from tests.local.bootstrapping import ShellNode, make_wheel, repack

UV = Path(sys.executable).with_name("uv")
SECRET = "a secret of the image"  # of this test
IMAGE = sky.Image(pip=["torchy==${WANTED}"], env={"TOKEN": SECRET}, shell_vars={"WANTED": "echo 1.0"})


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("blake3", "casty", "cloudpickle", "uvloop"):
        repack(folder, name)
    make_wheel(folder, "torchy", "1.0")
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> ShellNode:
    """Machine of all tests: environments are at the same path on both ends."""
    made = ShellNode(tmp_path_factory.mktemp("machine") / "node")
    made.link("uv", UV.resolve())
    return made


@pytest.fixture(scope="module")
def plan(wheels: Path, cache: Path) -> Plan:
    settings = {"PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1", "UV_CACHE_DIR": str(cache), "UV_PASSWORD": SECRET}
    return Plan.of(IMAGE, directory="~/sky", settings=settings, search_path=[])


def kind_of_this() -> MachineKind:
    found = subprocess.run(["sh", "-c", PROCESSORS], capture_output=True, text=True, check=True).stdout.strip()
    return MachineKind(os.uname().sysname, os.uname().machine, os.confstr("CS_GNU_LIBC_VERSION") or "", found)


@contextlib.contextmanager
def serving(
    ready: Ready, request: EnvironmentRequest | None = None
) -> Iterator[tuple[EnvironmentRequest, dict[str, object], subprocess.Popen[str]]]:
    """Run the program that sends the environment; yield the request, its answer, and the process."""
    request = request or EnvironmentRequest.new("127.0.0.1", kind_of_this(), 60)
    command = (ready.facts.executable, "-P", "-m", "skyward.bootstrap.peers.serve")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request.to_json().decode())
        process.stdin.close()
        try:
            yield request, json.loads(process.stdout.readline()), process
        finally:
            process.kill()


def ask(port: object, line: str) -> bytes:
    """Send a line; return all that is answered."""
    assert isinstance(port, int)
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(f"{line}\n".encode())
        answer = b""
        while block := connection.recv(1 << 20):
            answer += block
        return answer


@dataclass
class Recorded:
    """The bytes that a node sends, and its offer."""

    offer: EnvironmentOffer
    archive: bytes


def make(node: ShellNode, plan: Plan, reports: list[PhaseEvent] | None = None) -> Ready:
    return asyncio.run(bootstrap(node, plan, None if reports is None else reports.append))


def record(node: ShellNode, plan: Plan) -> tuple[Ready, Recorded]:
    """Make the environment, record how it is sent, and remove it with everything else."""
    ready = make(node, plan)
    facts = ready.facts
    with serving(ready) as (request, answer, process):
        archive = ask(answer["port"], request.token)
        proof = ask(answer["port"], request.token).decode().strip()
        assert proof == seal(request.key, hashlib.sha256(archive).hexdigest())
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"outcome": "sent"}
        assert process.wait(10) == 0
    offer = EnvironmentOffer.of(request, answer, "node 0", facts.executable, facts.variables)
    shutil.rmtree(ready.directory)
    return ready, Recorded(offer, archive)


@pytest.fixture(scope="module")
def sent(node: ShellNode, plan: Plan) -> tuple[Ready, Recorded]:
    """Environment as it was made, and as it was sent."""
    return record(node, plan)


@pytest.fixture
def recorded(node: ShellNode, sent: tuple[Ready, Recorded]) -> Recorded:
    """Bytes that were sent, while the machine has nothing."""
    shutil.rmtree(sent[0].directory, ignore_errors=True)
    return sent[1]


@pytest.fixture
def made(sent: tuple[Ready, Recorded]) -> Ready:
    return sent[0]


@dataclass
class Source:
    """The source of a recorded environment. `send` gets each connection in turn, after its line was read."""

    recorded: Recorded
    send: Callable[[socket.socket, int], None]
    least: int = -1
    kinds: list[MachineKind] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    listener: socket.socket | None = None
    thread: threading.Thread | None = None

    def is_ready(self) -> bool:
        return True

    async def offer(self, kind: MachineKind, least: int, *, patient: bool) -> EnvironmentOffer:
        self.least = least
        self.kinds.append(kind)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve, args=(self.listener,), daemon=True)
        self.thread.start()
        return replace(self.recorded.offer, port=self.listener.getsockname()[1])

    def close(self) -> None:
        if self.listener is not None and self.thread is not None:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.thread.join()

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    self.asked.append(connection.makefile().readline().strip())
                    self.send(connection, len(self.asked))


def receive(
    node: ShellNode, plan: Plan, recorded: Recorded, send: Callable[[socket.socket, int], None]
) -> tuple[Ready, dict[str, PhaseEvent], Source]:
    """Bootstrap with another node as the source; return also the last event of each phase."""
    source = Source(recorded, send)
    reports: list[PhaseEvent] = []
    try:
        ready = make(node, replace(plan, peers=source), reports)
    finally:
        source.close()
    return ready, {event.phase: event for event in reports}, source


def faithful(recorded: Recorded) -> Callable[[socket.socket, int], None]:
    def send(connection: socket.socket, number: int) -> None:
        digest = hashlib.sha256(recorded.archive).hexdigest()
        proof = f"{seal(recorded.offer.request.key, digest)}\n".encode()
        connection.sendall(recorded.archive if number == 1 else proof)

    return send


def test_received_environment_is_the_one_that_was_sent(
    node: ShellNode, plan: Plan, made: Ready, recorded: Recorded
) -> None:
    (node.bin / "uv").unlink()  # nothing is needed besides
    try:
        ready, events, source = receive(node, plan, recorded, faithful(recorded))
    finally:
        node.link("uv", UV.resolve())
    assert ready == made
    assert {name for name, event in events.items() if event.event == "skipped"} == set(PHASES) - {"env", "worker"}
    assert (events["fetch"].event, events["fetch"].lines) == ("completed", ())
    assert (source.kinds, source.least) == ([kind_of_this()], 0)
    assert source.asked == [recorded.offer.request.token] * 2
    done = subprocess.run(
        [ready.facts.executable, "-c", "import torchy; print(torchy.VERSION)"],
        capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip  # one option per line would hide the command
    assert done.stdout == "1.0\n"
    assert not list(Path(ready.directory).glob("state/*/fetched"))
    assert make(node, plan) == ready


def test_neither_secrets_nor_files_of_tasks_are_sent(recorded: Recorded) -> None:
    assert SECRET.encode() not in recorded.archive
    with tarfile.open(fileobj=io.BytesIO(recorded.archive)) as archive:
        entries = archive.getmembers()
    assert {entry.name.split("/")[0] for entry in entries} == {"env"}
    assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {(0, 0, "", "")}


def changed(recorded: Recorded, connection: socket.socket, number: int) -> None:
    """Send another file content, with a proof for what the other node has sent."""
    if number == 1:
        assert b"VERSION = '1.0'" in recorded.archive
        connection.sendall(recorded.archive.replace(b"VERSION = '1.0'", b"VERSION = '6.6'"))
    else:
        faithful(recorded)(connection, number)


def forged(recorded: Recorded, connection: socket.socket, number: int) -> None:
    """Send another file content, with a proof for it by a sender without the key."""
    archive = recorded.archive.replace(b"VERSION = '1.0'", b"VERSION = '6.6'")
    proof = seal("0" * 64, hashlib.sha256(archive).hexdigest())
    connection.sendall(archive if number == 1 else f"{proof}\n".encode())


def truncated(recorded: Recorded, connection: socket.socket, number: int) -> None:
    """End in the middle, as a killed sender does."""
    if number == 1:
        connection.sendall(recorded.archive[: len(recorded.archive) // 2])


def without_proof(recorded: Recorded, connection: socket.socket, number: int) -> None:
    if number == 1:
        connection.sendall(recorded.archive)


def stalled(recorded: Recorded, connection: socket.socket, number: int) -> None:
    """Send a part, and keep the connection open."""
    if number == 1:
        connection.sendall(recorded.archive[:100_000])
        connection.recv(1)  # until the other end gives up


@pytest.mark.parametrize(
    ("sends", "says"),
    [
        (changed, "what arrived is not what it sent"),
        (forged, "what arrived is not what it sent"),
        (truncated, "the transfer was interrupted"),
        (without_proof, "the transfer was interrupted"),
        (stalled, "nothing arrived from it for 5 s"),
    ],
)
def test_environment_is_made_as_usual_if_the_transfer_fails(
    sends: Callable[[Recorded, socket.socket, int], None],
    says: str,
    node: ShellNode,
    plan: Plan,
    made: Ready,
    recorded: Recorded,
) -> None:
    ready, events, _ = receive(node, plan, recorded, lambda connection, number: sends(recorded, connection, number))
    assert events["fetch"].lines == (f"not received from node 0: {says}; it is made here",)
    assert events["fetch"].event == events["deps"].event == events["skyward"].event == "completed"
    assert ready == made
    source = next(Path(ready.directory).glob("envs/*/lib/python*/site-packages/torchy.py"))
    assert source.read_text() == "VERSION = '1.0'\n"
    assert not list(Path(ready.directory).glob("state/*/fetched"))


def test_other_values_of_variables_in_the_requirements_are_noticed(node: ShellNode, plan: Plan, wheels: Path) -> None:
    """The environment is not that of this machine, although the image is the same."""
    make_wheel(wheels, "torchy", "2.0")
    choosing = replace(plan, shell_vars={"WANTED": "cat $HOME/wanted"})
    shutil.rmtree(node.home / "sky", ignore_errors=True)
    (node.home / "wanted").write_text("1.0")
    _, recorded = record(node, choosing)
    (node.home / "wanted").write_text("2.0")
    ready, events, source = receive(node, choosing, recorded, faithful(recorded))
    assert "the variables of the requirements have other values on it" in events["fetch"].lines[0]
    assert ready.facts.packages["torchy"] == "2.0"
    assert source.asked == []


def test_killed_transfer_leaves_nothing_that_counts_as_an_environment(
    node: ShellNode, plan: Plan, made: Ready, recorded: Recorded
) -> None:
    def kill(connection: socket.socket, number: int) -> None:
        connection.sendall(recorded.archive[: len(recorded.archive) // 2])
        node.kill()

    with pytest.raises(BootstrapError, match="in phase 'fetch'"):
        receive(node, plan, recorded, kill)
    assert make(node, plan) == made
    assert not list(Path(made.directory).glob("state/*/fetched"))


def refusal(ready: Ready, request: EnvironmentRequest | None = None) -> object:
    with serving(ready, request) as (_, answer, _process):
        return answer.get("refused")


def test_stranger_gets_nothing_and_the_token_is_valid_once(node: ShellNode, plan: Plan) -> None:
    ready = make(node, plan)
    with serving(ready) as (request, answer, process):
        assert ask(answer["port"], "") == b""
        assert ask(answer["port"], "0" * 64) == b""
        assert len(ask(answer["port"], request.token)) > 1_000_000
        assert len(ask(answer["port"], request.token)) == 65
        assert process.wait(10) == 0
        with pytest.raises(ConnectionRefusedError):
            ask(answer["port"], request.token)


def test_sender_ends_in_time_and_with_its_client(node: ShellNode, plan: Plan) -> None:
    ready = make(node, plan)
    with serving(ready, EnvironmentRequest.new("127.0.0.1", kind_of_this(), 1)) as (_, answer, process):
        assert "port" in answer
        assert process.wait(10) < 0
    request = EnvironmentRequest.new("127.0.0.1", kind_of_this(), 60)
    program = f"{ready.facts.executable!r}, '-P', '-m', 'skyward.bootstrap.peers.serve'"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([{program}], stdin=sys.stdin)"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip  # one option per line would hide the command
    with parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(request.to_json().decode())
        parent.stdin.close()
        assert "port" in json.loads(parent.stdout.readline())
        parent.kill()
        assert parent.stdout.read() == ""  # the sender, which holds it open, has ended without an outcome


def test_environment_is_not_sent_to_another_kind_of_machine(node: ShellNode, plan: Plan) -> None:
    ready, kind = make(node, plan), kind_of_this()
    for other in (replace(kind, machine="aarch64"), replace(kind, libc="glibc 2.17"), replace(kind, libc="musl")):
        request = EnvironmentRequest.new("127.0.0.1", other, 60)
        assert refusal(ready, request) == "its platform is another one"
    request = EnvironmentRequest.new("127.0.0.1", replace(kind, processors="1 2"), 60)
    assert refusal(ready, request) is None
    described = next(Path(ready.directory).glob("envs/*/lib/python*/site-packages/torchy-*.dist-info/WHEEL"))
    text = described.read_text().replace("py3-none-any", "cp313-cp313-linux_x86_64")
    described.unlink()  # the cache of uv has the same file
    described.write_text(text)
    os.utime(described, (0, 0))
    assert refusal(ready, request) == "its processors are others, and torchy-1.0 was compiled for them"


def test_small_environment_is_not_sent_to_a_machine_with_tools(node: ShellNode, plan: Plan, recorded: Recorded) -> None:
    ready, _, source = receive(node, plan, recorded, faithful(recorded))
    assert source.least == SMALL
    with serving(ready, EnvironmentRequest.new("127.0.0.1", kind_of_this(), 60, SMALL)) as (_, answer, _process):
        assert answer.keys() == {"small"}


def test_changed_environment_is_not_sent(node: ShellNode, plan: Plan) -> None:
    """It is not what the image says any more."""
    ready = make(node, plan)
    packages = next(Path(ready.directory).glob("envs/*/lib/python*/site-packages"))
    assert refusal(ready) is None
    (packages / "torchy.py").unlink()  # the cache of uv has the same file
    (packages / "torchy.py").write_text("VERSION = '1.0 with a change'\n")
    assert refusal(ready) == "its environment was changed (torchy.py)"
    (packages / "torchy.py").unlink()
    shutil.rmtree(next(packages.glob("torchy-*.dist-info")))
    assert refusal(ready) == "packages of its environment were changed"
