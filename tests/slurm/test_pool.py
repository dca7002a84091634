"""A pool of jobs works like a pool of machines over SSH."""

import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import skyward as sky
from skyward.providers.protocol import ExecAccess
from tests.remote_tasks import count, doubled, hostname
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import jobs
from tests.waiting import wait_for

pytestmark = pytest.mark.slurm


@sky.function
def job() -> tuple[str, str, str]:
    """Return the id of the job, its node, and its GPUs, as Slurm tells a task."""
    return os.environ["SLURM_JOB_ID"], os.environ["SLURMD_NODENAME"], os.environ.get("CUDA_VISIBLE_DEVICES", "")


@sky.function
def met() -> list[tuple[str, int]]:
    me = sky.instance_info().node
    entries = sky.dict("met")
    entries[f"node {me}"] = me
    sky.barrier("all are in", 2).wait()
    return sorted((name, entries[name]) for name in ("node 0", "node 1"))


@sky.function
def held(gate: str) -> int:
    """Run until the gate exists; return the rank it ran on."""
    import time
    from pathlib import Path

    while not Path(gate).exists():
        time.sleep(0.01)
    return sky.instance_info().node


@pytest.fixture(scope="module")
def pool(by_control_group: SlurmCluster) -> Iterator[sky.Compute]:
    """Two nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", by_control_group.configuration)
        with sky.Compute(
            name="two", provider=jobs(by_control_group, time=3600), nodes=2, vcpus=1, memory_gb=0.25
        ) as two:
            yield two


def test_functions_run_in_jobs(pool: sky.Compute, by_control_group: SlurmCluster) -> None:
    assert sorted(each for each, *_ in job() @ pool) == sorted(by_control_group.jobs("two"))
    assert {node for _, node, _ in job() @ pool} <= set(by_control_group.nodes)


def test_output_of_jobs_is_shown_by_the_client(pool: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    hostname() @ pool
    output = capsys.readouterr().out
    assert "this is node 0" in output
    assert "this is node 1" in output


def test_large_buffers_are_transferred_both_ways(pool: sky.Compute) -> None:
    data = np.random.default_rng(0).integers(0, 100, 20_000_000, dtype=np.uint8)
    assert np.array_equal(doubled(data) >> pool, data * 2)


def test_inputs_and_outputs_of_jobs_are_streamed(pool: sky.Compute) -> None:
    assert list(count(10_000) >> pool) == list(range(10_000))


def test_collections_are_shared_between_jobs(pool: sky.Compute) -> None:
    """Over the network of the cluster."""
    assert met() @ pool == [[("node 0", 0), ("node 1", 1)]] * 2


@sky.function
def peers() -> tuple[list[str], str | None]:
    info = sky.instance_info()
    return [peer.private_ip for peer in info.peers], None if info.network is None else info.network.interface


@sky.function
def asked() -> tuple[float, float]:
    info = sky.instance_info()
    return info.vcpus, info.memory_gb


def test_jobs_know_the_addresses_of_their_peers(pool: sky.Compute, by_control_group: SlurmCluster) -> None:
    assert peers() @ pool == [([by_control_group.address] * 2, "eth0")] * 2


def test_a_node_has_the_part_of_a_machine_that_the_spec_asks_for(pool: sky.Compute) -> None:
    assert asked() @ pool == [(1, 0.25)] * 2


@sky.function
def granted() -> tuple[float, float, float]:
    info = sky.instance_info()
    return info.vcpus, info.memory_gb, info.accelerators


def test_a_node_has_what_its_job_was_granted_by_default(cluster: SlurmCluster) -> None:
    """One CPU and 100 MiB on this cluster, which enforces neither, so that a worker sees the whole machine."""
    with sky.Compute(provider=jobs(cluster, gres="gpu:a100:1"), nodes=1) as pool:
        assert granted() >> pool == (1, 0.1, 1)
        assert sky.function(granted.__wrapped__, resources={"GPU": 1})() >> pool == (1, 0.1, 1)
        for too_much in ({"CPU": 2}, {"memory": 1}, {"GPU": 2}):
            with pytest.raises(sky.SkywardError, match="CPU|memory|GPU"):
                sky.function(granted.__wrapped__, resources=too_much)() >> pool


def test_tags_are_in_names_and_comments_and_hold_no_secret(pool: sky.Compute, by_control_group: SlurmCluster) -> None:
    for each in by_control_group.jobs("two"):
        described = by_control_group.call("scontrol", "show", "job", each)
        assert f"JobName=skyward-{pool.name}-" in described
        assert "skyward-owner=" in described
        assert "skyward-request=" in described
        assert "Requeue=0" in described
        assert "TimeLimit=01:00:00" in described
    assert "PRIVATE KEY" not in "".join(by_control_group.processes().values()).upper()


def test_terminal_opens_in_the_job(pool: sky.Compute, by_control_group: SlurmCluster) -> None:
    (access,) = [node.access for node in pool.snapshot().nodes if node.rank == 0]
    assert isinstance(access, ExecAccess)
    environ = {**os.environ, "SLURM_CONF": by_control_group.configuration}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        access.terminal, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env=environ
    ) as shell:
        os.close(theirs)
        os.write(ours, b"test -t 0 && echo at $SLURM_JOB_ID.; exit\n")
        output = b""
        with suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 4096):
                output += part
        assert shell.wait(60) == 0, output
    os.close(ours)
    assert f"{access.name.split()[1]}." in output.decode().partition("at ")[2]


def test_gpus_of_a_job_are_those_that_the_spec_asks_for(cluster: SlurmCluster) -> None:
    with sky.Compute(provider=jobs(cluster), nodes=2, accelerator="A100") as pool:
        found = job() @ pool
        assert {node for _, node, _ in found} <= set(cluster.nodes[2:])
        assert all(len(gpus.split(",")) == 1 for *_, gpus in found)


def test_closed_pool_leaves_no_job(cluster: SlurmCluster) -> None:
    with sky.Compute(provider=jobs(cluster), nodes=1) as pool:
        assert hostname() >> pool
        assert len(cluster.jobs(pool.name)) == 1
        sky.counter("from here").increment(2)  # the client enters the cluster through the job
        assert sky.counter("from here").value == 2
    assert not cluster.jobs(pool.name)


def test_pool_grows_and_shrinks_with_its_tasks(cluster: SlurmCluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with sky.Compute(
        provider=jobs(cluster), nodes=(1, 3), autoscale_idle_timeout=0.5, autoscale_cooldown=0.1, vcpus=1
    ) as pool:
        assert len(cluster.jobs(pool.name)) == 1
        runs = [pool.start(held(str(gate))) for _ in range(3)]
        wait_for(lambda: all(run.state == "running" for run in runs), "three nodes")
        assert len(cluster.jobs(pool.name)) == 3
        gate.touch()
        assert sorted(run.future.result(60) for run in runs) == [0, 1, 2]
        wait_for(lambda: len(cluster.jobs(pool.name)) == 1, "the pool to shrink")
