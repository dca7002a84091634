"""Nodes that fail, jobs that reach their time limit, and a controller that is away."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import skyward as sky
from tests.identity import identity
from tests.required import leave_out_for
from tests.slurm.cluster import SlurmCluster, why_not
from tests.slurm.conftest import jobs
from tests.waiting import wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(240)]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A cluster for one test, which may break it."""
    leave_out_for(why_not(), "SKYWARD_SLURM")
    running = SlurmCluster("cgroup")
    monkeypatch.setenv("SLURM_CONF", running.configuration)
    try:
        yield running
    finally:
        running.close()


@sky.function
def attempt(seconds: float) -> str:
    import os
    import time

    for _ in range(round(seconds * 10)):
        time.sleep(0.1)
    return os.environ["SLURM_JOB_ID"]


@sky.function
def kept_list() -> Any:
    return sky.keep([1])


def test_failed_node_is_replaced_and_its_task_is_retried(alone: SlurmCluster) -> None:
    with sky.Compute(provider=jobs(alone, time=600, grace=2), nodes=1, reconcile_tick_interval=1) as pool:
        (first,) = alone.jobs(pool.name)
        run = pool.start(attempt(3))
        wait_for(lambda: run.state == "running", "the task to run")
        node = alone.call("squeue", "-h", "-j", first, "-o", "%B").strip()
        alone.fail(node, first)
        second = run.future.result(timeout=120)
        assert second != first
        assert alone.call("squeue", "-h", "-j", second, "-o", "%B").strip() != node


def test_job_of_a_failed_node_is_not_requeued(alone: SlurmCluster) -> None:
    asyncio.run(_failed(alone))


async def _failed(cluster: SlurmCluster) -> None:
    provider = jobs(cluster).create_provider()
    spec = sky.Spec(provider=jobs(cluster))
    one = await provider.prepare(spec, await anext(provider.offers()), identity("failed-1"))
    one, (made,) = await provider.provision(replace(one, tags={**one.tags, "skyward-request": "1"}), 1)
    async with asyncio.timeout(120):
        node = ""
        while True:
            _, instance = await provider.get_instance(one, made.id)
            assert instance is not None
            if instance.status == "running" and not node:
                node = cluster.call("squeue", "-h", "-j", made.id, "-o", "%B").strip()
                cluster.fail(node, made.id)
            if instance.status == "exited" and instance.detail != "its job is completing":
                break
            await asyncio.sleep(0.2)
    assert instance.detail == "its node failed"
    assert not await provider.find(one)


def test_controller_that_restarts_is_no_loss(alone: SlurmCluster) -> None:
    """Running tasks do not notice; the pool closes afterwards."""
    with sky.Compute(provider=jobs(alone, time=600), nodes=1) as pool:
        run = pool.start(attempt(4))
        wait_for(lambda: run.state == "running", "the task to run")
        alone.daemon("slurmctld").terminate()
        wait_for(alone.answers, "the controller to be back")
        (job,) = alone.jobs(pool.name)
        assert run.future.result(60) == job
    assert not alone.jobs()


def test_node_at_its_time_limit_is_replaced(alone: SlurmCluster, caplog: pytest.LogCaptureFixture) -> None:
    with sky.Compute(provider=jobs(alone, time=60, grace=2), nodes=1, reconcile_tick_interval=1) as pool:
        first = attempt(0) >> pool
        wait_for(lambda: alone.jobs(pool.name) not in ([first], []), "the time limit", 200)
        wait_for(lambda: alone.state(first) == "TIMEOUT", "the job to be cleaned up")
        assert (attempt(0) >> pool) != first
    assert "its job reached its time limit of 1 minute: raise `time=` of sky.Slurm; replacing it" in caplog.text


def test_errors_about_a_cancelled_job_say_so(cluster: SlurmCluster) -> None:
    with sky.Compute(provider=jobs(cluster, time=600), nodes=1, retry_on_interruption=0) as pool:
        (first,) = cluster.jobs(pool.name)
        kept = kept_list() >> pool
        run = pool.start(attempt(60))
        wait_for(lambda: run.state == "running", "the task to run")
        cluster.call("scancel", first)
        with pytest.raises(sky.NodeLostError, match="its job was cancelled"):
            run.future.result(timeout=60)
        with pytest.raises(sky.KeptLostError, match="its job was cancelled"):
            kept.fetch()
