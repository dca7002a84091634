"""The provider of Verda."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Literal

import httpx

from skyward.errors import CredentialsError, ProvisioningError, SkywardError
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
from skyward.values.validation import Secret
from skyward_providers.cloud import ApiError, SharedListing, answers_as, launch_each, mark_of, run_checks, sshd_setup
from skyward_providers.verda.api import VerdaApi
from skyward_providers.verda.machine import (
    choose_image,
    description_of,
    hostname_of,
    pool_named,
    shared_name,
    status_of,
    tags_of,
    volume_name,
)
from skyward_providers.verda.settings import Verda

__all__ = ["VerdaProvider"]

_SHARED: Final = {"sshkeys": "SSH key", "scripts": "startup script"}
"""Kinds of objects that the machines of a pool share, and their names in messages."""

_ARM: Final = ("GH200", "GB200", "GB300")

_NOTE: Final = (
    "Machines of Verda cannot end their own billing: if this computer is lost, run `skyward reap` with the same "
    "journal, or delete them in Verda's console."
)


class VerdaProvider:
    """Rents and deletes machines.

    Attributes:
        settle: seconds in which a machine whose request was not answered must be listed.
        release: seconds in which the disk of a deleted machine must be detached.
        poll: seconds between questions meanwhile.
        port: port of the machines' SSH server.
    """

    settle = 10.0
    release = 30.0
    poll = 1.0
    port = 22

    def __init__(self, settings: Verda) -> None:
        self._settings = settings
        self._api = VerdaApi(settings)
        self._instances = SharedListing(self._api.instances)
        self._ready: set[str] = set()

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the types in stock, for each location, with their prices in the markets that have them."""
        types, on_demand, spot = await asyncio.gather(
            self._api.types(), self._api.stock(spot=False), self._api.stock(spot=True)
        )
        for place in sorted(on_demand.keys() | spot.keys()):
            if self._settings.region in (None, place):
                for kind in types:
                    name = kind["instance_type"]
                    prices = (
                        _price(kind.get("spot_price")) if name in spot.get(place, ()) else None,
                        _price(kind.get("price_per_hour")) if name in on_demand.get(place, ()) else None,
                    )
                    if any(prices):
                        yield Offer(
                            f"{place}/{name}", _kind(kind), *prices, region=place,
                            specific={"type": name, "location": place},
                        )  # fmt: skip  # one argument a line would hide the offer

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Create the SSH key and the startup script of the pool, unless they exist."""
        public, seed, type = pool.ssh_key(), pool.host_key_seed, offer.specific["type"]
        image = self._settings.image
        if image is None:
            with_gpu = offer.instance_type.accelerator is not None
            image = choose_image(
                await self._api.images(type), self._settings.cuda if with_gpu else None, with_gpu=with_gpu
            )
        name = shared_name(pool.id, pool.owner)
        script = f"#!/bin/sh\n{sshd_setup(public, key_pair(seed))}"
        key, is_new = await self._ensure("sshkeys", {"name": name, "key": public})
        try:
            script_id, _ = await self._ensure("scripts", {"name": name, "script": script})
        except SkywardError as error:
            if is_new:
                await self._undo(key, error)
            raise
        specific = {
            "owner": pool.owner,
            "image": image,
            "key_file": str(pool.key_file),
            "host_key_seed": Secret(seed),
            "key": key,
            "script": script_id,
        }
        return Cluster(pool.id, pool.id, spec, offer, specific, (_NOTE,))

    async def _ensure(self, kind: str, words: Mapping[str, str]) -> tuple[str, bool]:
        """Return the id of the object of that name, and True if it was created. Its content never changes."""
        existing = {each["name"]: each["id"] for each in await self._api.named(kind)}
        if (found := existing.get(words["name"])) is not None:
            return str(found), False
        return await self._api.add(kind, words), True

    async def _undo(self, key: str, error: SkywardError) -> None:
        """Delete the SSH key that a failed `prepare` has added. If that fails, raise an error that is not Skyward's."""
        try:
            await self._api.remove("sshkeys", key)
        except SkywardError as second:
            raise RuntimeError(f"{error} Then SSH key {key} could not be deleted: {second}") from error

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Rent machines, one by one. A repeated request adds only those that are missing."""
        self._instances.forget()
        existing = {each.get("hostname") or "": each for each in await self._instances.get()}
        names = [hostname_of(cluster.tags, number) for number in range(count)]
        made = [await self._instance(cluster, existing[name], probe=False) for name in names if name in existing]
        missing = [name for name in names if name not in existing]

        async def create(number: int) -> Instance:
            return await self._rent(cluster, missing[number])

        async def undo(instances: Sequence[str]) -> None:
            await self.terminate(cluster, instances)

        try:
            made += await launch_each(len(missing), create, undo)
        finally:
            self._instances.forget()
        return cluster, made

    async def _rent(self, cluster: Cluster, hostname: str) -> Instance:
        """Rent a machine. If the answer is lost, look for the machine before anything else."""
        spec, offer, specific = cluster.spec, cluster.offer, cluster.specific
        is_spot = spec.allocation == "spot"
        disk: dict[str, Any] = {
            "name": volume_name(cluster.pool, specific["owner"], hostname),
            "size": math.ceil(spec.disk_gb or self._settings.disk_gb),
        }
        if is_spot:
            disk["on_spot_discontinue"] = "delete_permanently"  # else it stays, and is billed
        machine = {
            "instance_type": offer.specific["type"],
            "image": specific["image"],
            "hostname": hostname,
            "description": description_of(cluster.tags),
            "ssh_key_ids": [specific["key"]],
            "startup_script_id": specific["script"],
            "location_code": offer.specific["location"],
            "os_volume": disk,
            "is_spot": is_spot,
        }
        try:
            id = await self._api.create(machine)
        except httpx.HTTPError as lost:
            try:
                found = await self._listed(hostname)
            except SkywardError:  # it would say that nothing was rented
                raise lost from None
            if found is None:
                raise
            return await self._instance(cluster, found, probe=False)
        price = offer.hourly_price("spot" if is_spot else "on-demand") or 0.0
        return Instance(id, "provisioning", spot=is_spot, hourly_price=price, detail="Verda has just accepted it")

    async def _listed(self, hostname: str) -> Mapping[str, Any] | None:
        """Return the machine of that name, once it is listed; None if it is not in time."""
        until = time.monotonic() + self.settle
        while True:
            found = [each for each in await self._api.instances() if each.get("hostname") == hostname]
            if found or time.monotonic() > until:
                return found[0] if found else None
            await asyncio.sleep(self.poll)

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a machine."""
        found = next((each for each in await self._instances.get() if each["id"] == instance_id), None)
        return cluster, None if found is None else await self._instance(cluster, found)

    async def _instance(self, cluster: Cluster, machine: Mapping[str, Any], *, probe: bool = True) -> Instance:
        """Return a machine of Verda as ours: it runs once its startup script has given its SSH server our keys."""
        status, id, address = status_of(machine), machine["id"], machine.get("ip") or ""
        specific, access = cluster.specific, None
        detail = f"Verda reports that it is {machine['status']}"
        if status == "running":
            host_key = key_pair(specific["host_key_seed"]).public
            ready = id in self._ready
            if address and not ready and probe:
                ready = await answers_as(address, self.port, mark_of(host_key))
            if ready and address:
                self._ready.add(id)
                files = (specific["key_file"],)
                access = SSHAccess(address, self.port, "root", client_keys=files, host_key=host_key, config="none")
            detail = (
                "" if access else "its startup script has not set up SSH yet" if address else "it has no address yet"
            )
        return Instance(
            id,
            "exited" if status == "exited" else "provisioning" if access is None else "running",
            access,
            address=address,
            public_address=address,
            spot=bool(machine.get("is_spot")),
            hourly_price=float(machine.get("price_per_hour") or 0.0),
            detail=detail,
        )

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the machines with the pool's tag."""
        self._instances.forget()
        found = [each for each in await self._instances.get() if tags_of(each).get("skyward-pool") == cluster.pool]
        return await asyncio.gather(*(self._instance(cluster, each) for each in found))

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Delete machines, with their disks."""
        self._ready.difference_update(instance_ids)
        try:
            for id in instance_ids:
                await self._delete(id)
        finally:
            self._instances.forget()

    async def _delete(self, id: str) -> None:
        """Delete a machine with its disk. A disk that is not known yet is deleted by `teardown`."""
        machine = await self._api.instance(id)
        disk = None if machine is None else machine.get("os_volume_id")
        await self._api.delete(id, [] if disk is None else [disk])

    async def teardown(self, cluster: Cluster) -> None:
        """Delete the pool's disks that are left, its startup script and its SSH key."""
        owner = cluster.specific["owner"]
        for volume in await self._api.volumes():
            if pool_named(volume.get("name") or "", owner) == cluster.pool:
                await self._delete_volume(volume["id"])
        for kind in _SHARED:
            for each in await self._api.named(kind):
                if each["name"] == shared_name(cluster.pool, owner):
                    await self._api.remove(kind, each["id"])

    async def _delete_volume(self, id: str) -> None:
        """Delete a disk, once it is detached from its machine, which is being deleted."""
        until = time.monotonic() + self.release
        while True:
            try:
                await self._api.delete_volume(id)
                return
            except (ApiError, CredentialsError) as error:  # "forbidden_action" while it is attached
                if time.monotonic() > until:
                    raise ProvisioningError(f"Disk {id} at Verda is still in use, and could not be deleted.") from error
            await asyncio.sleep(self.poll)

    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return all machines, disks, startup scripts and SSH keys of this owner, in all locations."""
        found, disks = [], set()
        for each in await self._api.instances():
            tags = tags_of(each)
            if tags.get("skyward-owner") == owner:
                disks.add(each.get("os_volume_id"))
                price = each.get("price_per_hour")
                found.append(Leftover("machine", each["id"], tags["skyward-pool"], each.get("location") or "", price))
        for each in await self._api.volumes():
            pool = pool_named(each.get("name") or "", owner)
            if pool is not None and each["id"] not in disks:  # a machine's disk goes with it
                price = each.get("base_hourly_cost")
                found.append(Leftover("disk", each["id"], pool, each.get("location") or "", price))
        for kind, name in _SHARED.items():
            found += [
                Leftover(name, each["id"], pool, specific={"kind": kind})
                for each in await self._api.named(kind)
                if (pool := pool_named(each["name"], owner)) is not None
            ]
        return found

    async def remove(self, leftover: Leftover) -> None:
        """Delete a machine with its disk, a disk, a startup script or an SSH key."""
        if leftover.kind == "machine":
            await self._delete(leftover.id)
            self._instances.forget()
        elif leftover.kind == "disk":
            await self._delete_volume(leftover.id)
        else:
            await self._api.remove(leftover.specific["kind"], leftover.id)

    async def check(self) -> Sequence[Check]:
        """Check that the credentials may list machines and prices, and that the account has credit."""

        async def funds() -> str:
            return "" if await self._api.balance() > 0 else "Verda rents nothing without credit; add some."

        return await run_checks({
            "may list machines": self._api.instances, "may list offers": self._api.types, "has credit": funds,
        })  # fmt: skip  # a table


def _price(text: Any) -> float | None:
    """Return a price, which is text, in USD per hour; None for a market in which the type is not sold."""
    try:
        price = float(text)
    except (TypeError, ValueError):
        return None
    return price if price > 0 else None


def _kind(kind: Mapping[str, Any]) -> InstanceType:
    """Return a type of machine."""
    model, gpus = str(kind["model"]), int(kind["gpu"].get("number_of_gpus") or 0)
    architecture: Literal["x86_64", "arm64"] = "arm64" if any(each in model for each in _ARM) else "x86_64"
    memory = float(kind["gpu_memory"].get("size_in_gigabytes") or 0)
    return InstanceType(
        kind["instance_type"],
        vcpus=float(kind["cpu"]["number_of_cores"]),
        memory_gb=float(kind["memory"]["size_in_gigabytes"]),
        accelerator=model if gpus else None,
        accelerator_count=gpus,
        architecture=architecture,
        accelerator_memory_gb=memory / gpus if gpus and memory else None,
    )
