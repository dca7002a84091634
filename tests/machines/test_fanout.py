"""A large blob crosses the client's link once, and goes on between the machines."""

import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import skyward as sky
from tests.machines.conftest import Wait, hosts
from tests.machines.machine import Machine, Network

pytestmark = [pytest.mark.machines, pytest.mark.timeout(240)]

SIZE = 30_000_000


@sky.function
def crc(array: npt.NDArray[np.uint8]) -> int:
    return zlib.crc32(array)


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
    """An array, after a while: by then it is known who takes it."""
    keep_busy.fn(1.0)
    return np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8)


def fresh(seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8)


def left(network: Network) -> int:
    """Bytes that this host put on the bridge; what goes from machine to machine is not among them."""
    return int(Path(f"/sys/class/net/{network.name}/statistics/tx_bytes").read_text())


def test_the_link_of_the_client_carries_it_once(network: Network) -> None:
    """The link carries less in a second than a third of what three copies are, and each machine gets a whole one."""
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
    """Bytes that came to this host over the bridge."""
    return int(Path(f"/sys/class/net/{network.name}/statistics/rx_bytes").read_text())


def test_the_result_of_one_task_goes_to_another_without_a_trip_home(network: Network) -> None:
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


def test_machines_that_cannot_reach_each_other_are_each_sent_it(network: Network) -> None:
    """As behind a NAT, which they pass to nobody but the client."""
    for _ in range(3):
        network.add()
    with sky.Compute(provider=hosts(network), nodes=3) as pool:
        in_cluster() @ pool
        for machine in network.machines:
            machine.isolate()
        array = fresh(2)
        assert crc(array) @ pool == [zlib.crc32(array)] * 3
        assert sum(node.sent for node in pool.snapshot().nodes) == 3 * SIZE


def test_a_machine_is_cut_off_in_the_middle(network: Network, wait_for: Wait) -> None:
    """Those behind it in the chain get it all the same; it gets it when it is back."""
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
        wait_for(lambda: all(map(half, network.machines)), "part of it to be everywhere")
        chain = sorted(pool.snapshot().nodes, key=lambda node: node.rank)
        (first,) = [node.rank for node in chain if node.sent]
        middle = (first + 1) % 3
        name = network.machines[middle]
        name.cut()
        others = [rank for rank in range(3) if rank != middle]
        assert [runs[rank].future.result(120) for rank in others] == [zlib.crc32(array)] * 2
        name.mend()
        assert runs[middle].future.result(120) == zlib.crc32(array)
