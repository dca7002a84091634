"""A pool of machines over SSH works like a pool of local nodes."""

import os
from pathlib import Path

import numpy as np
import pytest

import skyward as sky
from tests.machines.conftest import hosts
from tests.machines.machine import Network
from tests.remote_tasks import count, doubled, hostname
from tests.waiting import wait_for

pytestmark = pytest.mark.machines


@sky.function
def environment() -> dict[str, str]:
    return dict(os.environ)


def test_functions_run_on_the_machines(pool: sky.Compute, shared_network: Network) -> None:
    assert sorted(hostname() @ pool) == [machine.name for machine in shared_network.machines]


def test_output_is_shown_by_the_client(pool: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    hostname() @ pool
    output = capsys.readouterr().out
    assert "this is node 0" in output
    assert "this is node 1" in output


def test_large_buffers_are_transferred_through_the_tunnel_both_ways(pool: sky.Compute) -> None:
    data = np.random.default_rng(0).integers(0, 100, 20_000_000, dtype=np.uint8)
    assert np.array_equal(doubled(data) >> pool, data * 2)


def test_inputs_and_outputs_are_streamed(pool: sky.Compute) -> None:
    assert list(count(10_000) >> pool) == list(range(10_000))


def test_nodes_know_the_addresses_of_their_peers(pool: sky.Compute, shared_network: Network) -> None:
    @sky.function
    def peers() -> list[str]:
        return [peer.private_ip for peer in sky.instance_info().peers]

    assert peers() @ pool == [[machine.address for machine in shared_network.machines]] * 2


def test_environment_of_tasks_has_no_secrets(pool: sky.Compute) -> None:
    assert "SKYWARD_SECRETS" not in environment() >> pool


def test_closed_pool_leaves_the_machines_unchanged(network: Network) -> None:
    machine = network.add()
    with sky.Compute(provider=hosts(network), nodes=1) as pool:
        assert hostname() >> pool == machine.name
        inside = Path(f"/proc/{machine.pids()[0]}/root/opt/skyward/nodes")
        assert len(list(inside.iterdir())) == 1
    assert not list(inside.iterdir())
    wait_for(lambda: len(machine.pids()) == 1, "all but the listening sshd to end")


def test_more_nodes_than_hosts_are_refused(network: Network) -> None:
    network.add()
    with pytest.raises(sky.SpecError, match=r"^The pool needs at least 2 nodes, but hosts names 1 machine\.$"):
        sky.Compute(provider=hosts(network), nodes=2).open()
