"""Real machines of Vast.ai and Verda, whose SSH server is up before their start script has run."""

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import skyward as sky
from skyward.providers import Instance, Provider, ProviderConfig, SSHAccess
from skyward.providers.conformance import conformance_identity
from tests.fakes import vastai, verda
from tests.fakes.openapi import description
from tests.fakes.vastai import FakeVastAI, amend, offer
from tests.fakes.verda import NO_CAPACITY, FakeVerda, instance_type
from tests.machines.machine import Network
from tests.machines.package_source import UV, package_source
from tests.waiting import wait_for

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(180)]


@pytest.fixture
def packages(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The packages of nodes, from this host."""
    with package_source(network, tmp_path / "wheels", monkeypatch):
        yield


@pytest.fixture
def market(network: Network) -> Iterator[FakeVastAI]:
    """Vast.ai, whose instances are machines."""
    published = description("vastai-openapi.yaml", amend)
    with FakeVastAI(published, network=network, uv=UV.resolve()) as cloud:
        cloud.add(offer(7001))
        yield cloud
        assert cloud.wrong == []


@pytest.fixture
def cloud(network: Network) -> Iterator[FakeVerda]:
    """Verda, whose instances are machines."""
    with FakeVerda(network=network, uv=UV.resolve()) as fake:
        fake.add(instance_type("1H100.80S.32V", 2.29, 0.80, "H100"), on_demand=1, spot=1)
        yield fake
        assert fake.wrong == []


def of_vastai(market: FakeVastAI) -> sky.VastAI:
    return sky.VastAI(api_key=vastai.KEY, endpoint=market.url)


def of_verda(cloud: FakeVerda) -> sky.Verda:
    return sky.Verda(client_id=verda.CLIENT, client_secret=verda.SECRET, endpoint=f"{cloud.url}/v1")


async def launched(config: ProviderConfig, folder: Path) -> tuple[Provider, Instance]:
    """Return a running machine, with its provider."""
    provider = config.create_provider()
    pool = conformance_identity("unit-1", folder)
    [found] = [each async for each in provider.offers()]
    cluster = await provider.prepare(sky.Spec(provider=config, allocation="on-demand"), found, pool)
    cluster = replace(cluster, tags={**pool.tags, "skyward-request": "request-1"})
    cluster, [machine] = await provider.provision(cluster, 1)
    until = time.monotonic() + 60
    while True:
        cluster, instance = await provider.get_instance(cluster, machine.id)
        if instance is not None and instance.status == "running":
            return provider, instance
        assert time.monotonic() < until, instance
        await asyncio.sleep(0.1)


def on_machine(instance: Instance, command: str, folder: Path) -> str:
    """Run a command on a machine, whose host key must be the expected one."""
    access = instance.access
    assert isinstance(access, SSHAccess)
    known = folder / "known_hosts"
    known.write_text(f"{access.host} {access.host_key}\n")
    options = ("-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={known}", "-o", "IdentitiesOnly=yes")
    words = ["ssh", *options, "-i", access.client_keys[0], "-l", "root", access.host, command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_start_script_gives_a_running_ssh_server_our_keys(market: FakeVastAI, tmp_path: Path) -> None:
    _, instance = asyncio.run(launched(of_vastai(market), tmp_path))
    assert on_machine(instance, "echo $CUDA_VERSION; ls /root/.no_auto_tmux", tmp_path).split()[0] == "12.8.0"


@pytest.mark.skipif(shutil.which("curl") is None and shutil.which("wget") is None, reason="needs curl or wget")
def test_forgotten_machine_destroys_itself(market: FakeVastAI, tmp_path: Path) -> None:
    _, instance = asyncio.run(launched(of_vastai(market), tmp_path))
    hurried = "sed -e 's/patience=1200/patience=2/' -e 's/sleep 5/sleep 0.2/' /etc/skyward/watchdog >/tmp/hurried"
    on_machine(instance, f"{hurried}; setsid sh /tmp/hurried </dev/null >/dev/null 2>&1 &", tmp_path)
    wait_for(lambda: not market.instances, "the instance destroys itself")


def test_startup_script_gives_a_running_ssh_server_our_keys(cloud: FakeVerda, tmp_path: Path) -> None:
    _, instance = asyncio.run(launched(of_verda(cloud), tmp_path))
    assert on_machine(instance, "echo here", tmp_path) == "here\n"


@sky.function
def hostname() -> str:
    import socket

    return socket.gethostname()


@pytest.mark.usefixtures("packages")
def test_pool_on_vastai_replaces_a_machine_that_is_outbid(market: FakeVastAI) -> None:
    market.add(offer(7002, price=0.41))
    with sky.Compute(provider=of_vastai(market), accelerator="RTX_4090", nodes=1, logging=False) as pool:
        first = hostname() >> pool
        [id] = market.instances
        assert market.instances[id]["is_bid"]
        market.outbid(id)
        assert hostname() >> pool != first
        assert [each for each in market.instances if each != id]
    assert market.instances == {}


@pytest.mark.usefixtures("packages")
def test_pool_on_verda_falls_back_to_on_demand_and_leaves_nothing(cloud: FakeVerda) -> None:
    cloud.fail("POST", "/v1/instances", NO_CAPACITY, times=-1, when=lambda machine: machine["is_spot"])
    with sky.Compute(provider=of_verda(cloud), accelerator="H100", nodes=1, logging=False) as pool:
        assert hostname() >> pool
        [machine] = cloud.instances.values()
        assert not machine["is_spot"]
        assert pool.snapshot().per_hour == pytest.approx(2.29)
    assert cloud.billed == {"instances": [], "volumes": [], "keys": [], "scripts": []}
