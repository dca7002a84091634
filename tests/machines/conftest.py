"""Networks of real machines for the tests of this tier."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import skyward as sky
from tests.machines.machine import Network, why_not
from tests.required import leave_out_for


@contextmanager
def new_network() -> Iterator[Network]:
    """Make a bridge without machines; all that is added is removed. Without root, the test is skipped."""
    leave_out_for(why_not(), "SKYWARD_MACHINES")
    network = Network()
    try:
        yield network
    finally:
        network.close()


@pytest.fixture
def network() -> Iterator[Network]:
    """Bridge without machines."""
    with new_network() as network:
        yield network


@pytest.fixture(scope="module")
def shared_network() -> Iterator[Network]:
    """Bridge with two machines, shared by the tests of a module that leave them unchanged."""
    with new_network() as network:
        network.add()
        network.add()
        yield network


def hosts(network: Network, *, grace: float = 30.0) -> sky.SSH:
    """Return a provider of the machines of a network, which show this host's environment."""
    return sky.SSH(
        hosts=[machine.address for machine in network.machines],
        username="root",
        client_keys=network.key,
        known_hosts=network.known_hosts(*network.machines),
        config="none",
        grace=grace,
        python=sys.executable,
    )


def source_of_hosts(network: Network, *, grace: float = 30.0) -> str:
    """Return the source of `hosts`, for a client that is another process."""
    return (
        f"sky.SSH(hosts={[machine.address for machine in network.machines]!r}, username='root', "
        f"client_keys={str(network.key)!r}, known_hosts={str(network.known_hosts(*network.machines))!r}, "
        f"config='none', grace={grace!r}, python={sys.executable!r})"
    )


@pytest.fixture(scope="module")
def pool(shared_network: Network) -> Iterator[sky.Compute]:
    """Two nodes, each on a machine of its own."""
    with sky.Compute(provider=hosts(shared_network), nodes=2) as compute:
        yield compute
