"""Without an `ssh` command, asyncssh in a separate process takes its place."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import skyward as sky
from skyward.link.ssh import connect as ssh
from tests.machines.conftest import hosts
from tests.machines.machine import Network
from tests.machines.test_trust import refusal

pytestmark = pytest.mark.machines


@pytest.fixture(autouse=True)
def _no_ssh_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "openssh_here", lambda: False)


@pytest.fixture
def pool(network: Network) -> Iterator[sky.Compute]:
    network.add()
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        yield pool


@sky.function
def doubled(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    print(f"{len(data)} bytes")
    return data * 2


def test_functions_output_and_large_buffers_work(pool: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    data = np.random.default_rng(0).integers(0, 100, 20_000_000, dtype=np.uint8)
    assert np.array_equal(doubled(data) >> pool, data * 2)
    assert "20000000 bytes" in capsys.readouterr().out


def test_broken_connection_is_restored(pool: sky.Compute, network: Network) -> None:
    data = np.ones(1000, dtype=np.uint8)
    network.machines[0].kill_sessions()
    assert (doubled(data) >> pool).sum() == 2000


def test_wrong_host_key_is_refused(network: Network) -> None:
    machine = network.add()
    provider = hosts(network)
    machine.kill()
    machine.renew_host_key()
    machine.boot()
    assert "shows another host key" in refusal(provider)


def test_new_host_key_is_logged_then_pinned_by_the_fallback(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine = network.add()
    monkeypatch.setenv("HOME", str(tmp_path))
    provider = replace(hosts(network), known_hosts=None)
    for _ in range(2):
        with sky.Compute(provider=provider, nodes=1) as pool:
            assert (doubled(np.ones(3, dtype=np.uint8)) >> pool).sum() == 6
    assert caplog.text.count(f"first connection to {machine.address}") == 1
    machine.kill()
    machine.renew_host_key()
    machine.boot()
    assert "shows another host key" in refusal(provider)
