"""Machines with wrong clocks work like others: the protocol does not depend on wall clock time."""

import sys
import time
from pathlib import Path

import pytest

import skyward as sky
from tests.machines.machine import Machine, Network

pytestmark = pytest.mark.machines

DAY = 86_400.0
PYTHON = Path("/opt/another-time/python")


def set_clock(machine: Machine, days: int) -> None:
    """Shift the clock of the node's Python by `days`."""
    folder = machine.disk / PYTHON.parent.relative_to("/")
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import time\n"
        f"apart, now, now_ns = {days * DAY}, time.time, time.time_ns\n"
        "time.time = lambda: now() + apart\n"
        "time.time_ns = lambda: now_ns() + int(apart * 1e9)\n"
    )
    script = folder / PYTHON.name
    script.write_text(f'#!/bin/sh\nPYTHONPATH={PYTHON.parent} exec {sys.executable} "$@"\n')
    script.chmod(0o755)


@sky.function
def clock() -> float:
    print("tick")
    return time.time()


@sky.function
def meet() -> int:
    sky.barrier("both", 2).wait(timeout=60)
    with sky.lock("one after the other"):
        return sky.counter("met").increment()


@sky.function(timeout=1)
def too_long() -> None:
    time.sleep(60)


def test_clocks_a_year_ahead_and_behind_make_no_difference(
    network: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    for days in (400, -400):
        set_clock(network.add(), days)
    provider = sky.SSH(
        hosts=[machine.address for machine in network.machines],
        username="root",
        client_keys=network.key,
        known_hosts=network.known_hosts(*network.machines),
        config="none",
        python=str(PYTHON),
    )
    began = time.time()
    with sky.Compute(provider=provider, nodes=2) as pool:
        off = [round((told - began) / DAY) for told in clock() @ pool]
        assert sorted(off) == [-400, 400], "the clocks were not shifted"
        assert capsys.readouterr().out.count("tick") == 2
        assert sorted(meet() @ pool) == [1, 2]
        with pytest.raises(TimeoutError):
            too_long() >> pool
        assert [began - 1 <= line.time <= time.time() + 1 for line in pool.logs()] == [True, True]
        for _, samples in sorted(pool.metrics().items()):
            assert all(began - 1 <= sample.at <= time.time() + 1 for sample in samples)
