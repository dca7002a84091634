"""What breaks between a pool and its machines: a short fault loses nothing, a long one costs the node and no result."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import skyward as sky
from tests.machines.conftest import Wait, hosts
from tests.machines.machine import Machine, Network

pytestmark = [pytest.mark.machines, pytest.mark.timeout(120)]


@sky.function
def where() -> tuple[str, int]:
    import socket

    return socket.gethostname(), os.getpid()


@sky.function
def speak(n: int, pause: float) -> int:
    for number in range(n):
        print(f"line {number}")
        time.sleep(pause)
    return n


@sky.function
def ticks(n: int, pause: float) -> Iterator[int]:
    for number in range(n):
        yield number
        time.sleep(pause)


@sky.function
def total(data: npt.NDArray[np.uint8]) -> int:
    return int(data.sum())


def lines(text: str) -> list[str]:
    return [line.rpartition("] ")[2] for line in text.splitlines() if "line " in line]


def outage(machine: Machine, seconds: float) -> None:
    """Pull the cable for so long. (The one pause here that is the subject of the test.)"""
    machine.cut()
    try:
        time.sleep(seconds)
    finally:
        machine.mend()


@pytest.fixture
def short(network: Network, request: pytest.FixtureRequest) -> Iterator[sky.Compute]:
    """One node of two slots; with the grace of 30 s, or as a test says."""
    network.add()
    provider = hosts(network, grace=getattr(request, "param", 30.0))
    with sky.Compute(provider=provider, nodes=1, worker=sky.Worker(concurrency=2)) as pool:
        yield pool


@pytest.mark.parametrize(("seconds", "short"), [(2, 30.0), (9, 30.0), (60, 90.0)], indirect=["short"])
@pytest.mark.timeout(240)
def test_a_cut_within_the_grace_loses_nothing(
    short: sky.Compute, network: Network, seconds: float, capsys: pytest.CaptureFixture[str], wait_for: Wait
) -> None:
    """Once shorter than the keepalive, so that the connection lives on, and longer, so that it is made again."""
    before = where() >> short
    speaking = short.start(speak(60, 0.1))
    stream = iter(ticks(60, 0.1) >> short)
    assert next(stream) == 0
    outage(network.machines[0], seconds)
    assert speaking.future.result(60) == 60
    assert list(stream) == list(range(1, 60))
    assert lines(capsys.readouterr().out) == [f"line {number}" for number in range(60)]
    assert where() >> short == before


def test_a_blob_under_way_survives_its_connection(short: sky.Compute, network: Network, wait_for: Wait) -> None:
    before = where() >> short
    data = np.random.default_rng(1).integers(0, 200, 300_000_000, dtype=np.uint8)
    sending = short.start(total(data))
    wait_for(lambda: network.machines[0].received > 20_000_000, "the blob to be on its way")
    assert not sending.future.done()
    network.machines[0].kill_sessions()
    assert sending.future.result(60) == int(data.sum())
    assert where() >> short == before


def test_a_killed_connection_is_made_again(short: sky.Compute, network: Network) -> None:
    before = where() >> short
    network.machines[0].kill_sessions()
    assert where() >> short == before


def test_an_outage_beyond_the_grace_replaces_the_node_from_a_spare(network: Network, wait_for: Wait) -> None:
    first, spare = network.add(), network.add()
    name = first.name

    @sky.function
    def elsewhere() -> str:
        import socket

        while socket.gethostname() == name:
            time.sleep(0.05)
        return socket.gethostname()

    with sky.Compute(provider=hosts(network, grace=4), nodes=1) as pool:
        assert (where() >> pool)[0] == first.name
        running = pool.start(elsewhere())
        first.cut()
        assert running.future.result(60) == spare.name
        assert (where() >> pool)[0] == spare.name
        assert first.running("skyward.worker"), "what is to be ended has ended by itself"
        first.mend()
        wait_for(lambda: not first.running("skyward.worker"), "the replaced worker to end, long before its lease")
        nodes = Path(f"/proc/{first.pids()[0]}/root/opt/skyward/nodes")
        wait_for(lambda: not list(nodes.iterdir()), "its directory to go")
        assert (where() >> pool)[0] == spare.name


def test_a_frozen_machine_is_replaced(network: Network) -> None:
    first, spare = network.add(), network.add()
    with sky.Compute(provider=hosts(network, grace=4), nodes=1) as pool:
        assert (where() >> pool)[0] == first.name
        first.freeze()
        assert pool.start(where()).future.result(60)[0] == spare.name
        first.thaw()


def test_a_machine_without_power_is_replaced(network: Network) -> None:
    first, spare = network.add(), network.add()
    with sky.Compute(provider=hosts(network, grace=4), nodes=1) as pool:
        assert (where() >> pool)[0] == first.name
        first.kill()
        assert pool.start(where()).future.result(60)[0] == spare.name


def test_a_killed_worker_is_seen_at_once(network: Network, caplog: pytest.LogCaptureFixture, wait_for: Wait) -> None:
    first, spare = network.add(), network.add()
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        assert (where() >> pool)[0] == first.name
        (worker,) = first.running("skyward.worker")
        os.kill(worker, signal.SIGKILL)
        assert pool.start(where()).future.result(20)[0] == spare.name
    assert "its process was killed by SIGKILL" in caplog.text
