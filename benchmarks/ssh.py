"""Nodes over SSH: calls and arrays through the tunnel, compared with the same tunnel without the library.

The machines are created in namespaces of this one, which needs root, iproute2 and OpenSSH with its server.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.arrays import MB, timed_touched
from benchmarks.figure import Aim, Figure, best, interleave, median, percentile, timed
from benchmarks.floors.casty_ask import CastyAsk
from benchmarks.floors.loopback import Loopback
from benchmarks.floors.process import Served
from benchmarks.settings import Settings
from benchmarks.tasks import remote
from skyward.pool.compute import Compute
from skyward.process.background import run
from skyward_providers.ssh import SSH
from tests.machines.machine import Machine, Network, why_not

__all__ = ["figures"]

BATCH = 200
SLOW = 8
"""Timeout in seconds. Starting eight workers takes about three, on two cores."""


def figures(settings: Settings) -> Iterator[Figure]:
    """Measure calls at rest, beside a busy thread and beside an array; arrays up and down; opening eight nodes."""
    if reason := why_not():
        yield Figure("nodes over SSH", "ms", None, note=reason)
        return
    with _network() as network:
        machine = network.add()
        with Compute(provider=_hosts(network), nodes=1) as pool:
            yield from _calls(settings, pool, machine)
            yield from _arrays(settings, pool, machine)
            yield from _beside(settings, pool)
        yield _opening(settings, network)
        yield _opening_slow(settings, network)


@contextmanager
def _network() -> Iterator[Network]:
    network = Network()
    try:
        yield network
    finally:
        network.close()


def _hosts(network: Network, python: str = sys.executable) -> SSH:
    machines = network.machines
    return SSH(
        hosts=[machine.address for machine in machines],
        username="root",
        client_keys=network.key,
        known_hosts=network.known_hosts(*machines),
        config="none",
        python=python,
    )


def _inside(machine: Machine) -> Sequence[str]:
    namespaces = ("--net", "--mount", "--uts", "--root", f"--wd={os.getcwd()}")
    return ("nsenter", "--target", str(machine.pids()[0]), *namespaces)


def _through(pool: Compute, served: Served) -> str:
    """Return the address of a floor on the machine of a pool: a forward of the connection that the pool uses."""
    assert pool._pool is not None
    way: str = run(pool._pool._fleet.nodes[0].reach(served.address)).result()
    return way


def _call(pool: Compute) -> None:
    remote.noop() >> pool


def _calls(settings: Settings, pool: Compute, machine: Machine) -> Iterator[Figure]:
    rounds = 3 if settings.quick else 15
    served = Served("casty_ask", _inside(machine))
    with CastyAsk(served, _through(pool, served)) as floor:
        asks, calls = interleave([floor.ask, partial(_call, pool)], BATCH, rounds)
        with _spinning():
            busy_asks, busy = interleave([floor.ask, partial(_call, pool)], BATCH // 4, 4)
    for part, aim in ((0.5, Aim("ratio", 1.5)), (0.99, None)):
        ours, theirs = percentile(calls, part) * 1e3, percentile(asks, part) * 1e3
        quiet = best(calls, BATCH) / best(asks, BATCH) if part == 0.5 else None
        yield Figure(
            f"no-op `>>` over SSH, p{part * 100:.0f}", "ms", ours, theirs, "casty ask, same tunnel", quiet, aim
        )
    yield Figure(
        "no-op `>>` over SSH beside a thread busy in Python, p50",
        "ms",
        median(busy) * 1e3,
        median(calls) * 1e3,
        "the same at rest",
        aim=Aim("ratio", 2.0),
        note=f"a casty ask beside it takes {median(busy_asks) * 1e3:.3g} ms",
    )


@contextmanager
def _spinning() -> Iterator[None]:
    """A thread that runs pure Python."""
    ended = threading.Event()

    def spin() -> None:
        number = 0
        while not ended.is_set():
            number = (number * 31 + 7) % 1_000_003

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _arrays(settings: Settings, pool: Compute, machine: Machine) -> Iterator[Figure]:
    nbytes, rounds = (100 if settings.quick else 300) * MB, 3 if settings.quick else 7
    served = Served("loopback", _inside(machine))
    up: list[float] = []
    down: list[float] = []
    floor_up: list[float] = []
    floor_down: list[float] = []
    with Loopback(served, _through(pool, served)) as floor:
        for number in range(rounds + 1):
            array = np.full(nbytes, number + 1, dtype=np.uint8)
            floor_up.append(timed_touched(nbytes, floor.take, array))
            up.append(timed_touched(nbytes, _size, pool, array))
            floor_down.append(timed_touched(nbytes, floor.give, nbytes))
            down.append(timed_touched(nbytes, _make, pool, nbytes))
    for name, ours, theirs in (("argument", up, floor_up), ("result", down, floor_down)):
        del ours[0], theirs[0]
        mb = nbytes / MB
        ratio = min(theirs) / min(ours)
        label, of = f"{mb:.0f} MB {name} over SSH", "raw socket, same tunnel"
        yield Figure(label, "MB/s", mb / median(ours), mb / median(theirs), of, ratio, Aim("ratio", 0.8, at_least=True))


def _size(pool: Compute, array: object) -> None:
    remote.size(array) >> pool


def _make(pool: Compute, nbytes: int) -> None:
    remote.make(nbytes) >> pool


def _beside(settings: Settings, pool: Compute) -> Iterator[Figure]:
    nbytes = (200 if settings.quick else 1000) * MB
    rest = [timed(partial(_call, pool)) for _ in range(500)]
    busy: list[float] = []
    for number in range(2 if settings.quick else 4):
        array = np.full(nbytes, number + 101, dtype=np.uint8)
        sending = threading.Thread(target=partial(_size, pool, array))
        sending.start()
        while sending.is_alive():
            busy.append(timed(partial(_call, pool)))
    more = (percentile(busy, 0.99) - percentile(rest, 0.99)) * 1e3
    yield Figure(
        f"no-op p99 over SSH beside {nbytes // MB:,} MB to the same node, over that at rest",
        "ms",
        more,
        aim=Aim("value", 10.0),
        note=f"{len(busy):,} calls; p99 at rest {percentile(rest, 0.99) * 1e3:.3g} ms, worst {max(busy) * 1e3:.3g} ms",
    )


def _opening(settings: Settings, network: Network) -> Figure:
    """Eight machines share the cores that one machine has to itself."""
    while len(network.machines) < 8:
        network.add()
    return _eight_beside_one("open 8 nodes over SSH", 1 if settings.quick else 5, _hosts(network))


def _opening_slow(settings: Settings, network: Network) -> Figure:
    """Eight machines that wait, as for a disk or a mirror, more than they compute. (Each has a separate `/tmp`.)"""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/var/tmp") as folder:
        python = Path(folder, "python")
        python.write_text(f'#!/bin/sh\nsleep {SLOW}\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        name = f"open 8 nodes over SSH that take {SLOW} s more to start"
        return _eight_beside_one(name, 1 if settings.quick else 3, _hosts(network, str(python)), Aim("ratio", 1.3))


def _eight_beside_one(name: str, rounds: int, hosts: SSH, aim: Aim | None = None) -> Figure:
    eight: list[float] = []
    one: list[float] = []
    for _ in range(rounds):
        for nodes, times in ((1, one), (8, eight)):
            with ExitStack() as stack:
                pool = Compute(provider=hosts, nodes=nodes)
                times.append(timed(partial(stack.enter_context, pool)))
    return Figure(name, "s", median(eight), median(one), "1 node", min(eight) / min(one), aim)
