"""Impostors: another user of the client's machine takes over the ports of a pool's tunnels during an outage."""

import contextlib
import queue
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import skyward as sky
from skyward.link.connection.transport import socket_directory
from skyward.link.ssh import connect as ssh
from skyward.wire.transport.trust import Authority
from tests.listening import listening_at
from tests.machines.conftest import hosts
from tests.machines.machine import Network
from tests.remote_tasks import total, where
from tests.waiting import wait_for

pytestmark = pytest.mark.machines


class Impostor:
    """An impostor process, with its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[list[str]] = []
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process = process
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line)

    def said(self, word: str) -> list[list[str]]:
        """Return the remaining words of each line so far that starts with `word`."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.lines.append(self._said.get_nowait().split())
        return [line[1:] for line in self.lines if line[0] == word]

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._reading.join()
        self._process.communicate()


@contextlib.contextmanager
def impostor(folder: Path, ports: list[int]) -> Iterator[Impostor]:
    """Run an impostor at those ports, with a certificate in the name of the pool's authority."""
    files = {"cert": folder / "cert", "key": folder / "key"}
    other = Authority("node", b"o" * 32).issue("node")
    files["cert"].write_bytes(other.cert)
    files["key"].write_bytes(other.key)
    script = Path(__file__).parents[1] / "impostor.py"
    words = [sys.executable, "-I", str(script), str(files["cert"]), str(files["key"]), *map(str, ports)]
    running = Impostor(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        yield running
    finally:
        running.end()


def ports_of(processes: list[psutil.Process]) -> list[int]:
    return [port for process in processes for _, port in listening_at(process)]


def masters() -> list[psutil.Process]:
    """Return the processes that hold this process's SSH connections."""
    found = []
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just exited
            if "ControlMaster=yes" in each.cmdline():
                found.append(each)
    return found


def test_impostor_at_the_ports_of_a_cut_connection_learns_nothing_and_the_pool_recovers(
    network: Network, tmp_path: Path
) -> None:
    """It keeps the ports, so that the tunnels must use others."""
    machine = network.add()
    with sky.Compute(provider=hosts(network), nodes=1, worker=sky.Worker(concurrency=2)) as pool:
        before = where() >> pool
        assert total(np.ones(200_000)) >> pool == 200_000
        (master,) = masters()
        ports = ports_of([master])
        assert ports
        with impostor(tmp_path, ports) as other:
            wait_for(lambda: other.said("ready"), "the impostor to start")
            machine.cut()
            master.send_signal(signal.SIGKILL)
            wait_for(lambda: len(other.said("took")) == len(ports), "the impostor to have the ports")
            pending = [pool.start(total(np.full(200_000, number))) for number in range(1, 5)]
            wait_for(lambda: len(other.said("heard")) >= 3, "three connections of the client to the impostor")
            machine.mend()
            for number, each in enumerate(pending, 1):
                assert each.future.result(60) == 200_000 * number
            assert where() >> pool == before, "another worker answered"
            assert not set(ports_of(masters())) & set(ports)
            assert {kind for kind, *_ in other.said("heard")} == {"silence", "noise", "tls"}
            for kind, *heard in other.said("heard"):
                said = bytes.fromhex("".join(heard))
                assert not said or (kind != "tls" and said[:2] == b"\x16\x03" and said[5] == 1), (
                    "more than a TLS greeting"
                )


def test_attackers_at_the_tunnels_do_not_disturb_the_pool(network: Network) -> None:
    network.add()
    with sky.Compute(provider=hosts(network), nodes=1, worker=sky.Worker(concurrency=2)) as pool:
        before = where() >> pool
        (master,) = masters()
        size = master.memory_info().rss
        addresses = [f"127.0.0.1:{port}" for port in ports_of([master])]
        words = [sys.executable, "-I", str(Path(__file__).parents[1] / "attacker.py"), "--idle", "300", "--slow", "10"]
        stranger = subprocess.Popen(
            [*words, "--frames", "2000", *addresses], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            said = stranger.stdout
            assert said is not None
            sent: list[str] = []
            reading = threading.Thread(target=lambda: sent.append(said.readline()))
            reading.start()
            tasks = 0
            while reading.is_alive() or tasks < 100:
                assert where() >> pool == before
                tasks += 1
            assert total(np.ones(200_000)) >> pool == 200_000
            assert int(sent[0]) > 1000
            assert master.memory_info().rss - size < 64 * 1024 * 1024
        finally:
            stranger.kill()
            stranger.communicate()
            reading.join()
        assert where() >> pool == before, "another worker answered"


def test_tunnels_to_the_bulk_path_are_private_sockets(
    network: Network, monkeypatch: pytest.MonkeyPatch, transport: bool
) -> None:
    network.add()
    if not transport:
        monkeypatch.setattr(ssh, "openssh_here", lambda: False)
    before = set(socket_directory().iterdir())
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        assert total(np.ones(200_000)) >> pool == 200_000
        made = set(socket_directory().iterdir()) - before
        assert made
        assert stat.S_IMODE(socket_directory().stat().st_mode) == 0o700
        for path in made:
            assert stat.S_ISSOCK(path.stat().st_mode)
            assert not path.stat().st_mode & 0o077
    assert not set(socket_directory().iterdir()) & made, "sockets are left"


@pytest.fixture(params=[True, False], ids=["openssh", "asyncssh"])
def transport(request: pytest.FixtureRequest) -> bool:
    """True if connections use OpenSSH."""
    return bool(request.param)
