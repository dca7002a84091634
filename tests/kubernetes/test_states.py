"""Pods that do not start, or end: each wait ends, with its reason."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward_providers.kubernetes import waits
from tests.kubernetes.cluster import NODE, Cluster
from tests.kubernetes.conftest import pods
from tests.kubernetes.test_provider import prepared, until

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(180)]


def detail(cluster: Cluster, folder: Path, *, spec: dict[str, Any] | None = None, **settings: Any) -> str:
    """Launch a pod that ends, and return why."""

    async def launch() -> str:
        provider = pods(cluster, **settings).create_provider()
        made = await prepared(provider, folder, **(spec or {}))
        try:
            _, (pod,) = await provider.provision(made, 1)
            return (await until(provider, made, pod.id, "exited")).detail
        finally:
            await provider.teardown(made)

    return asyncio.run(launch())


def test_pod_without_a_place_is_given_up(cluster: Cluster, tmp_path: Path) -> None:
    spec = {"vcpus": 500}
    found = detail(cluster, tmp_path, spec=spec, schedule_timeout=1)
    assert found == (
        "no node of the cluster has room for it (Unschedulable: 0/1 nodes are available: 1 Insufficient cpu); "
        "gave up after 1 s"
    )


def test_missing_image_is_named(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "_RETRIED_FOR", 1.0)
    found = detail(cluster, tmp_path, image="127.0.0.1:1/none:1")
    assert "ImagePull" in found
    assert "127.0.0.1:1/" in found


def test_invalid_image_is_named(cluster: Cluster, tmp_path: Path) -> None:
    assert "InvalidImageName" in detail(cluster, tmp_path, image="No Image")


def test_image_without_a_shell_is_named(cluster: Cluster, tmp_path: Path) -> None:
    assert "executable file not found" in detail(cluster, tmp_path, pod_template={})


def test_events_say_why_a_pod_does_not_start(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "_EVENTS_AFTER", 0.5)
    monkeypatch.setattr(waits, "_STARTING_FOR", 1.0)
    missing = {
        "volumes": [{"name": "data", "hostPath": {"path": "/nowhere", "type": "Directory"}}],
        "containers": [{"volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
    }
    found = detail(cluster, tmp_path, pod_template=missing)
    assert "FailedMount" in found
    assert "/nowhere is not a directory" in found


def test_end_of_the_life_of_a_pod_is_named(cluster: Cluster, tmp_path: Path) -> None:
    found = detail(cluster, tmp_path, pod_template={**pods(cluster).pod_template, "activeDeadlineSeconds": 1})
    assert found.startswith("DeadlineExceeded: Pod was active on the node longer than the specified deadline")


def test_pod_that_somebody_deletes_ends(cluster: Cluster, tmp_path: Path) -> None:
    async def launch() -> None:
        provider = pods(cluster).create_provider()
        made = await prepared(provider, tmp_path)
        try:
            _, (pod,) = await provider.provision(made, 1)
            await until(provider, made, pod.id, "running")
            cluster.kubectl("delete", "pod", pod.id, "--wait=false")
            assert (await until(provider, made, pod.id, "exited")).detail == "it is being deleted"
            await provider.terminate(made, [pod.id])
            assert (await provider.get_instance(made, pod.id))[1] is None
        finally:
            await provider.teardown(made)

    asyncio.run(launch())


def test_pod_waits_for_a_gpu_and_is_placed_once_there_is_one(cluster: Cluster, tmp_path: Path) -> None:
    """The node gets two GPUs, of a model that its label names; a third pod waits for another node."""

    async def launch() -> None:
        provider = pods(cluster).create_provider()
        cluster.set_gpus(1, "NVIDIA-A100-SXM4-80GB")
        (offer,) = [each async for each in provider.offers()]
        kind = offer.instance_type
        assert (kind.accelerator, kind.accelerator_count) == ("NVIDIA-A100-SXM4-80GB", 1)
        made = await prepared(provider, tmp_path, accelerator="A100")
        try:
            _, (first, second) = await provider.provision(made, 2)
            running = await asyncio.gather(*(wait_placed(provider, made, each.id) for each in (first, second)))
            assert sorted(running) == [False, True]
            cluster.set_gpus(2, "NVIDIA-A100-SXM4-80GB")
            await asyncio.gather(*(until(provider, made, each.id, "running") for each in (first, second)))
            spec = cluster.get("pod", first.id)["spec"]
            assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
            assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
        finally:
            await provider.teardown(made)

    try:
        asyncio.run(launch())
    finally:
        cluster.set_gpus(0, "")


async def wait_placed(provider: Any, made: Any, id: str) -> bool:
    """Return True once a pod runs, and False once it waits for a GPU."""
    async with asyncio.timeout(60):
        while True:
            _, instance = await provider.get_instance(made, id)
            if instance is not None and instance.status == "running":
                return True
            if instance is not None and "Insufficient nvidia.com/gpu" in instance.detail:
                return False
            await asyncio.sleep(0.1)


def test_cordoned_nodes_are_not_offered(cluster: Cluster) -> None:
    async def listed(**settings: Any) -> list[sky.providers.Offer]:
        return [offer async for offer in pods(cluster, **settings).create_provider().offers()]

    cluster.kubectl("cordon", NODE)
    try:
        assert asyncio.run(listed()) == []
        (offer,) = asyncio.run(listed(node_selector={"kind": "new"}))
        assert offer.open_ended, "the cluster may add such nodes"
    finally:
        cluster.kubectl("uncordon", NODE)
