"""The provider of Vast.ai."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Final

import httpx

from skyward.errors import NoCapacityError, SkywardError
from skyward.providers import (
    Check,
    Cluster,
    Instance,
    InstanceType,
    Leftover,
    Offer,
    PoolIdentity,
    SSHAccess,
    key_pair,
)
from skyward.specs import Spec
from skyward_providers.cloud import (
    SharedListing,
    answers_as,
    cluster_keys,
    host_key_of,
    launch_each,
    mark_of,
    run_checks,
)
from skyward_providers.vastai.api import VastAIApi
from skyward_providers.vastai.machine import (
    IMAGE,
    detail_of,
    endpoint_of,
    gpu_of,
    label_of,
    onstart,
    status_of,
    tags_of,
)
from skyward_providers.vastai.settings import VastAI

__all__ = ["VastAIProvider"]

_DEARER: Final = 1.5
"""Price of a similar machine, as a multiple of the offer's, up to which it is rented in its place."""

_SPARE: Final = 4
"""Similar offers to try for each machine, because others rent too."""

_LEAST_BID: Final = 0.001
_MIB_PER_GIB: Final = 1024
_ROUTES: Final = "ssh_direc ssh_proxy"
"""Both routes of SSH, as the vendor's client names them: the machine's own port where it has one, and the proxy."""


class VastAIProvider:
    """Rents and destroys instances.

    Attributes:
        settle: seconds in which a machine whose rent was not answered must be listed.
        poll: seconds between listings meanwhile.
    """

    settle = 10.0
    poll = 1.0

    def __init__(self, settings: VastAI) -> None:
        self._settings = settings
        self._api = VastAIApi(settings)
        self._instances = SharedListing(self._api.instances)
        self._ready: set[str] = set()

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the machines on the market, with their prices in both markets."""
        filters, disk = self._filters(), self._settings.disk_gb
        fixed, bids = await asyncio.gather(
            self._api.offers("ondemand", filters, disk), self._api.offers("bid", filters, disk)
        )
        usable = {each["id"]: each for each in (*bids, *fixed) if _is_priced(each)}
        spot = {each["id"]: self._bid_price(each) for each in bids if each["id"] in usable and each.get("min_bid")}
        on_demand = {each["id"]: float(each["dph_total"]) for each in fixed if each["id"] in usable}
        for id, ask in usable.items():
            if id in spot or id in on_demand:
                yield _offer(ask, spot.get(id), on_demand.get(id))

    def _filters(self) -> dict[str, Any]:
        settings = self._settings
        filters: dict[str, Any] = {
            "rentable": {"eq": True},
            "rented": {"eq": False},
            "external": {"eq": False},
            "reliability": {"gte": settings.min_reliability},
            "cuda_max_good": {"gte": settings.min_cuda},
            "disk_space": {"gte": settings.disk_gb},
        }
        if settings.verified_only:
            filters["verified"] = {"eq": True}
        if settings.geolocation:
            filters["geolocation"] = {"in": list(settings.geolocation)}
        if settings.require_direct_port:
            filters["direct_port_count"] = {"gte": 1}
        if settings.min_inet_down is not None:
            filters["inet_down"] = {"gte": settings.min_inet_down}
        if settings.min_inet_up is not None:
            filters["inet_up"] = {"gte": settings.min_inet_up}
        return filters

    def _bid(self, ask: Mapping[str, Any]) -> float:
        """Return our bid for the machine of an offer, USD per hour, without its disk."""
        return max(_LEAST_BID, math.ceil(float(ask["min_bid"]) * self._settings.bid_multiplier * 10_000) / 10_000)

    def _bid_price(self, ask: Mapping[str, Any]) -> float:
        """Return the price of a spot machine, USD per hour: our bid, and its disk."""
        return self._bid(ask) + max(0.0, float(ask["dph_total"]) - float(ask["dph_base"]))

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Write the key of the pool. Machines share nothing at Vast.ai."""
        return Cluster(pool.id, pool.id, spec, offer, cluster_keys(pool))

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Rent the machine of the offer, and similar ones. A repeated request adds only those that are missing."""
        request = cluster.tags["skyward-request"]
        self._instances.forget()
        existing = [each for each in await self._instances.get() if tags_of(each).get("skyward-request") == request]
        made = [await self._instance(cluster, each, probe=False) for each in existing[:count]]
        candidates = self._candidates(cluster, count - len(made), [each["machine_id"] for each in existing])

        async def create(number: int) -> Instance:
            async for ask in candidates:
                try:
                    return await self._rent(cluster, ask)
                except NoCapacityError:
                    continue
            raise NoCapacityError(f"Vast.ai has no {cluster.offer.instance_type.name} at this price any more.")

        async def undo(instances: Sequence[str]) -> None:
            await self.terminate(cluster, instances)

        try:
            made += await launch_each(count - len(made), create, undo, at_once=1)  # it allows one rent at a time
        finally:
            await candidates.aclose()
            self._instances.forget()
        return cluster, made

    async def _candidates(
        self, cluster: Cluster, count: int, taken: Sequence[int]
    ) -> AsyncGenerator[Mapping[str, Any]]:
        """Yield the cluster's own offer, and then similar ones that are on the market now, the cheapest first."""
        spec, own, is_spot = cluster.spec, cluster.offer.specific, cluster.spec.allocation == "spot"
        disk = self._disk(spec)
        own = self._with_disk(own, disk)
        costs = self._costs(own, is_spot)
        most = spec.max_hourly_cost or costs * _DEARER
        if own["machine_id"] not in taken and own["disk_space"] >= disk and costs <= most:
            yield own
        filters: dict[str, Any] = self._filters() | {
            "gpu_name": {"eq": own["gpu_name"]},
            "num_gpus": {"eq": own["num_gpus"]},
            "disk_space": {"gte": disk},
        }
        if spec.region:
            filters["geolocation"] = {"in": [spec.region.upper()]}
        found = await self._api.offers("bid" if is_spot else "ondemand", filters, disk)
        tried = 0
        for ask in filter(_is_priced, found):
            kind = _kind(ask)
            fits = (
                self._costs(ask, is_spot) <= most
                and kind.architecture == cluster.offer.instance_type.architecture
                and kind.vcpus >= (spec.vcpus or 0)
                and kind.memory_gb >= (spec.memory_gb or 0)
                and ask["machine_id"] not in taken
            )
            if fits and tried < count * _SPARE:
                tried += 1
                yield ask

    def _costs(self, ask: Mapping[str, Any], is_spot: bool) -> float:
        """Return the price of the machine of an offer, with its disk, in USD per hour."""
        return self._bid_price(ask) if is_spot else float(ask["dph_total"])

    def _with_disk(self, ask: Mapping[str, Any], disk: int) -> Mapping[str, Any]:
        """Return an offer that was listed with the disk of the settings, priced with a disk of another size."""
        storage = max(0.0, ask["dph_total"] - ask["dph_base"]) * disk / self._settings.disk_gb
        return {**ask, "dph_total": ask["dph_base"] + storage}

    def _disk(self, spec: Spec) -> int:
        return math.ceil(spec.disk_gb or self._settings.disk_gb)

    async def _rent(self, cluster: Cluster, ask: Mapping[str, Any]) -> Instance:
        """Rent the machine of an offer. If the answer is lost, look for the machine before anything else."""
        spec, specific, number = cluster.spec, cluster.specific, int(ask["id"])
        is_spot, label = spec.allocation == "spot", label_of(cluster.tags, number)
        machine: dict[str, Any] = {
            "image": self._settings.docker_image or IMAGE,
            "disk": self._disk(spec),
            "runtype": _ROUTES,
            "label": label,
            "onstart": onstart(specific["public_key"], host_key_of(cluster, label), self._api.base),
            "target_state": "running",
            "cancel_unavail": True,  # else a machine that cannot start stays, stopped, and its disk is billed
        }
        if is_spot:
            machine["price"] = self._bid(ask)
        try:
            instance = await self._api.rent(number, machine)
        except httpx.HTTPError as lost:
            try:
                found = await self._listed(label)
            except SkywardError:  # it would say that nothing was rented
                raise lost from None
            if found is None:
                raise
            return await self._instance(cluster, found, probe=False)
        price = self._costs(ask, is_spot)
        detail = "Vast.ai has just rented it"
        return Instance(instance, "provisioning", None, spot=is_spot, hourly_price=price, detail=detail)

    async def _listed(self, label: str) -> Mapping[str, Any] | None:
        """Return the instance with a label, once it is listed; None if it is not in time."""
        until = time.monotonic() + self.settle
        while True:
            found = await self._api.instances(label)
            if found or time.monotonic() > until:
                return found[0] if found else None
            await asyncio.sleep(self.poll)

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a machine."""
        found = next((each for each in await self._instances.get() if str(each["id"]) == instance_id), None)
        return cluster, None if found is None else await self._instance(cluster, found)

    async def _instance(self, cluster: Cluster, instance: Mapping[str, Any], *, probe: bool = True) -> Instance:
        """Return an instance as a machine: it runs once its start script has given its SSH server our keys."""
        status, detail, id = status_of(instance), detail_of(instance), str(instance["id"])
        specific, access = cluster.specific, None
        endpoint = endpoint_of(instance, direct_only=self._settings.require_direct_port)
        if status == "running":
            host_key = key_pair(specific["host_key_seed"], instance.get("label") or "").public
            ready = id in self._ready
            if endpoint is not None and not ready and probe:
                ready = await answers_as(*endpoint, mark_of(host_key))
            if endpoint is None:
                detail = "it has no address yet"
            elif not ready:
                detail = "its start script has not set up SSH yet"
            else:
                self._ready.add(id)
                host, port = endpoint
                files = (specific["key_file"],)
                access = SSHAccess(host, port, "root", client_keys=files, host_key=host_key, config="none")
                detail = ""
        return Instance(
            id,
            "exited" if status == "exited" else "provisioning" if access is None else "running",
            access,
            public_address="" if endpoint is None else endpoint[0],
            spot=bool(instance.get("is_bid")),
            hourly_price=float(instance.get("dph_total") or 0.0),
            detail=detail,
        )

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the machines with the pool's tag."""
        self._instances.forget()
        found = [each for each in await self._instances.get() if tags_of(each).get("skyward-pool") == cluster.pool]
        return await asyncio.gather(*(self._instance(cluster, each) for each in found))

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Destroy machines: many by one request, and those that are left one by one."""
        self._ready.difference_update(instance_ids)
        left = list(instance_ids)
        try:
            if len(left) > 1:
                await self._api.destroy_all(left)
                existing = {str(each["id"]) for each in await self._api.instances()}
                left = [each for each in left if each in existing]
            for each in left:
                await self._api.destroy(each)
        finally:
            self._instances.forget()

    async def teardown(self, cluster: Cluster) -> None:
        """Do nothing: machines share nothing."""

    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return all machines of this owner."""
        self._instances.forget()
        found = []
        for each in await self._instances.get():
            tags = tags_of(each)
            if tags.get("skyward-owner") == owner:
                pool, price = tags.get("skyward-pool", ""), each.get("dph_total")
                found.append(Leftover("machine", str(each["id"]), pool, hourly_price=price))
        return found

    async def remove(self, leftover: Leftover) -> None:
        """Destroy a machine."""
        await self._api.destroy(leftover.id)
        self._instances.forget()

    async def check(self) -> Sequence[Check]:
        """Check that the key may list machines, and that the account has credit."""

        async def funds() -> str:
            account = await self._api.user()
            credit = float(account.get("credit") or account.get("balance") or 0.0)
            return "" if credit > 0 else "Vast.ai rents nothing without credit; add some."

        return await run_checks({"has credit": funds, "may list machines": self._api.instances})


def _is_priced(ask: Mapping[str, Any]) -> bool:
    """Return whether an offer has what a rent of it needs: a host may have listed only a part of it."""
    gpu_memory = not ask.get("num_gpus") or ask.get("gpu_ram")
    return bool(gpu_memory) and all(ask.get(each) for each in ("id", "machine_id", "dph_base", "dph_total"))


def _kind(ask: Mapping[str, Any]) -> InstanceType:
    """Return the part of a machine that an offer rents."""
    count, gpu = int(ask.get("num_gpus") or 0), gpu_of(ask.get("gpu_name") or "")
    share = float(ask.get("gpu_frac") or 1.0)
    return InstanceType(
        f"{gpu} x{count}" if count else str(ask.get("cpu_name") or "CPU"),
        vcpus=float(ask.get("cpu_cores_effective") or 0),
        memory_gb=round(float(ask.get("cpu_ram") or 0) * share / _MIB_PER_GIB, 1),
        accelerator=gpu if count else None,
        accelerator_count=count,
        architecture="arm64" if ask.get("cpu_arch") == "arm64" else "x86_64",
        accelerator_memory_gb=round(float(ask["gpu_ram"]) / _MIB_PER_GIB) if count else None,
    )


def _offer(ask: Mapping[str, Any], spot: float | None, on_demand: float | None) -> Offer:
    """Return an offer of the market, with what a rent of it needs."""
    numbers = {name: float(ask.get(name) or 0.0) for name in ("min_bid", "dph_base", "dph_total", "disk_space")}
    specific = {name: ask.get(name) for name in ("id", "machine_id", "gpu_name", "num_gpus")} | numbers
    region = (ask.get("geolocation") or "").rpartition(",")[2].strip()
    return Offer(str(ask["id"]), _kind(ask), spot, on_demand, region=region, specific=specific)
