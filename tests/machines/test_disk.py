"""Machines with a full disk: the error names the disk, and nothing blocks."""

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import skyward as sky
from tests.local.bootstrapping import make_wheel
from tests.machines.conftest import hosts
from tests.machines.machine import Machine, Network
from tests.machines.test_setup import bare, wheels
from tests.machines.test_trust import refusal

pytestmark = [pytest.mark.machines, pytest.mark.timeout(180)]

__all__ = ["wheels"]  # a fixture


def small_disk(machine: Machine, size: str) -> None:
    """Mount a disk of that size as Skyward's directory."""
    inside = ["nsenter", "--target", str(machine.pids()[0]), "--mount", "--root", "--wd=/"]
    script = f"mkdir -p /opt/skyward && mount -t tmpfs -o size={size},mode=755 tmpfs /opt/skyward"
    subprocess.run([*inside, "sh", "-c", script], check=True)


def fill(machine: Machine) -> None:
    """Fill that disk."""
    with (
        (machine.disk / "opt/skyward/filler").open("wb", buffering=0) as file,
        pytest.raises(OSError, match="No space"),
    ):
        while True:
            file.write(bytes(65536))


@pytest.mark.parametrize("size", ["16k", "200k", "3m"])
def test_full_disk_during_setup_is_named(size: str, network: Network, wheels: Path) -> None:
    """Too small for any file, for the files that are sent, or for the packages."""
    make_wheel(wheels, "torchy", "2.5")
    machine = bare(network)
    small_disk(machine, size)
    message = refusal(replace(hosts(network), python=None), image=sky.Image(pip=["torchy"]))
    first = message.splitlines()[0]
    assert f"the disk of root@{machine.address} is full: /opt/skyward has" in first


def test_full_disk_at_the_start_of_the_worker_is_named(network: Network) -> None:
    machine = network.add()
    small_disk(machine, "64k")
    fill(machine)
    message = refusal(hosts(network))
    assert f"the disk of root@{machine.address} is full: /opt/skyward has" in message
    assert message.count("\n") == 0


@sky.function
def doubled(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    print("doubling")
    return data * 2


@sky.function
def write(path: str) -> None:
    Path(path).write_bytes(bytes(100_000))


def test_full_disk_does_not_stop_tasks_that_do_not_write(network: Network, capsys: pytest.CaptureFixture[str]) -> None:
    """Blobs are in memory; a task that writes gets the system's error, with the path."""
    machine = network.add()
    small_disk(machine, "1m")
    data = np.random.default_rng(0).integers(0, 100, 20_000_000, dtype=np.uint8)
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        fill(machine)
        assert np.array_equal(doubled(data) >> pool, data * 2)
        with pytest.raises(OSError, match=r"No space left on device"):
            write("/opt/skyward/result") >> pool
        assert np.array_equal(doubled(data[:100]) >> pool, data[:100] * 2)
    assert capsys.readouterr().out.count("doubling") == 2
    assert not list((machine.disk / "opt/skyward/nodes").iterdir())
