"""The provider on a real cluster: conformance, states and reasons, refusals, repeated requests, foreign jobs."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

import skyward as sky
from skyward.control.act.machines import waiting
from skyward.providers import Cluster, Instance, Offer, Provider
from skyward.providers.conformance import check_provider
from skyward.specs import Spec
from tests.identity import identity
from tests.remote_tasks import hostname
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import jobs
from tests.waiting import wait_for

pytestmark = pytest.mark.slurm


def test_slurm_passes_the_conformance_checks(either: SlurmCluster, tmp_path: Path) -> None:
    asyncio.run(check_provider(jobs(either), tmp_path, spec=Spec(vcpus=1)))


async def offered(provider: Provider) -> list[Offer]:
    return [offer async for offer in provider.offers()]


async def prepared(config: sky.Slurm, pool: str, **fields: object) -> tuple[Provider, Cluster]:
    provider = config.create_provider()
    offer = (await offered(provider))[0]
    spec = Spec(provider=config, **fields)  # type: ignore[arg-type]
    cluster = await provider.prepare(spec, offer, identity(pool))
    return provider, replace(cluster, tags={**identity(pool).tags, "skyward-request": "token"})


def test_offers_are_the_types_of_nodes_of_the_default_partition(cluster: SlurmCluster) -> None:
    offers = asyncio.run(offered(jobs(cluster, hourly_price=0.5).create_provider()))
    kinds = [
        (each.instance_type.vcpus, each.instance_type.memory_gb, each.instance_type.accelerator) for each in offers
    ]
    assert kinds == [(4, 3.9, None), (2, 2.0, "a100")]
    assert {each.region for each in offers} == {"main"}
    assert {each.on_demand_price for each in offers} == {0.5}
    assert offers[1].instance_type.accelerator_count == 2
    small = asyncio.run(offered(jobs(cluster, partition="small").create_provider()))
    assert [each.id for each in small] == ["small: 4 CPUs, 3.9 GiB, x86_64"]


def test_partition_that_ends_jobs_too_soon_is_left_out(cluster: SlurmCluster) -> None:
    config = jobs(cluster, partition="small,main", time="01:00:00")
    offers = asyncio.run(offered(config.create_provider()))
    assert {each.region for each in offers} == {"main"}
    _, one = asyncio.run(prepared(config, "long-1", vcpus=4))
    assert one.offer.specific["partitions"] == "main"


def refusal(provider: sky.Slurm, **fields: object) -> str:
    with pytest.raises(sky.SkywardError) as caught:
        sky.Compute(provider=provider, nodes=1, max_provision_attempts=1, **fields).open()  # type: ignore[arg-type]
    return str(caught.value)


def test_impossible_requests_are_refused_with_the_reason(cluster: SlurmCluster) -> None:
    assert "vcpus excludes 2; the nearest, 2 CPUs, 2 GiB, 2 a100 (main), has 2 of 5000" in refusal(
        jobs(cluster), vcpus=5000
    )
    assert "accelerator excludes 2" in refusal(jobs(cluster), accelerator="H100")
    assert refusal(jobs(cluster, partition="fast")) == "There is no partition 'fast'; the cluster has main, small."
    assert refusal(jobs(cluster, partition="small", time="01:00:00")) == (
        "Partition small allows jobs of at most 00:10:00, and sky.Slurm asks for 1 hour: lower `time`, or name "
        "another partition."
    )
    assert refusal(jobs(cluster, gres="gpu:h100:1")) == (
        "Slurm can never run such a job: Requested node configuration is not available; check vcpus, memory_gb and "
        "accelerator of the spec, and partition, account, time, gres and options of sky.Slurm."
    )
    assert "Invalid feature specification" in refusal(jobs(cluster, options=["--constraint=fast"]))
    assert "unrecognized option" in refusal(jobs(cluster, options=["--fast"]))


def test_repeated_request_submits_no_job_twice(cluster: SlurmCluster) -> None:
    asyncio.run(_repeated(cluster))


async def _repeated(cluster: SlurmCluster) -> None:
    provider, one = await prepared(jobs(cluster), "again-1")
    other = jobs(cluster).create_provider()
    _, first = await provider.provision(one, 2)
    _, second = await other.provision(one, 3)
    ids = [each.id for each in second]
    assert [each.id for each in first] == ids[:2]
    assert sorted(cluster.jobs("again")) == sorted(ids)
    for _ in range(2):
        await other.terminate(one, [*ids, "987654"])
    assert not cluster.jobs("again")
    assert await provider.get_instance(one, "987654") == (one, None)


async def until(provider: Provider, one: Cluster, id: str, status: str) -> Instance:
    async with asyncio.timeout(100):
        while True:
            _, instance = await provider.get_instance(one, id)
            assert instance is not None
            if instance.status == status:
                return instance
            await asyncio.sleep(0.1)


async def why(provider: Provider, one: Cluster, id: str) -> str:
    """Return why a job ended, once Slurm has cleaned up after it."""
    async with asyncio.timeout(30):
        while True:
            ended = await until(provider, one, id, "exited")
            if ended.detail != "its job is completing":
                return ended.detail
            await asyncio.sleep(0.1)


@contextlib.contextmanager
def busy(cluster: SlurmCluster) -> Iterator[str]:
    """A job of another program that has all nodes."""
    job = cluster.call(
        "sbatch", "--parsable", "--exclusive", "--nodes=4", "--output=/dev/null", "--wrap=sleep 1000"
    ).strip()
    wait_for(lambda: cluster.state(job) == "RUNNING", "the job to run")
    try:
        yield job
    finally:
        cluster.call("scancel", job)
        wait_for(lambda: cluster.state(job) == "CANCELLED", "the job to end")


def test_job_that_waits_is_no_failure(cluster: SlurmCluster) -> None:
    with busy(cluster) as foreign:
        asyncio.run(_waits(cluster, foreign))


async def _waits(cluster: SlurmCluster, foreign: str) -> None:
    provider, one = await prepared(jobs(cluster), "waits-1")
    one, (instance,) = await provider.provision(one, 1)
    details = set()
    async with asyncio.timeout(30):
        while f"its job {instance.id} waits for free nodes (Resources)" not in details:
            _, found = await provider.get_instance(one, instance.id)
            assert found is not None
            assert found.status == "provisioning"
            details.add(found.detail)
            await asyncio.sleep(0.1)
    cluster.call("scancel", foreign)
    running = await until(provider, one, instance.id, "running")
    assert running.address == cluster.address
    await provider.terminate(one, [instance.id])


def test_pool_opens_once_its_job_has_waited(
    cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A notice says that it waits, and why."""
    monkeypatch.setattr(waiting, "_PATIENCE", 0.0)
    with busy(cluster) as foreign:
        freeing = Thread(target=lambda: _free(cluster, foreign))
        freeing.start()
        with sky.Compute(name="patient", provider=jobs(cluster), nodes=1) as pool:
            assert hostname() >> pool
        freeing.join()
    assert "1 node waits: its job waits" in capsys.readouterr().err


def _free(cluster: SlurmCluster, foreign: str) -> None:
    """Cancel a foreign job once the job of the pool waits for its nodes."""
    wait_for(lambda: "Resources" in cluster.call("squeue", "-h", "-o", "%r"), "the job of the pool to wait")
    cluster.call("scancel", foreign)


def test_job_that_ended_says_why(cluster: SlurmCluster) -> None:
    asyncio.run(_ended(cluster))


async def _ended(cluster: SlurmCluster) -> None:
    provider, one = await prepared(jobs(cluster), "ended-1", vcpus=1)
    one, (first, second) = await provider.provision(one, 2)
    await until(provider, one, first.id, "running")
    cluster.call("scancel", first.id)
    assert await why(provider, one, first.id) == "its job was cancelled"
    await until(provider, one, second.id, "running")
    await provider.terminate(one, [second.id])
    nowhere, _ = await prepared(jobs(cluster, scratch="/proc/nowhere"), "ended-1")
    _, (instance,) = await nowhere.provision(replace(one, tags={**one.tags, "skyward-request": "other"}), 1)
    reason = await why(nowhere, one, instance.id)
    assert reason.startswith(f"/proc/nowhere/skyward-{instance.id} could not be created on {cluster.nodes[0][:-2]}-")
    assert reason.endswith("name another directory with `sky.Slurm(scratch=...)`")


def test_foreign_jobs_are_left_alone(cluster: SlurmCluster) -> None:
    words = (
        "sbatch",
        "--parsable",
        "--job-name=skyward-mine-0",
        "--comment=skyward-owner=another",
        "--output=/dev/null",
    )
    foreign = cluster.call(*words, "--wrap=sleep 1000").strip()
    try:
        asyncio.run(_swept(cluster, foreign))
        with sky.Compute(name="mine", provider=jobs(cluster), nodes=1):
            pass
        sky.reap()
        assert foreign in cluster.jobs()
    finally:
        cluster.call("scancel", foreign)


async def _swept(cluster: SlurmCluster, foreign: str) -> None:
    provider, one = await prepared(jobs(cluster, hourly_price=0.2), "swept-1")
    assert isinstance(provider, sky.providers.SweepableProvider)
    one, (instance,) = await provider.provision(one, 1)
    (found,) = await provider.leftovers("tests")
    assert (found.kind, found.id, found.pool, found.hourly_price) == ("machine", instance.id, "swept-1", 0.2)
    for _ in range(2):
        await provider.remove(found)
    assert not await provider.leftovers("tests")
    assert cluster.jobs() == [foreign]


def test_cancelled_request_leaves_no_job(cluster: SlurmCluster) -> None:
    asyncio.run(_cut(cluster))


async def _cut(cluster: SlurmCluster) -> None:
    provider, one = await prepared(jobs(cluster), "cut-1")
    for number, pause in enumerate((0.0, 0.02, 0.04, 0.1)):
        asking = asyncio.create_task(
            provider.provision(replace(one, tags={**one.tags, "skyward-request": f"{number}"}), 2)
        )
        await asyncio.sleep(pause)
        if asking.cancel():
            with pytest.raises(asyncio.CancelledError):
                await asking
        else:  # the request had completed
            _, instances = await asking
            await provider.terminate(one, [each.id for each in instances])
        assert not cluster.jobs("cut")


def test_check_finds_no_problem_and_names_a_missing_partition(cluster: SlurmCluster) -> None:
    good, bad = (jobs(cluster, partition=name).create_provider() for name in (None, "fast"))
    assert isinstance(good, sky.providers.CheckableProvider)
    assert isinstance(bad, sky.providers.CheckableProvider)
    assert [each.problem for each in asyncio.run(good.check())] == ["", "", ""]
    found = asyncio.run(bad.check())
    assert [each.problem for each in found] == ["", "There is no partition 'fast'; the cluster has main, small."]
