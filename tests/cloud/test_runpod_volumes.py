"""Network volumes of RunPod: which are found, where their pods are, and what is refused."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.providers import Cluster, NativeVolumeProvider
from skyward.providers.conformance import conformance_identity
from tests.cloud.conftest import settings
from tests.fakes.runpod import KEY, FakeRunPod
from tests.fakes.vendor import run_vendor

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]

DATA = {"id": "agv6w2qcg7", "name": "datasets", "size": 50, "dataCenterId": "EU-RO-1"}
OTHER = {"id": "k3v9aaaaaa", "name": "results", "size": 10, "dataCenterId": "US-KS-2"}
A100 = "NVIDIA A100 80GB PCIe"


def volume(bucket: str = "datasets", **fields: Any) -> sky.Volume:
    return sky.Volume(bucket, "/workspace", **{"read_only": False, **fields})


async def attached(cloud: FakeRunPod, tmp_path: Path, *volumes: sky.Volume, **config: Any) -> Cluster:
    """Return the cluster of the first offer, with these volumes."""
    provider = replace(settings(cloud), **config).create_provider()
    assert isinstance(provider, NativeVolumeProvider)
    spec = sky.Spec(volumes=volumes, accelerator="A100")
    offers = [offer async for offer in provider.offers()]
    pool = conformance_identity("unit-1", tmp_path)
    cluster = await provider.attach(await provider.prepare(spec, offers[0], pool), volumes)
    return replace(cluster, tags={**pool.tags, "skyward-request": "request-1"})


@pytest.mark.parametrize("given", ["datasets", "agv6w2qcg7"])
def test_volume_is_attached_in_the_call_that_creates_the_pod(runpod: FakeRunPod, tmp_path: Path, given: str) -> None:
    runpod.volumes = [DATA, OTHER]

    async def main() -> Cluster:
        cluster = await attached(runpod, tmp_path, volume(given))
        await settings(runpod).create_provider().provision(cluster, 1)
        return cluster

    notes = asyncio.run(main()).notes
    (pod,) = runpod.pods.values()
    assert (pod["networkVolumeId"], pod["volumeMountPath"]) == ("agv6w2qcg7", "/workspace")
    assert pod["dataCenterIds"] == ["EU-RO-1"]
    assert notes == (
        "Each pod has network volume 'datasets' (50 GB in EU-RO-1) at /workspace. RunPod bills it until you delete it; "
        "Skyward never does.",
    )


REFUSALS = {
    "read-only": ([volume(read_only=True)], {}, "for reading and writing, never read-only: write read_only=False"),
    "prefix": (
        [volume(prefix="train")],
        {},
        "as a whole: leave out prefix='train', and use the folder below /workspace",
    ),
    "sync": ([volume(mode="sync")], {}, "itself, without copies: leave out mode='sync'"),
    "two": (
        [volume(), sky.Volume("results", "/results", read_only=False)],
        {},
        "one network volume to a pod, but /workspace and /results are 2: give the others a `storage=`",
    ),
    "unknown": ([volume("nothing")], {}, r"no network volume 'nothing' at RunPod; .* has: datasets \(agv6w2qcg7\)"),
    "place": ([volume()], {"data_center_ids": ["US-KS-2"]}, "US-KS-2 only, but .* EU-RO-1.*: use region='EU-RO-1'"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_attached_is_refused(runpod: FakeRunPod, tmp_path: Path, case: str) -> None:
    runpod.volumes = [DATA]
    volumes, config, reason = REFUSALS[case]
    with pytest.raises(sky.SpecError, match=reason):
        asyncio.run(attached(runpod, tmp_path, *volumes, **config))
    assert not [each for each in runpod.requests if each.method == "POST" and each.path == "/v1/pods"]


def test_name_of_two_volumes_is_refused_with_their_ids(runpod: FakeRunPod, tmp_path: Path) -> None:
    runpod.volumes = [DATA, {**OTHER, "name": "datasets"}]
    with pytest.raises(
        sky.SpecError, match="2 network volumes at RunPod .*: give the id, one of agv6w2qcg7, k3v9aaaaaa"
    ):
        asyncio.run(attached(runpod, tmp_path, volume()))


def test_gpu_that_its_data_center_lacks_is_no_capacity(runpod: FakeRunPod, tmp_path: Path) -> None:
    runpod.volumes, runpod.places = [DATA], {A100: ["US-KS-2"]}
    with pytest.raises(sky.NoCapacityError, match="no A100 PCIe in EU-RO-1, where network volume .* but in US-KS-2"):
        asyncio.run(attached(runpod, tmp_path, volume()))


def test_community_cloud_has_no_network_volumes(runpod: FakeRunPod, tmp_path: Path) -> None:
    runpod.volumes = [DATA]
    with pytest.raises(sky.NoCapacityError, match="community cloud attaches no network volumes"):
        asyncio.run(attached(runpod, tmp_path, volume(), cloud_type="community"))


def test_refusal_of_a_pod_names_the_place_of_its_volume(runpod: FakeRunPod, tmp_path: Path) -> None:
    runpod.volumes = [DATA]

    async def main() -> None:
        cluster = await attached(runpod, tmp_path, volume())
        runpod.out_of_stock.add(A100)
        await settings(runpod).create_provider().provision(cluster, 1)

    with pytest.raises(sky.NoCapacityError, match=r"at the place of network volume 'datasets' \(50 GB in EU-RO-1\)"):
        asyncio.run(main())


def test_pool_opens_no_pod_without_its_volume(runpod: FakeRunPod) -> None:
    pool = sky.Compute(provider=settings(runpod), accelerator="RTX_4090", volumes=[volume()], logging=False)
    with pytest.raises(sky.SpecError, match="There is no network volume 'datasets' at RunPod; the account has: none"):
        pool.open()
    assert not [each for each in runpod.requests if each.method == "POST" and each.path == "/v1/pods"]


@sky.function
def write() -> str:
    path = sky.volume("/workspace")
    (path / "result.txt").write_text("written")
    return str(path)


def test_tasks_find_the_volume_without_credentials_of_a_store(runpod_machines: FakeRunPod) -> None:
    runpod_machines.volumes = [DATA]
    with sky.Compute(
        provider=settings(runpod_machines), accelerator="RTX_4090", volumes=[volume()], logging=False
    ) as pool:
        assert write() >> pool == "/workspace"
        (id,) = runpod_machines.pods
        assert (runpod_machines.machine(id).disk / "workspace/result.txt").read_text() == "written"
    assert runpod_machines.pods == {}


def test_official_sdk_sees_the_volume_when_its_pod_is_gone(runpod: FakeRunPod, tmp_path: Path) -> None:
    runpod.volumes = [DATA]

    async def main() -> None:
        cluster = await attached(runpod, tmp_path, volume())
        provider = settings(runpod).create_provider()
        _, machines = await provider.provision(cluster, 1)
        await provider.terminate(cluster, [each.id for each in machines])
        await provider.teardown(cluster)

    asyncio.run(main())
    assert runpod.pods == {}
    script = f"""
import runpod
runpod.api_key = {KEY!r}
assert [each["id"] for each in runpod.get_user()["networkVolumes"]] == ["agv6w2qcg7"]
"""
    run_vendor("runpod", script, {"RUNPOD_API_BASE_URL": runpod.url}, tmp_path)
