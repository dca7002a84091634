"""Life and end of a job's worker, with both ways in which Slurm finds the processes of a job."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

import skyward as sky
from skyward.providers.protocol import Cluster, InstanceType, Offer
from skyward.specs import Spec
from skyward_providers.slurm import provider
from tests.identity import identity
from tests.killed_client import kill_at_work
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import jobs
from tests.waiting import wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]

WORK = """
@sky.function
def work(seconds):
    import time
    print("begun", flush=True)
    time.sleep(seconds)
    print("slept", flush=True)
    return "done"
"""


def killed_client(cluster: SlurmCluster, pool: str, seconds: float = 5) -> str:
    """Start a client process and kill it while its task runs. Return the id of its job."""
    settings = f"python={sys.executable!r}, scratch={str(cluster.scratch)!r}, directory={str(cluster.root)!r}"
    source = f"sky.Slurm(grace=1, time=600, {settings})"
    options = f"name={pool!r}, nodes=1, ttl=0"
    kill_at_work(WORK, f"run = pool.start(work({seconds}))", source, options, printed="begun")
    (job,) = cluster.jobs(pool)
    return job


def test_job_of_a_killed_client_ends_after_its_lease(either: SlurmCluster) -> None:
    """The worker lives on after the steps of the client have ended; the lease is 31 s."""
    job = killed_client(either, "orphan")
    wait_for(lambda: not either.entering(job), "the steps of the client to end")
    assert job in either.jobs()
    assert any("skyward.worker" in line for line in either.processes().values())
    wait_for(lambda: job not in either.jobs(), "the job to end")
    wait_for(lambda: either.state(job) == "COMPLETED", "the job to be completed")
    sky.reap()


def test_job_of_a_killed_client_can_be_attached_to(either: SlurmCluster) -> None:
    killed_client(either, "left")
    with sky.attach("left") as pool:
        (task,) = pool.recovered
        assert task.result(60) == "done"
        assert "slept" in task.output, "output that the killed client did not receive"
        assert sky.function(os.getpid)() >> pool


def test_reap_leaves_no_job_of_a_killed_client(either: SlurmCluster) -> None:
    job = killed_client(either, "reaped", seconds=1000)
    sky.reap()
    assert job not in either.jobs()
    wait_for(lambda: not either.processes(), "the processes of the job to end")


@sky.function
def detached() -> int:
    """Start a process in a session of its own; return its number of seconds, which marks it."""
    import subprocess

    subprocess.Popen(["setsid", "sh", "-c", "sleep 86471 & exit"], start_new_session=True).wait()
    return 86471


def test_cancelled_job_is_replaced_and_its_processes_end(either: SlurmCluster) -> None:
    with sky.Compute(provider=jobs(either, time=600), nodes=1, reconcile_tick_interval=1) as pool:
        mark = f"sleep {detached() >> pool}"
        wait_for(lambda: mark in either.processes().values(), "the process to run")
        (first,) = either.jobs(pool.name)
        run = pool.start(attempt(2))
        wait_for(lambda: run.state == "running", "the task to run")
        either.call("scancel", first)
        assert run.future.result(60) == 20
        (second,) = either.jobs(pool.name)
        assert first != second
        wait_for(lambda: mark not in either.processes().values(), "a detached process of a task to end")


@sky.function
def attempt(seconds: float) -> int:
    import time

    for _ in range(round(seconds * 10)):
        time.sleep(0.1)
    return round(seconds * 10)


def test_killed_worker_ends_its_job(either: SlurmCluster) -> None:
    with sky.Compute(provider=jobs(either, time=600), nodes=1, reconcile_tick_interval=1) as pool:
        assert sky.function(os.getpid)() >> pool
        (job,) = either.jobs(pool.name)
        supervisor = min(pid for pid, line in either.processes().items() if line.endswith("skyward.worker.supervisor"))
        os.kill(supervisor, signal.SIGKILL)
        wait_for(lambda: job not in either.jobs(), "the job to end")
        assert sky.function(os.getpid)() >> pool


def test_broken_connection_loses_nothing(either: SlurmCluster) -> None:
    """Every `srun` is killed during a task: the client reconnects, and the task continues."""
    with sky.Compute(provider=jobs(either, time=600), nodes=1) as pool:
        (first,) = either.jobs(pool.name)
        run = pool.start(attempt(3))
        wait_for(lambda: run.state == "running", "the task to run")
        for pid in either.entering(first):
            with suppress(ProcessLookupError):  # a second process of an `srun` ends with the first
                os.kill(pid, signal.SIGKILL)
        assert run.future.result(60) == 30
        assert either.jobs(pool.name) == [first]


def test_job_that_is_never_used_ends(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was killed between the submission and the first connection."""
    monkeypatch.setattr(provider, "_PATIENCE", 3)
    one = Cluster("c", "unheard-0", Spec(), Offer("main", InstanceType("here", 1, 1)))
    one = replace(one, tags={**identity("unheard-0").tags, "skyward-request": "1"})
    asyncio.run(jobs(cluster).create_provider().provision(one, 2))
    assert len(cluster.jobs("unheard")) == 2
    wait_for(lambda: not cluster.jobs("unheard"), "the jobs to end")
