"""Environments that new nodes of a pool receive from a ready one."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import skyward as sky
from tests.machines import minimal
from tests.machines.conftest import hosts
from tests.machines.machine import Network
from tests.required import leave_out_for
from tests.waiting import wait_for

pytestmark = [pytest.mark.machines, pytest.mark.timeout(300)]

IMAGE = sky.Image(pip=["torchy"], env={"TOKEN": "a-secret-of-the-image"}, shell_vars={"KERNEL": "uname -s"})


@pytest.fixture
def offline(network: Network, index: str) -> Network:
    """Two minimal machines, and a package index that only this host reaches."""
    leave_out_for(minimal.why_not(), "SKYWARD_MINIMAL_ROOT")
    network.system = minimal.system()
    network.add()
    network.add()
    return network


@sky.function
def seen() -> tuple[str, str, str]:
    import os

    import torchy  # type: ignore[import-not-found]  # made by the test, on the node

    return sys.base_prefix, str(torchy.VERSION), os.environ["TOKEN"]


def wait_for_nodes(pool: sky.Compute, count: int) -> None:
    wait_for(lambda: sum(node.state == "active" for node in pool.snapshot().nodes) == count, f"{count} nodes")


def sent_by_this_host(network: Network) -> int:
    """Return the bytes that this host has sent to the machines."""
    return int(Path(f"/sys/class/net/{network.name}/statistics/tx_bytes").read_text())


def test_machine_without_internet_gets_its_environment_from_another_node(offline: Network) -> None:
    """The machines have neither uv, Python, curl nor wget. The client sends these to the first one only."""
    with sky.Compute(provider=replace(hosts(offline), python=None), nodes=(1, 2), image=IMAGE) as pool:
        assert "set up from this computer" in pool.start_log(0)
        before = sent_by_this_host(offline)
        pool.resize(2)
        wait_for_nodes(pool, 2)
        sent = sent_by_this_host(offline) - before
        log = pool.start_log(1)
        print(log)
        first, second = seen() @ pool
    print(log)
    assert f"from node 0, {offline.machines[0].address}: " in log
    assert "set up from this computer" not in log
    assert first == second
    assert second[1:] == ("2.5", "a-secret-of-the-image")
    assert sent < 5_000_000
    assert not offline.machines[0].running("skyward.bootstrap.peers.serve")


def test_node_that_the_firewall_cuts_off_from_others_is_set_up_by_the_client(offline: Network) -> None:
    offline.machines[1].drop(offline.machines[0].address)
    with sky.Compute(provider=replace(hosts(offline), python=None), nodes=(1, 2), image=IMAGE) as pool:
        pool.resize(2)
        wait_for_nodes(pool, 2)
        log = pool.start_log(1)
        print(log)
        first, second = seen() @ pool
    assert "not received from node 0: nothing arrived from it for 5 s; it is made here" in log
    assert "set up from this computer" in log
    assert first == second
