"""Replication of a large blob: it crosses the client's link once, and is passed on between machines."""

import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import skyward as sky
from tests.machines.conftest import hosts
from tests.machines.machine import Machine, Network
from tests.remote_tasks import crc
from tests.waiting import wait_for

pytestmark = [pytest.mark.machines, pytest.mark.timeout(240)]

SIZE = 30_000_000


@sky.function
def in_cluster() -> int:
    return sky.counter("in").increment()


@sky.function
def keep_busy(seconds: float) -> int:
    import time

    end, turns = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        turns += 1
    return turns


@sky.function
def make_slowly(seed: int) -> npt.NDArray[np.uint8]:
    """Return an array after a delay, by which time the tasks that take it are known."""
    keep_busy.fn(1.0)
    return np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8)


def fresh(seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8)


def left(network: Network) -> int:
    """Return the number of bytes that this host sent to the bridge, without those between machines."""
    return int(Path(f"/sys/class/net/{network.name}/statistics/tx_bytes").read_text())


def test_blob_crosses_the_link_of_the_client_once(network: Network) -> None:
    """The link is too slow for three copies in the time allowed, and each machine gets a complete one."""
    for _ in range(3):
        network.add()
    with sky.Compute(provider=hosts(network), nodes=3) as pool:
        in_cluster() @ pool
        network.slow_down("80mbit")
        array = fresh(1)
        before, got = left(network), [machine.received for machine in network.machines]
        assert crc(array) @ pool == [zlib.crc32(array)] * 3
        assert SIZE < left(network) - before < 1.2 * SIZE
        for machine, was in zip(network.machines, got, strict=True):
            assert SIZE < machine.received - was < 1.2 * SIZE
        assert sum(node.sent for node in pool.snapshot().nodes) == SIZE


def came(network: Network) -> int:
    """Return the number of bytes that this host received from the bridge."""
    return int(Path(f"/sys/class/net/{network.name}/statistics/rx_bytes").read_text())


def test_result_goes_to_another_node_without_passing_the_client(network: Network) -> None:
    for _ in range(2):
        network.add()
    with sky.Compute(provider=hosts(network), nodes=2) as pool:
        in_cluster() @ pool
        before = left(network), came(network)
        a = pool.start(make_slowly(4), on=0).future
        b = pool.start(crc(a), on=1).future  # type: ignore[arg-type]  # the value of a future
        assert b.result(120) == zlib.crc32(fresh(4))
        assert left(network) - before[0] < SIZE // 10
        assert came(network) - before[1] < SIZE // 10
        assert np.array_equal(a.result(120), fresh(4))
        assert SIZE < came(network) - before[1] < 1.2 * SIZE


def test_client_sends_the_blob_to_each_of_machines_that_cannot_reach_each_other(network: Network) -> None:
    """As behind a NAT that only allows connections with the client."""
    for _ in range(3):
        network.add()
    with sky.Compute(provider=hosts(network), nodes=3) as pool:
        in_cluster() @ pool
        for machine in network.machines:
            machine.isolate()
        array = fresh(2)
        assert crc(array) @ pool == [zlib.crc32(array)] * 3
        assert sum(node.sent for node in pool.snapshot().nodes) == 3 * SIZE


def test_transfer_survives_an_outage_of_a_machine_in_the_chain(network: Network) -> None:
    """Machines behind it in the chain still get the blob; the machine itself gets it after the outage."""
    for _ in range(3):
        network.add()
    with sky.Compute(provider=hosts(network), nodes=3) as pool:
        in_cluster() @ pool
        network.slow_down("40mbit")
        before = [machine.received for machine in network.machines]

        def half(machine: Machine) -> bool:
            return machine.received - before[network.machines.index(machine)] > SIZE // 4

        array = fresh(3)
        runs = [pool.start(crc(array), on=rank) for rank in range(3)]
        wait_for(lambda: all(map(half, network.machines)), "part of the blob to be on every machine")
        chain = sorted(pool.snapshot().nodes, key=lambda node: node.rank)
        (first,) = [node.rank for node in chain if node.sent]
        middle = (first + 1) % 3
        name = network.machines[middle]
        name.cut()
        others = [rank for rank in range(3) if rank != middle]
        assert [runs[rank].future.result(120) for rank in others] == [zlib.crc32(array)] * 2
        name.mend()
        assert runs[middle].future.result(120) == zlib.crc32(array)
