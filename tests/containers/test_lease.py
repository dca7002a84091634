"""Leases of containers: without a client, a container ends and is removed."""

import asyncio
import os
import sys

import pytest

import skyward as sky
from skyward.providers.protocol import Cluster, InstanceType, Offer
from skyward.specs import Spec
from skyward_providers import container
from tests.containers.conftest import containers
from tests.containers.engine import IMAGE, Engine
from tests.killed_client import kill_at_work
from tests.waiting import wait_for

pytestmark = [pytest.mark.containers, pytest.mark.timeout(180)]

WORK = """
@sky.function
def work(seconds):
    import time
    print("begun", flush=True)
    time.sleep(seconds)
    print("slept", flush=True)
    return "done"
"""


def killed_client(engine: Engine, pool: str, ttl: int = 0) -> str:
    """Start a client process and kill it while its task runs. Return the name of its container."""
    provider = f"sky.Container(image={IMAGE!r}, python={sys.executable!r}, grace=1, **{engine.settings!r})"
    kill_at_work(WORK, "run = pool.start(work(5))", provider, f"name={pool!r}, nodes=1, ttl={ttl}", printed="begun")
    (name,) = engine.of(pool)
    return name


def test_container_of_a_killed_client_is_removed_after_its_lease(engine: Engine) -> None:
    """The lease is 31 s: the grace of 1 s, and 30 s. The connection's processes end at once."""
    name = killed_client(engine, "orphan")
    wait_for(lambda: not engine.entering(name), "the `docker exec` of the client to end")
    assert name in engine.containers()
    assert "-m skyward.worker" in engine.call("top", name, "-eo", "pid,args")
    wait_for(lambda: name not in engine.containers(), "the container to be removed")
    sky.reap()
    assert not [network for network in engine.networks() if network.startswith("skyward-orphan-")]


def test_container_of_a_killed_client_can_be_attached_to(engine: Engine) -> None:
    name = killed_client(engine, "left", ttl=120)
    with sky.attach("left") as pool:
        (task,) = pool.recovered
        assert task.result(60) == "done"
        assert "slept" in task.output, "output that the killed client did not receive"
        assert sky.function(os.getpid)() >> pool
        assert engine.of("left") == [name]


def test_container_that_is_never_used_is_removed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was killed between the start of a container and the first connection."""
    monkeypatch.setattr(container, "_FIRST_PROCESS", container._FIRST_PROCESS.replace("patience=60", "patience=10"))
    cluster = Cluster("c", "unheard-0", Spec(), OFFER, {"image": IMAGE, "network": "skyward-unheard-0"})
    asyncio.run(containers(engine).create_provider().provision(cluster, 2))
    wait_for(lambda: not engine.of("unheard"), "the containers to be removed")
    engine.call("network", "rm", "skyward-unheard-0")


OFFER = Offer("container", InstanceType("here", 1, 1))
