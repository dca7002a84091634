"""The provider of RunPod."""

import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from skyward.errors import NoCapacityError, SkywardError
from skyward.providers import (
    Check,
    Cluster,
    Instance,
    InstanceType,
    Leftover,
    Market,
    Offer,
    PoolIdentity,
)
from skyward.specs import Spec, Volume
from skyward_providers.cloud import (
    SharedListing,
    cluster_keys,
    host_key_of,
    launch_each,
    pod_start,
    run_checks,
    ssh_access,
)
from skyward_providers.runpod.api import RunPodApi
from skyward_providers.runpod.settings import RunPod
from skyward_providers.runpod.volumes import check_place, find_volume, one_volume

__all__ = ["RunPodProvider"]

_logger = logging.getLogger(__name__)

_GPU_IMAGE = "nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04"
_CPU_IMAGE = "ubuntu:24.04"

_POOL, _OWNER, _REQUEST = "SKYWARD_POOL_TAG", "SKYWARD_OWNER_TAG", "SKYWARD_REQUEST_TAG"
"""Variables of a pod that are its tags: pods have none of their own, and names need not be unique."""

_END = 'runpodctl remove pod "$RUNPOD_POD_ID" || runpodctl stop pod "$RUNPOD_POD_ID"'
"""Command that ends the pod it runs in. RunPod puts `runpodctl` into each pod, with a key for that pod only."""

_CPU_SIZES = (2, 4, 8, 16, 32)
"""Numbers of vCPUs of a CPU pod."""

_CLOUDS = {"secure": ("SECURE",), "community": ("COMMUNITY",), "any": ("SECURE", "COMMUNITY")}


class RunPodProvider:
    """Rents and deletes pods."""

    def __init__(self, settings: RunPod) -> None:
        self._settings = settings
        self._api = RunPodApi(settings)
        self._pods = SharedListing(self._api.pods)

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the types of GPUs, for each number of them, and of CPUs, for each size."""
        try:
            spot = await self._api.spot_prices()
        except SkywardError as error:  # prices of one market only; the other still sells
            _logger.warning("the prices of RunPod's interruptible pods are unknown: %s", error)
            spot = {}
        for gpu in await self._api.gpus():
            for cloud in _CLOUDS[self._settings.cloud_type]:
                for offer in _gpu_offers(gpu, cloud, spot.get(gpu["id"], {})):
                    yield offer
        if self._settings.cloud_type != "community":
            for cpu in await self._api.cpus():
                for offer in _cpu_offers(cpu):
                    yield offer

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Write the key of the pool. Pods share nothing at RunPod."""
        return Cluster(pool.id, pool.id, spec, offer, cluster_keys(pool))

    async def attach(self, cluster: Cluster, volumes: Sequence[Volume]) -> Cluster:
        """Find the network volume that each pod gets."""
        wanted = one_volume(volumes)
        volume = find_volume(wanted, await self._api.network_volumes())
        gpus = await self._api.gpus() if cluster.offer.specific["kind"] == "gpu" else []
        check_place(volume, cluster.offer, self._centers(cluster.spec), gpus)
        note = f"Each pod has {volume} at {volume.mount}. RunPod bills it until you delete it; Skyward never does."
        specific = {**cluster.specific, "volume": {"place": str(volume), "request": volume.request}}
        return replace(cluster, specific=specific, notes=(*cluster.notes, note))

    def _centers(self, spec: Spec) -> list[str]:
        """Return the data centers that pods may be in; none for all."""
        return [spec.region] if spec.region else list(self._settings.data_center_ids)

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Rent pods, one by one. A repeated request adds only those that are missing."""
        request = cluster.tags["skyward-request"]
        self._pods.forget()
        existing = [
            each
            for each in await self._pods.get()
            if _tags(each).get(_REQUEST) == request and each["desiredStatus"] != "TERMINATED"
        ]
        made = [_instance(cluster, each) for each in existing[:count]]

        async def create(number: int) -> Instance:
            try:
                return _instance(cluster, await self._api.create(self._pod(cluster, number)))
            except NoCapacityError as error:
                if (volume := cluster.specific.get("volume")) is None:
                    raise
                raise NoCapacityError(f"{str(error).rstrip('.')}, at the place of {volume['place']}.") from error

        async def undo(pods: Sequence[str]) -> None:
            await self.terminate(cluster, pods)

        try:
            made += await launch_each(count - len(made), create, undo)
        finally:
            self._pods.forget()
        return cluster, made

    def _pod(self, cluster: Cluster, number: int) -> dict[str, Any]:
        """Return the request for one pod."""
        settings, spec, offer, tags = self._settings, cluster.spec, cluster.offer, cluster.tags
        specific, request = cluster.specific, tags["skyward-request"]
        host_key = host_key_of(cluster, request)
        kind = offer.specific
        pod: dict[str, Any] = {
            "name": f"skyward-{cluster.pool}-{request}-{number}"[:191],
            "imageName": settings.container_image or (_GPU_IMAGE if kind["kind"] == "gpu" else _CPU_IMAGE),
            "cloudType": kind["cloud"],
            "interruptible": spec.allocation == "spot",
            "containerDiskInGb": math.ceil(spec.disk_gb or settings.container_disk_gb),
            "volumeInGb": 0,
            "ports": ["22/tcp"],
            "dockerEntrypoint": [],
            "dockerStartCmd": ["sh", "-c", pod_start(specific["public_key"], host_key, _END)],
            "env": {_POOL: tags["skyward-pool"], _OWNER: tags["skyward-owner"], _REQUEST: request},
        }
        if kind["kind"] == "gpu":
            gpus = kind["count"]
            pod |= {"gpuTypeIds": [kind["id"]], "gpuCount": gpus, "supportPublicIp": True}
            if spec.memory_gb is not None:
                pod["minRAMPerGPU"] = math.ceil(spec.memory_gb / gpus)
            if spec.vcpus is not None:
                pod["minVCPUPerGPU"] = math.ceil(spec.vcpus / gpus)
        else:
            pod |= {"computeType": "CPU", "cpuFlavorIds": [kind["id"]], "vcpuCount": kind["count"]}
        if centers := self._centers(spec):
            pod["dataCenterIds"] = centers
        if settings.country_codes:
            pod["countryCodes"] = list(settings.country_codes)
        volume = specific.get("volume")
        return pod if volume is None else pod | volume["request"]

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a pod."""
        found = next((each for each in await self._pods.get() if each["id"] == instance_id), None)
        return cluster, None if found is None else _instance(cluster, found)

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the pods with the pool's tag."""
        self._pods.forget()
        pods = await self._pods.get()
        mine = [each for each in pods if _tags(each).get(_POOL) == cluster.pool]
        return [_instance(cluster, each) for each in mine if each["desiredStatus"] != "TERMINATED"]

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Delete pods."""
        try:
            for pod in instance_ids:
                await self._api.delete(pod)
        finally:
            self._pods.forget()

    async def teardown(self, cluster: Cluster) -> None:
        """Do nothing: pods share nothing."""

    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return all pods of this owner."""
        self._pods.forget()
        found = []
        for pod in await self._pods.get():
            tags = _tags(pod)
            if tags.get(_OWNER) == owner and pod["desiredStatus"] != "TERMINATED":
                price = pod.get("costPerHr")
                price = None if price is None else float(price)
                found.append(Leftover("machine", pod["id"], tags.get(_POOL, ""), hourly_price=price))
        return found

    async def remove(self, leftover: Leftover) -> None:
        """Delete a pod."""
        await self._api.delete(leftover.id)
        self._pods.forget()

    async def check(self) -> Sequence[Check]:
        """Check that the key may list pods and read prices."""
        return await run_checks({"may list pods": self._api.pods, "may list offers": self._api.gpus})


def _gpu_offers(gpu: Mapping[str, Any], cloud: str, spot: Mapping[str, Any]) -> list[Offer]:
    """Return the offers of one type of GPU, for each number of them. One that is out of stock has none."""
    key = cloud.lower()
    price, most = gpu["price"].get(key), gpu["maxCount"].get(key) or 0
    if not gpu.get(key) or not price or gpu.get("availability") == "NONE":
        return []
    spot_price = spot.get(f"{key}SpotPrice")
    return [
        Offer(
            f"{cloud}/{gpu['id']}/{count}",
            InstanceType(f"{gpu['name']} x{count} {key}", 0, 0, gpu["id"], count, accelerator_memory_gb=gpu["memory"]),
            spot_price=spot_price * count if spot_price else None,
            on_demand_price=price * count,
            specific={"kind": "gpu", "id": gpu["id"], "count": count, "cloud": cloud},
        )
        for count in range(1, most + 1)
    ]


def _cpu_offers(cpu: Mapping[str, Any]) -> list[Offer]:
    """Return the offers of one type of CPU, for each size."""
    price = cpu["price"].get("securePerVcpu")
    if price is None or cpu.get("availability") == "NONE":
        return []
    return [
        Offer(
            f"CPU/{cpu['id']}/{count}",
            InstanceType(f"{cpu['id']} x{count}", count, count * cpu["ramGbPerVcpu"]),
            on_demand_price=price * count,
            specific={"kind": "cpu", "id": _flavor(cpu["id"]), "count": count, "cloud": "SECURE"},
        )
        for count in _CPU_SIZES
        if cpu["vcpu"]["min"] <= count <= cpu["vcpu"]["max"]
    ]


def _flavor(id: str) -> str:
    """Return the flavor of a type of CPU: v2 lists "cpu3c-2-4" where v1 rents "cpu3c"."""
    return id.partition("-")[0]


def _tags(pod: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the variables of a pod, which are its tags; a pod of others may have none."""
    return pod.get("env") or {}


def _instance(cluster: Cluster, pod: Mapping[str, Any]) -> Instance:
    """Return a pod as a machine: it runs once its sshd has a public address and port."""
    status, address = pod["desiredStatus"], pod.get("publicIp") or ""
    port = (pod.get("portMappings") or {}).get("22")
    market: Market = "spot" if pod.get("interruptible") else "on-demand"
    price = pod.get("adjustedCostPerHr") or pod.get("costPerHr") or cluster.offer.hourly_price(market) or 0.0
    request = _tags(pod).get(_REQUEST) or cluster.tags.get("skyward-request", "")
    access = None
    if status == "RUNNING" and address and port:
        access = ssh_access(cluster, address, int(port), request)
    return Instance(
        pod["id"],
        "exited" if status != "RUNNING" else "provisioning" if access is None else "running",
        access,
        public_address=address,
        spot=market == "spot",
        hourly_price=float(price),
        detail="RunPod ended the pod" if status != "RUNNING" else "it has no public address yet" * (access is None),
    )
