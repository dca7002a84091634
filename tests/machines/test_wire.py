"""A slow network: latency of 100 ms, jitter and packet loss between a pool and its machine."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import skyward as sky
from tests.machines.conftest import hosts
from tests.machines.machine import Network
from tests.remote_tasks import doubled

pytestmark = [pytest.mark.machines, pytest.mark.timeout(300)]

WIRE = Path(__file__).parents[3] / "shared/tools/wire.py"


@pytest.fixture
def far(network: Network) -> Network:
    if not WIRE.is_file():
        pytest.skip(f"the wire program {WIRE} is missing")
    network.wire = WIRE
    return network


@sky.function
def speak(n: int) -> int:
    for number in range(n):
        print(f"line {number}")
    return n


@sky.function
def ticks(n: int) -> Iterator[int]:
    yield from range(n)


def test_latency_jitter_and_loss_neither_lose_nor_duplicate_output(
    far: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = far.add()
    machine.disturb(delay=0.1, jitter=0.02, loss=0.01)
    data = np.random.default_rng(0).integers(0, 100, 2_000_000, dtype=np.uint8)
    with sky.Compute(provider=hosts(far), nodes=1, worker=sky.Worker(concurrency=2)) as pool:
        sending = pool.start(doubled(data))
        assert speak(300) >> pool == 300
        assert list(ticks(2000) >> pool) == list(range(2000))
        assert sky.gather(*(speak(1) for _ in range(20))) >> pool == (1,) * 20
        assert np.array_equal(sending.future.result(120), data * 2)
    output = re.findall(r"line \d+", capsys.readouterr().out)  # tasks that print concurrently may share a line
    assert sorted(output) == sorted([f"line {number}" for number in range(300)] + ["line 0"] * 20)
