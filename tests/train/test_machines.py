"""Collectives of PyTorch between machines of their own, over SSH."""

from collections.abc import Iterator

import pytest

import skyward as sky
from tests.machines.conftest import hosts, new_network
from tests.machines.machine import Network
from tests.train.collectives import losses, rounds
from tests.train.tasks import exchange, train

pytestmark = [pytest.mark.train, pytest.mark.machines, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Bridge with two machines that know their names: PyTorch looks them up, and would wait for a name server."""
    with new_network() as network:
        machines = [network.add() for _ in range(2)]
        names = "".join(f"{prefix}{each.address} {each.name}\n" for each in machines for prefix in ("", "::ffff:"))
        for each in machines:
            with (each.disk / "etc" / "hosts").open("a") as known:
                known.write(names)
        yield network


@pytest.fixture(scope="module")
def pool(network: Network) -> Iterator[sky.Compute]:
    """Two nodes, each on a machine of its own, whose collective runs once more if it loses a member."""
    image = sky.Image(env={"OMP_NUM_THREADS": "1"})
    with sky.Compute(provider=hosts(network), nodes=2, image=image, plugins=[sky.plugins.torch(restarts=1)]) as compute:
        yield compute


def test_members_meet_on_the_network_of_the_machines(pool: sky.Compute, network: Network) -> None:
    results = sky.function(exchange)() @ pool
    assert [(backend, rank, ranks) for backend, rank, ranks, _ in results] == [("gloo", 0, [0, 1]), ("gloo", 1, [0, 1])]
    assert [addresses for *_, addresses in results] == [[machine.address] for machine in network.machines]


def test_collective_runs_again_after_a_killed_member(pool: sky.Compute, network: Network) -> None:
    assert rounds("torch", "/tmp", 1, "kill") @ pool == [1.0, 1.0]
    assert (network.machines[1].disk / "tmp" / "failed").exists()


def test_machines_train_one_model(pool: sky.Compute) -> None:
    (before, after), (other_before, other_after) = sky.function(train)() @ pool
    assert before != other_before
    assert after == other_after
    assert after not in (before, other_before)
    assert sorted(losses("torch", [1, 2, 3], 1) @ pool) == [(0, 6.0), (1, 6.0)]
