"""Nobody pays for a client that is gone: a container ends and removes itself."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import skyward as sky
from skyward.providers.protocol import Cluster, InstanceType, Offer
from skyward.specs import Spec
from skyward_providers import container
from tests.containers.conftest import Wait, containers
from tests.containers.engine import IMAGE, Engine

pytestmark = [pytest.mark.containers, pytest.mark.timeout(180)]

ROOT = str(Path(__file__).parents[2])

CLIENT = """
import sys, time
import skyward as sky

@sky.function
def work(seconds):
    import time
    print("begun", flush=True)
    time.sleep(seconds)
    print("slept", flush=True)
    return "done"

pool = sky.Compute(name={name!r}, provider=sky.Container(image={image!r}, python={python!r}, grace=1, **{settings!r}),
    nodes=1, ttl=0).open()
run = pool.start(work(5))
while "begun" not in pool.logs().text:
    time.sleep(0.01)
print("\\nup\\n", end="", flush=True)  # in one piece, as a line of its own, whatever the tasks have printed
time.sleep(100)
"""


def killed_client(engine: Engine, pool: str) -> str:
    """A client in a process of its own, killed while its task runs; the container that it had."""
    script = CLIENT.format(settings=engine.settings, image=IMAGE, python=sys.executable, name=pool)
    env = {**os.environ, "PYTHONPATH": ROOT}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env) as client:
        assert client.stdout is not None
        assert "up\n" in client.stdout
        client.kill()
    (name,) = engine.of(pool)
    return name


def test_a_container_removes_itself_when_its_client_was_killed(engine: Engine, wait_for: Wait) -> None:
    """After the lease of 31 s: the grace of 1 s and 30 s more. What had connected us goes at once."""
    name = killed_client(engine, "orphan")
    wait_for(lambda: not engine.entering(name), "the `docker exec` of the client to end")
    assert name in engine.containers()
    assert "-m skyward.worker" in engine.call("top", name, "-eo", "pid,args")
    wait_for(lambda: name not in engine.containers(), "the container to remove itself")
    sky.reap()
    assert not [network for network in engine.networks() if network.startswith("skyward-orphan-")]


def test_a_container_whose_client_was_killed_can_be_entered_by_another(engine: Engine) -> None:
    name = killed_client(engine, "left")
    with sky.attach("left") as pool:
        (task,) = pool.recovered
        assert task.result(60) == "done"
        assert "slept" in task.output, "what the killed client has not had"
        assert sky.function(os.getpid)() >> pool
        assert engine.of("left") == [name]


def test_a_container_that_nobody_ever_enters_removes_itself(
    engine: Engine, wait_for: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was killed between the start of a container and the first look into it."""
    monkeypatch.setattr(container, "_FIRST_PROCESS", container._FIRST_PROCESS.replace("patience=60", "patience=10"))
    cluster = Cluster("c", "unheard-0", Spec(), OFFER, {"image": IMAGE, "network": "skyward-unheard-0"})
    asyncio.run(containers(engine).create_provider().provision(cluster, 2))
    wait_for(lambda: not engine.of("unheard"), "the containers to remove themselves")
    engine.call("network", "rm", "skyward-unheard-0")


OFFER = Offer("container", InstanceType("here", 1, 1))
