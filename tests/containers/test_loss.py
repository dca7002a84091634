"""Containers that die or freeze under a pool, and links to them that break."""

import contextlib
import os
import signal

import pytest

import skyward as sky
from tests.containers.conftest import Wait, containers
from tests.containers.engine import Engine

pytestmark = [pytest.mark.containers, pytest.mark.timeout(180)]


@sky.function
def attempt(seconds: float) -> str:
    import socket
    import time

    for n in range(round(seconds * 10)):
        print(f"step {n}")
        time.sleep(0.1)
    return socket.gethostname()


def test_a_killed_container_is_replaced_and_its_task_runs_again(engine: Engine, wait_for: Wait) -> None:
    with sky.Compute(provider=containers(engine), nodes=1, reconcile_tick_interval=1) as pool:
        (first,) = engine.of(pool.name)
        run = pool.start(attempt(2))
        wait_for(lambda: run.state != "queued", "the task to be on its node")
        engine.call("kill", first)
        assert run.future.result(timeout=90)
        wait_for(lambda: first not in engine.of(pool.name), "the container to be given back")
        assert len(engine.of(pool.name)) == 1


def packages_are_known(pool: sky.Compute) -> bool:
    """Whether every node that has a function was asked for its packages, so that none is entered for that any more."""
    assert pool._pool is not None
    looks = list(pool._pool._fleet._differences._of.values())
    return bool(looks) and all(look.done() for look in looks)


def test_a_frozen_container_is_replaced_after_the_grace(engine: Engine, wait_for: Wait) -> None:
    with sky.Compute(provider=containers(engine, grace=2), nodes=1, reconcile_tick_interval=1) as pool:
        (first,) = engine.of(pool.name)
        attempt(0) >> pool
        # An `exec` that begins as its container is paused hangs the engine for good, `unpause` and `rm` included.
        wait_for(lambda: packages_are_known(pool), "the packages of the node to be known, which it is entered for")
        run = pool.start(attempt(1))
        wait_for(lambda: run.state != "queued", "the task to be on its node")
        engine.call("pause", first)
        assert run.future.result(timeout=120)
        wait_for(lambda: first not in engine.of(pool.name), "the container to be given back")
        assert len(engine.of(pool.name)) == 1


def test_a_link_that_breaks_loses_nothing(engine: Engine, wait_for: Wait, capsys: pytest.CaptureFixture[str]) -> None:
    """Every `docker exec` is killed under a running task: they are made again, and the task goes on."""
    with sky.Compute(provider=containers(engine), nodes=1) as pool:
        (first,) = engine.of(pool.name)
        run = pool.start(attempt(3))
        wait_for(lambda: run.state != "queued", "the task to be on its node")
        for pid in engine.entering(first):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.future.result(timeout=90)
        assert engine.of(pool.name) == [first]
    said = [line for line in capsys.readouterr().out.splitlines() if "step" in line]
    assert said == [f"step {n}" for n in range(30)]
