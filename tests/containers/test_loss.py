"""Containers of a pool that die or freeze, and connections to them that break."""

import contextlib
import os
import signal

import pytest

import skyward as sky
from tests.containers.conftest import containers
from tests.containers.engine import Engine
from tests.waiting import wait_for

pytestmark = [pytest.mark.containers, pytest.mark.timeout(180)]


@sky.function
def attempt(seconds: float) -> str:
    import socket
    import time

    for n in range(round(seconds * 10)):
        print(f"step {n}")
        time.sleep(0.1)
    return socket.gethostname()


def test_killed_container_is_replaced_and_its_task_is_retried(engine: Engine) -> None:
    with sky.Compute(provider=containers(engine), nodes=1, reconcile_tick_interval=1) as pool:
        (first,) = engine.of(pool.name)
        run = pool.start(attempt(2))
        wait_for(lambda: run.state != "queued", "the task to be on its node")
        engine.call("kill", first)
        assert run.future.result(timeout=90)
        wait_for(lambda: first not in engine.of(pool.name), "the container to be removed")
        assert len(engine.of(pool.name)) == 1


def packages_are_known(pool: sky.Compute) -> bool:
    """Return whether the packages of every node with a function are known, so that no `exec` is needed for them."""
    assert pool._pool is not None
    looks = list(pool._pool._fleet._differences._of.values())
    return bool(looks) and all(look.done() for look in looks)


def test_frozen_container_is_replaced_after_the_grace(engine: Engine) -> None:
    with sky.Compute(provider=containers(engine, grace=2), nodes=1, reconcile_tick_interval=1) as pool:
        (first,) = engine.of(pool.name)
        attempt(0) >> pool
        # An `exec` that starts while its container is paused hangs the engine forever, including `unpause` and `rm`.
        wait_for(lambda: packages_are_known(pool), "the packages of the node to be known")
        run = pool.start(attempt(1))
        wait_for(lambda: run.state != "queued", "the task to be on its node")
        engine.call("pause", first)
        assert run.future.result(timeout=120)
        wait_for(lambda: first not in engine.of(pool.name), "the container to be removed")
        assert len(engine.of(pool.name)) == 1


def test_broken_connection_loses_nothing(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """Every `docker exec` is killed during a task: the client reconnects, and the task continues."""
    with sky.Compute(provider=containers(engine), nodes=1) as pool:
        (first,) = engine.of(pool.name)
        run = pool.start(attempt(3))
        wait_for(lambda: run.state != "queued", "the task to be on its node")
        for pid in engine.entering(first):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.future.result(timeout=90)
        assert engine.of(pool.name) == [first]
    output = [line for line in capsys.readouterr().out.splitlines() if "step" in line]
    assert output == [f"step {n}" for n in range(30)]
