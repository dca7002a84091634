"""Clouds: the client's part in renting 100 machines, and the time to a ready node beside the machine's own boot."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.figure import Aim, Figure, median
from benchmarks.floors.process import Served
from benchmarks.settings import Settings
from skyward.pool.compute import Compute
from skyward_providers.ssh import SSH
from tests.fakes.openapi import SHARED
from tests.machines.machine import Network, why_not
from tests.machines.package_source import UV, package_source

__all__ = ["figures"]


def figures(settings: Settings) -> Iterator[Figure]:
    """Measure requests, CPU, memory and time of 100 machines of a fake cloud; and the setup of machines over SSH."""
    if SHARED.exists():
        yield from _many(20 if settings.quick else 100)
    else:
        yield Figure("machines of a fake cloud", "ms", None, note=f"no published descriptions in {SHARED}")
    if reason := why_not():
        yield Figure("a node over SSH", "s", None, note=reason)
        return
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        yield from _ready(2 if settings.quick else 5, Path(folder), patch)


def _many(count: int) -> Iterator[Figure]:
    """Rent machines, wait until they run, and remove them, three times; each in a client process of its own."""
    runs: list[dict[str, Any]] = []
    with Served("runpod") as served, tempfile.TemporaryDirectory() as folder:
        for _ in range(3):
            command = [sys.executable, "-m", "benchmarks.cloud_client", served.address, str(count)]
            environment = {**os.environ, "SKYWARD_DATA_DIR": folder}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout))

    def middle(which: str, what: str) -> float:
        return median([run[which][what] for run in runs])

    title, bare = f"{count} machines of a fake cloud, from none to none", "the same requests, one by one"
    requests = median([run["requests"] for run in runs]) / count
    yield Figure(f"{title}: requests", "per machine", requests, aim=Aim("value", 10))
    cpu, floor = middle("ours", "cpu") * 1e3 / count, middle("bare", "cpu") * 1e3 / count
    yield Figure(f"{title}: CPU of the client", "ms per machine", cpu, floor, bare, aim=Aim("value", 20))
    yield Figure(f"{title}: time", "s", middle("ours", "seconds"), middle("bare", "seconds"), bare)
    yield Figure(f"{title}: peak memory of the client", "MB more", middle("ours", "megabytes"))


def _ready(rounds: int, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Figure]:
    """Open pools of one node: on machines that were never used, and again on these, which have the environment."""
    cold: list[float] = []
    prebaked: list[float] = []
    bare: list[float] = []
    network = Network()
    try:
        with package_source(network, folder / "wheels", patch):
            for _ in range(rounds):
                machine = network.add()
                (machine.disk / "usr/local/bin/uv").symlink_to(UV.resolve())
                provider = SSH(
                    hosts=[machine.address],
                    username="root",
                    client_keys=network.key,
                    known_hosts=network.known_hosts(machine),
                    config="none",
                )
                bare.append(_answer(network, machine.address))
                cold.append(_opening(provider))
                prebaked.append(_opening(provider))
    finally:
        network.close()
    boot = "`ssh`, as the machine runs"
    for name, times, limit in (("cold, packages on the network", cold, 5.0), ("environment there", prebaked, 2.0)):
        extra = [ours - floor for ours, floor in zip(times, bare, strict=True)]
        title = f"ready node over SSH, {name}: beyond the boot"
        yield Figure(title, "s", median(extra), median(bare), boot, aim=Aim("value", limit))


def _answer(network: Network, address: str) -> float:
    """Return the seconds until a command ran on a machine that has just been started."""
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=1")
    command = ["ssh", "-F", "none", "-i", str(network.key), *(word for each in options for word in ("-o", each))]
    start = time.perf_counter()
    while subprocess.run([*command, f"root@{address}", "true"], capture_output=True, check=False).returncode:
        time.sleep(0.05)
    return time.perf_counter() - start


def _opening(provider: SSH) -> float:
    pool = Compute(provider=provider, nodes=1, logging=False, console="silent")
    start = time.perf_counter()
    pool.open()
    try:
        return time.perf_counter() - start
    finally:
        pool.close()
