"""Networks of real machines for the tests of this tier."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import skyward as sky
from tests.local.bootstrapping import make_index, make_wheel, repack
from tests.machines.machine import Network, why_not
from tests.machines.serving import served_at
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


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Package index on this host's loopback, which no machine reaches."""
    wheels = [repack(tmp_path / "wheels", name) for name in ("blake3", "casty", "cloudpickle", "uvloop")]
    make_index(tmp_path / "simple", [*wheels, make_wheel(tmp_path / "wheels", "torchy", "2.5")])
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    for name in ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    with served_at("127.0.0.1", tmp_path) as address:
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{address}simple")
        monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", f"{address}downloads.json")
        yield address


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
