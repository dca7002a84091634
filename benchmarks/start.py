"""Start of a node over SSH, compared with a bare command over a new connection.

The machines are created in namespaces of this one, which needs root, iproute2 and OpenSSH with its server. Packages
come from an index on this host; the machines have uv.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.figure import Aim, Figure, median, timed
from benchmarks.settings import Settings
from skyward.pool.compute import Compute
from skyward_providers.ssh import SSH
from tests.local.bootstrapping import make_index, repack
from tests.machines.conftest import hosts
from tests.machines.machine import Machine, Network, why_not
from tests.machines.serving import served, served_at
from tests.waiting import wait_for

__all__ = ["figures"]

_PACKAGES = ("blake3", "casty", "cloudpickle", "uvloop")


def figures(settings: Settings) -> Iterator[Figure]:
    """Measure starts with a warm cache of packages, with an existing environment, and without a network."""
    if reason := why_not():
        yield Figure("start of a node over SSH", "s", None, note=reason)
        return
    rounds = 2 if settings.quick else 5
    cold, warm, offline, peers = list[float](), list[float](), list[float](), list[float]()
    with _machine() as (network, machine, folder):
        provider = replace(hosts(network), python=None)
        bare = [timed(partial(_bare, network, machine)) for _ in range(rounds)]
        with served(network, folder) as address, _index(address):
            first = _opened(provider)
            for _ in range(rounds):
                _without_environment(machine)
                cold.append(_opened(provider))
                warm.append(_opened(provider))
        with served_at("127.0.0.1", folder) as address, _index(address):
            for _ in range(rounds):
                _empty(machine)
                offline.append(_opened(provider))
            peers += _received(network, rounds)
    yield _figure("start of a node, empty machine", [first], bare)
    yield _figure("start of a node, cache of packages is warm", cold, bare, 5.0)
    yield _figure("start of a node, environment exists", warm, bare, 2.0)
    yield _figure("start of a node, machine without a network", offline, bare)
    yield _figure("start of a node, environment from another node", peers, bare)


def _figure(name: str, times: list[float], bare: list[float], more: float | None = None) -> Figure:
    floor = median(bare)
    aim = None if more is None else Aim("value", floor + more)
    return Figure(name, "s", median(times), floor, "`ssh HOST true`", min(times) / min(bare), aim)


@contextmanager
def _machine() -> Iterator[tuple[Network, Machine, Path]]:
    network = Network()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as folder:
            machine = network.add()
            uv = shutil.which("uv", path=os.path.dirname(sys.executable))
            (machine.disk / "usr/local/bin/uv").symlink_to(Path(str(uv)).resolve())
            make_index(Path(folder, "simple"), [repack(Path(folder, "wheels"), name) for name in _PACKAGES])
            yield network, machine, Path(folder)
    finally:
        network.close()


@contextmanager
def _index(address: str) -> Iterator[None]:
    """Configure a package index, and no other place of packages."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("PIP_", "UV_")):
            del os.environ[name]
    os.environ["UV_DEFAULT_INDEX"] = f"{address}simple"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _bare(network: Network, machine: Machine) -> None:
    known = f"UserKnownHostsFile={network.known_hosts(machine)}"
    words = ("ssh", "-F", "none", "-i", str(network.key), "-o", known, "-l", "root", machine.address, "true")
    subprocess.run(words, check=True)


def _opened(provider: SSH) -> float:
    """Return the seconds until a pool has its node."""
    with ExitStack() as stack:
        return timed(lambda: stack.enter_context(Compute(provider=provider, nodes=1)))


def _received(network: Network, rounds: int) -> list[float]:
    """Return the seconds until a pool of one node has a second one, whose machine has no network and is empty."""
    machine, times = network.add(), list[float]()
    with Compute(provider=replace(hosts(network), python=None), nodes=(1, 2), autoscale_idle_timeout=600) as pool:
        for _ in range(rounds):
            times.append(timed(partial(_resize, pool, 2)))
            _resize(pool, 1)
            _empty(machine)
    return times


def _resize(pool: Compute, count: int) -> None:
    pool.resize(count)
    wait_for(lambda: [node.state for node in pool.snapshot().nodes] == ["active"] * count, f"{count} nodes")


def _without_environment(machine: Machine) -> None:
    """Remove the environments of a machine, and nothing else."""
    for name in ("envs", "state"):
        shutil.rmtree(machine.disk / "opt/skyward" / name)


def _empty(machine: Machine) -> None:
    shutil.rmtree(machine.disk / "opt/skyward")
