"""The provider of Lambda, the GPU cloud."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from skyward.errors import ProvisioningError, SkywardError
from skyward.providers import (
    Check,
    Cluster,
    Instance,
    InstanceType,
    Leftover,
    Offer,
    PoolIdentity,
)
from skyward.specs import Spec
from skyward_providers.cloud import (
    SharedListing,
    cloud_config,
    cluster_keys,
    host_key_of,
    launch_each,
    network_ranges,
    run_checks,
    ssh_access,
)
from skyward_providers.lambda_cloud.api import LambdaApi
from skyward_providers.lambda_cloud.settings import Lambda

__all__ = ["LambdaProvider"]

_POOL, _OWNER, _REQUEST, _NUMBER = "skyward-pool", "skyward-owner", "skyward-request", "skyward-number"
"""Tags of an instance."""

_GONE = ("terminating", "terminated")
"""Statuses of instances that were terminated, as Lambda lists them for a while."""

_WITHOUT_RULESETS = ("us-south-1",)
"""Regions in which firewall rules have no effect."""

_ADDRESS_SERVICE = "https://checkip.amazonaws.com"

LOOK_FOR = 15.0
"""Seconds for which an instance is looked for, after the answer to its launch was lost."""

RELEASED_WITHIN = 90.0
"""Seconds that a ruleset may stay in use after the last instance was terminated."""

LOOK_EVERY = 2.0

_NOTE = (
    "An instance of Lambda is billed until it is terminated by this computer: if its client is killed, run `%sky reap`."
)


class LambdaProvider:
    """Launches and terminates instances."""

    def __init__(self, settings: Lambda) -> None:
        self._settings = settings
        self._api = LambdaApi(settings)
        self._instances = SharedListing(self._api.instances)

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the types of instances, for each region that has some now."""
        for name, item in (await self._api.types()).items():
            kind = item["instance_type"]
            for region in item["regions_with_capacity_available"]:
                if self._settings.region in (None, region["name"]):
                    yield Offer(
                        f"{name}/{region['name']}",
                        _instance_type(kind),
                        on_demand_price=kind["price_cents_per_hour"] / 100,
                        region=region["name"],
                    )

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Add the SSH key and the firewall ruleset of the pool, unless they exist."""
        name, public_key = _shared_name(pool), pool.ssh_key()
        added, ruleset = await self._ensure_key(name, public_key), ""
        if offer.region not in _WITHOUT_RULESETS:
            try:
                ruleset = await self._ensure_ruleset(name, offer.region)
            except SkywardError as error:
                await self._undo(added, error)
                raise
        specific = {
            "name": name,
            "ruleset": ruleset,
            **cluster_keys(pool),
        }
        return Cluster(pool.id, pool.id, spec, offer, specific, (_NOTE,))

    async def _ensure_key(self, name: str, public_key: str) -> str:
        """Add an SSH key unless there is one of that name; return its id if it was added."""
        if any(key["name"] == name for key in await self._api.keys()):
            return ""
        return await self._api.add_key(name, public_key)

    async def _ensure_ruleset(self, name: str, region: str) -> str:
        for ruleset in await self._api.rulesets():
            if ruleset["name"] == name and ruleset["region"]["name"] == region:
                return str(ruleset["id"])
        sources = await network_ranges(self._settings.caller_cidr, _ADDRESS_SERVICE)
        return await self._api.add_ruleset(name, region, sources)

    async def _undo(self, key: str, error: SkywardError) -> None:
        """Remove the SSH key that a failed `prepare` has added. If that fails, raise an error that is not Skyward's."""
        if key:
            try:
                await self._api.delete_key(key)
            except SkywardError as second:
                raise RuntimeError(f"{error} Then SSH key {key} could not be removed: {second}") from error

    async def _delete_ruleset(self, id: str) -> None:
        until = time.monotonic() + RELEASED_WITHIN
        while not await self._api.delete_ruleset(id):
            if time.monotonic() > until:
                raise ProvisioningError(
                    f"Firewall ruleset {id} is still in use at Lambda; it costs nothing, and the next sweep removes it."
                )
            await asyncio.sleep(LOOK_EVERY)

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Launch instances, one after the other. A repeated request adds only those that are missing."""
        existing = {_tag(each, _NUMBER): each for each in await self._requested(cluster)}
        made = [_instance(cluster, each) for each in existing.values()][:count]
        numbers = [str(number) for number in range(count) if str(number) not in existing][: count - len(made)]
        failure: Exception | None = None

        async def create(position: int) -> Instance:
            nonlocal failure
            if failure is not None:  # the others would wait for their turn, and fail too
                raise failure
            try:
                return await self._launch(cluster, numbers[position])
            except Exception as error:
                failure = error
                raise

        async def undo(ids: Sequence[str]) -> None:
            await self.terminate(cluster, ids)

        try:
            made += await launch_each(len(numbers), create, undo, at_once=1)
        except SkywardError:
            if not made:
                raise
        finally:
            self._instances.forget()
        return cluster, made

    async def _requested(self, cluster: Cluster) -> list[dict[str, Any]]:
        """Return the instances of a request, and forget older listings."""
        self._instances.forget()
        request = cluster.tags[_REQUEST]
        return [each for each in await self._instances.get() if _tag(each, _REQUEST) == request and _is_alive(each)]

    async def _launch(self, cluster: Cluster, number: str) -> Instance:
        """Launch an instance. If the answer is lost, look for the instance by its tags."""
        try:
            id = await self._api.launch(self._request(cluster, number))
        except SkywardError:
            raise
        except Exception:
            until = time.monotonic() + LOOK_FOR
            while True:
                with contextlib.suppress(SkywardError):  # the outcome of the launch stays unknown
                    for each in await self._requested(cluster):
                        if _tag(each, _NUMBER) == number:
                            return _instance(cluster, each)
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(LOOK_EVERY)
        return Instance(id, "provisioning", hourly_price=cluster.offer.on_demand_price or 0.0)

    def _request(self, cluster: Cluster, number: str) -> dict[str, Any]:
        """Return the request for one instance."""
        specific, offer = cluster.specific, cluster.offer
        tags = {**cluster.tags, _NUMBER: number}
        host_key = host_key_of(cluster, _purpose(tags[_REQUEST], number))
        request: dict[str, Any] = {
            "region_name": offer.region,
            "instance_type_name": offer.instance_type.name,
            "ssh_key_names": [specific["name"]],
            "name": f"skyward-{cluster.pool}"[:64],
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
            "user_data": cloud_config(specific["public_key"], host_key, ""),
        }
        if specific["ruleset"]:
            request["firewall_rulesets"] = [{"id": specific["ruleset"]}]
        if self._settings.image is not None:
            request["image"] = {"family": self._settings.image}
        return request

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of an instance."""
        found = next((each for each in await self._instances.get() if each["id"] == instance_id), None)
        return cluster, None if found is None or not _is_alive(found) else _instance(cluster, found)

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the instances with the pool's tag."""
        self._instances.forget()
        found = await self._instances.get()
        return [_instance(cluster, each) for each in found if _tag(each, _POOL) == cluster.pool and _is_alive(each)]

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Terminate instances."""
        try:
            if instance_ids:
                await self._api.terminate(instance_ids)
        finally:
            self._instances.forget()

    async def teardown(self, cluster: Cluster) -> None:
        """Remove the SSH key, and the firewall ruleset once no instance uses it."""
        name, region = cluster.specific["name"], cluster.offer.region
        for key in await self._api.keys():
            if key["name"] == name:
                await self._api.delete_key(key["id"])
        for ruleset in await self._api.rulesets():
            if (ruleset["name"], ruleset["region"]["name"]) == (name, region):
                await self._delete_ruleset(ruleset["id"])

    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return the instances, SSH keys and firewall rulesets of this owner."""
        self._instances.forget()
        found = [
            Leftover("machine", each["id"], _tag(each, _POOL), each["region"]["name"], hourly_price=_price(each))
            for each in await self._instances.get()
            if _tag(each, _OWNER) == owner and _is_alive(each)
        ]
        prefix = _prefix(owner)
        found += [
            Leftover("SSH key", key["id"], key["name"].removeprefix(prefix))
            for key in await self._api.keys()
            if key["name"].startswith(prefix)
        ]
        for ruleset in await self._api.rulesets():
            name, region = ruleset["name"], ruleset["region"]["name"]
            if name.startswith(prefix):
                found.append(Leftover("firewall ruleset", ruleset["id"], name.removeprefix(prefix), region))
        return found

    async def remove(self, leftover: Leftover) -> None:
        """Remove an instance, an SSH key or a firewall ruleset."""
        match leftover.kind:
            case "machine":
                await self._api.terminate([leftover.id])
                self._instances.forget()
            case "SSH key":
                await self._api.delete_key(leftover.id)
            case _:
                await self._delete_ruleset(leftover.id)

    async def check(self) -> Sequence[Check]:
        """Check that the key may list instances and types."""
        return await run_checks({"may list instances": self._api.instances, "may list offers": self._api.types})


def _prefix(owner: str) -> str:
    """Return how the names of keys and rulesets of an owner begin. They have no tags, and 64 characters at most."""
    return f"sky-{owner[:8]}-"


def _shared_name(pool: PoolIdentity) -> str:
    return f"{_prefix(pool.owner)}{pool.id}"


def _purpose(request: str, number: str) -> str:
    """Return the purpose of the host key of one instance."""
    return f"{request}/{number}"


def _tag(instance: Mapping[str, Any], key: str) -> str:
    return next((each["value"] for each in instance.get("tags") or () if each["key"] == key), "")


def _is_alive(instance: Mapping[str, Any]) -> bool:
    return instance["status"] not in _GONE


def _price(instance: Mapping[str, Any]) -> float:
    return float(instance["instance_type"]["price_cents_per_hour"]) / 100


_MEMORY = re.compile(r"\((\d+) GB")


def _instance_type(kind: Mapping[str, Any]) -> InstanceType:
    specs, gpu = kind["specs"], kind["gpu_description"]
    memory = _MEMORY.search(gpu)
    architecture: Literal["x86_64", "arm64"] = "arm64" if re.search(r"_gb?[hb]\d", f"_{kind['name']}") else "x86_64"
    return InstanceType(
        kind["name"],
        specs["vcpus"],
        specs["memory_gib"],
        gpu if specs["gpus"] else None,
        specs["gpus"],
        architecture,
        float(memory[1]) if memory and specs["gpus"] else None,
    )


def _instance(cluster: Cluster, found: Mapping[str, Any]) -> Instance:
    """Return a listed instance as a machine: it runs once it is active and has an address."""
    status, address = found["status"], found.get("ip") or ""
    access = None
    if status == "active" and address:
        access = ssh_access(cluster, address, 22, _purpose(_tag(found, _REQUEST), _tag(found, _NUMBER)))
    ended = status not in ("booting", "active")
    return Instance(
        found["id"],
        "exited" if ended else "provisioning" if access is None else "running",
        access,
        address=found.get("private_ip") or address,
        public_address=address,
        hourly_price=_price(found),
        detail=f"Lambda reports it as {status}" if ended else "it has no public address yet" * (access is None),
    )
