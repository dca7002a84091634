"""A pool of pods works like a pool of machines over SSH."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skyward as sky
from skyward.providers.protocol import ExecAccess
from tests.containers.engine import ROOT
from tests.kubernetes.cluster import POD, Cluster
from tests.kubernetes.conftest import pods
from tests.local.bootstrapping import make_wheel, repack
from tests.remote_tasks import count, doubled, hostname
from tests.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(180)]


@sky.function
def met() -> list[tuple[str, int]]:
    me = sky.instance_info().node
    entries = sky.dict("met")
    entries[f"node {me}"] = me
    sky.barrier("all are in", 2).wait()
    return sorted((name, entries[name]) for name in ("node 0", "node 1"))


@sky.function
def peers() -> list[str]:
    return [peer.private_ip for peer in sky.instance_info().peers]


@sky.function
def slow(seconds: float) -> str:
    import socket
    import time

    time.sleep(seconds)
    return socket.gethostname()


@sky.function
def together() -> str:
    import socket

    sky.barrier("three", 3).wait()
    return socket.gethostname()


def names(cluster: Cluster, pool: sky.Compute) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in cluster.pods(pool.name) if pod["status"]["phase"] == "Running")


def test_functions_run_in_pods(pool: sky.Compute, shared_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(hostname() @ pool) == names(shared_cluster, pool)
    output = capsys.readouterr().out
    assert "this is node 0" in output
    assert "this is node 1" in output


def test_large_buffers_and_streams_are_transferred(pool: sky.Compute) -> None:
    data = np.random.default_rng(0).integers(0, 100, 20_000_000, dtype=np.uint8)
    assert np.array_equal(doubled(data) >> pool, data * 2)
    assert list(count(10_000) >> pool) == list(range(10_000))


def test_pods_form_a_cluster(pool: sky.Compute, shared_cluster: Cluster) -> None:
    """Over the network of the pods."""
    assert met() @ pool == [[("node 0", 0), ("node 1", 1)]] * 2
    found = peers() @ pool
    assert found[0] == found[1]
    assert sorted(found[0]) == sorted(pod["status"]["podIP"] for pod in shared_cluster.pods(pool.name))


def test_cluster_shows_no_secret_of_the_pool(pool: sky.Compute, shared_cluster: Cluster) -> None:
    for pod in shared_cluster.pods(pool.name):
        assert "PRIVATE KEY" not in str(pod).upper()
        assert not any("secret" in volume for volume in pod["spec"]["volumes"])


def test_terminal_opens_in_the_pod(pool: sky.Compute) -> None:
    (access,) = [node.access for node in pool.snapshot().nodes if node.rank == 0]
    assert isinstance(access, ExecAccess)
    ours, theirs = pty.openpty()
    with subprocess.Popen(access.terminal, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as shell:
        os.close(theirs)
        os.write(ours, b"test -t 0 && echo at $(uname -n).; exit\n")
        output = b""
        with suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 4096):
                output += part
        assert shell.wait(60) == 0, output
    os.close(ours)
    assert f"at {access.name.removeprefix('pod ')}." in output.decode()


def test_pool_grows_and_shrinks_and_leaves_nothing(cluster: Cluster) -> None:
    with sky.Compute(provider=pods(cluster), nodes=(1, 3), autoscale_cooldown=0.2, autoscale_idle_timeout=2) as pool:
        (first,) = names(cluster, pool)
        waiting = [together() > pool for _ in range(3)]
        assert len({future.result(90) for future in waiting}) == 3
        wait_for(lambda: len(cluster.pods(pool.name)) == 1, "one pod")
        assert names(cluster, pool) == [first]
        assert hostname() >> pool == first


def test_deleted_pod_is_replaced_and_its_task_is_retried(cluster: Cluster) -> None:
    with sky.Compute(provider=pods(cluster, grace=5), nodes=1, reconcile_tick_interval=1) as pool:
        (first,) = names(cluster, pool)
        run = pool.start(slow(3))
        wait_for(lambda: run.state != "queued", "the task to be on its node")
        cluster.kubectl("delete", "pod", first, "--grace-period=1")
        second = run.future.result(timeout=90)
        assert second != first
        assert names(cluster, pool) == [second]


@sky.function
def seen() -> tuple[str, str, str | None]:
    import os

    import torchy  # type: ignore[import-not-found]  # made by the test, in the pod

    return sys.executable, str(torchy.VERSION), os.environ.get("GREETING")


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Pods with a Python, uv and a folder of packages: without Skyward, and without internet."""
    for name in ("blake3", "casty", "cloudpickle", "uvloop"):
        repack(tmp_path, name)
    make_wheel(tmp_path, "torchy", "2.5")
    for name in ("PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    paths = {"/wheels": tmp_path, "/opt/skyward/uv/bin/uv": (ROOT / ".venv/bin/uv").resolve()}
    volumes = [{"name": f"more{n}", "hostPath": {"path": str(path)}} for n, path in enumerate(paths.values())]
    mounts = [{"name": f"more{n}", "mountPath": path, "readOnly": True} for n, path in enumerate(paths)]
    ((container,),) = [POD["containers"]]
    path = {"name": "PATH", "value": f"{sys.base_prefix}/bin:/usr/sbin:/usr/bin"}
    return {
        "volumes": [*POD["volumes"], *volumes],
        "containers": [{"volumeMounts": [*container["volumeMounts"], *mounts], "env": [path]}],
    }


def test_environment_is_set_up_in_a_pod(cluster: Cluster, template: dict[str, Any]) -> None:
    image = sky.Image(pip=["torchy"], env={"GREETING": "hello", "UV_NO_INDEX": "1", "UV_FIND_LINKS": "/wheels"})
    provider = pods(cluster, python=None, pod_template=template)
    with sky.Compute(provider=provider, nodes=1, image=image) as pool:
        where, *rest = seen() >> pool
        assert where.startswith("/opt/skyward/envs/")
        assert rest == ["2.5", "hello"]


def test_pods_that_never_start_fail_the_pool_with_the_reason(cluster: Cluster) -> None:
    pool = sky.Compute(
        provider=pods(cluster, image="No Image"), nodes=1, max_provision_attempts=1, reconcile_tick_interval=1
    )
    with pytest.raises(sky.ProvisioningError, match="InvalidImageName"):
        pool.open()
