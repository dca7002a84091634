"""The provider of Hyperstack."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from skyward.errors import NoCapacityError, ProvisioningError, QuotaError, SkywardError, SpecError
from skyward.providers import Check, Cluster, Instance, Leftover, Offer, PoolIdentity
from skyward.specs import Spec
from skyward_providers.cloud import (
    ApiError,
    SharedListing,
    cloud_config,
    cluster_keys,
    host_key_of,
    launch_each,
    network_ranges,
    run_checks,
    ssh_access,
)
from skyward_providers.hyperstack.api import BUSY, HyperstackApi, is_taken
from skyward_providers.hyperstack.catalogue import choose_image, offer_of
from skyward_providers.hyperstack.settings import Hyperstack

__all__ = ["HyperstackProvider"]

_POOL, _OWNER, _REQUEST = "skyward-pool", "skyward-owner", "skyward-request"
"""Tags of a machine, which are labels such as "skyward-pool=train-1"."""

_NAME = 50
"""Characters of the name of anything at Hyperstack."""

_STARTING = ("CREATING", "BUILD", "STARTING", "REBOOTING", "HARD_REBOOT", "RESTORING")
_GONE = ("DELETING", "DELETED")
_BILLED = ("STOPPING", "SHUTOFF", "HIBERNATING", "HIBERNATED")

_ADDRESS_SERVICE = "https://checkip.amazonaws.com"

LOOK_FOR = 15.0
"""Seconds for which a machine is looked for, after the answer to its creation was lost."""

DELETED_WITHIN = 240.0
"""Seconds for which a machine that is being created cannot be deleted."""

RELEASED_WITHIN = 90.0
"""Seconds that an environment may stay in use after its last machine was deleted."""

LOOK_EVERY = 2.0

_AT_ONCE = 8
"""Machines that are deleted at a time: Hyperstack allows 500 requests a minute from one address."""

_SSH = 22

_NOTE = (
    "A machine of Hyperstack is billed until this computer deletes it, even if it is shut off: if its client is "
    "killed, run `%sky reap`."
)


class HyperstackProvider:
    """Creates and deletes machines."""

    def __init__(self, settings: Hyperstack) -> None:
        self._settings = settings
        self._api = HyperstackApi(settings)
        self._machines = SharedListing(self._api.machines)

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the flavors in stock, for each region."""
        prices = await self._api.prices()
        for flavor in await self._api.flavors(self._settings.region):
            if (offer := offer_of(flavor, prices)) is not None:
                yield offer

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Create the environment of the pool in the offer's region, with its SSH key, unless they exist."""
        region = offer.region
        name, key = _names(pool, region)
        image = await self._image(offer)
        sources = await network_ranges(self._settings.caller_cidr, _ADDRESS_SERVICE)
        public_key = pool.ssh_key()
        environment = next((each for each in await self._api.environments(name) if each["name"] == name), None)
        existed = environment is not None
        if environment is None:
            environment = await self._api.add_environment(name, region)
        try:
            if not any(each["name"] == key for each in await self._api.keys(name)):
                await self._api.add_key(key, name, public_key)
            private = (await self._api.quota(environment["id"])).get("cidr")
        except SkywardError as error:
            if not existed:
                await self._undo(name, environment["id"], error)
            raise
        specific = {
            "environment": name,
            "environment_id": environment["id"],
            "key": key,
            "image": image,
            "sources": list(sources),
            "private": private or "",
            **cluster_keys(pool),
        }
        return Cluster(pool.id, pool.id, spec, offer, specific, (_NOTE,))

    async def _image(self, offer: Offer) -> str:
        flavor = await self._flavor(offer)
        if flavor is None:
            raise SpecError(f"Hyperstack has no flavor {offer.instance_type.name!r} in {offer.region} any more.")
        names = await self._api.images(offer.region)
        return choose_image(names, flavor, offer.region, self._settings.image)

    async def _flavor(self, offer: Offer) -> dict[str, Any] | None:
        found = await self._api.flavors(offer.region)
        wanted = offer.instance_type.name, offer.region
        return next((each for each in found if (each["name"], each["region_name"]) == wanted), None)

    async def _undo(self, name: str, id: int, error: SkywardError) -> None:
        """Remove the environment that a failed `prepare` has made. If that fails, raise an error not of Skyward's."""
        try:
            await self._remove_environment(name, id)
        except SkywardError as second:
            raise RuntimeError(f"{error} Then environment {name!r} could not be removed: {second}") from error

    async def _remove_environment(self, name: str, id: int) -> None:
        """Remove an environment of ours with the SSH keys and volumes in it, but no machine."""
        held = f"Environment {name!r} at Hyperstack is still in use, and the next sweep removes it"
        await _until_done(partial(self._machine_in, name), RELEASED_WITHIN, held)
        for key in await self._api.keys(name):
            await self._api.delete_key(key["id"])
        for volume in await self._api.volumes(name):
            await _until_done(partial(self._api.delete_volume, volume["id"]), RELEASED_WITHIN, held)
        await _until_done(partial(self._api.delete_environment, id), RELEASED_WITHIN, held)

    async def _machine_in(self, environment: str) -> str:
        """Return what is said about a machine in an environment, which is being deleted; "" if there is none.

        Raises:
            ProvisioningError: it is not being deleted.
        """
        machines = [each for each in await self._listed() if _environment_of(each) == environment]
        for machine in machines:
            if machine["status"] not in _GONE:
                raise ProvisioningError(
                    f"Environment {environment!r} at Hyperstack still has machine {machine['id']}; terminate it first."
                )
        return f"machine {machines[0]['id']} is being deleted" if machines else ""

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Create machines, some at a time. A repeated request adds only those that are missing."""
        request = cluster.tags[_REQUEST]
        existing = {
            each["name"]: each
            for each in await self._listed()
            if _label(each, _REQUEST) == request and each["status"] not in _GONE
        }
        made = [_instance(cluster, each) for each in existing.values()][:count]
        names = [name for number in range(count) if (name := _machine_name(cluster, number)) not in existing]
        names = names[: count - len(made)]

        async def create(position: int) -> Instance:
            return await self._create(cluster, names[position])

        async def undo(ids: Sequence[str]) -> None:
            await self.terminate(cluster, ids)

        try:
            made += await launch_each(len(names), create, undo)
        except SkywardError:
            if not made:
                raise
        finally:
            self._machines.forget()
        return cluster, made

    async def _listed(self) -> list[dict[str, Any]]:
        """Return the machines of the account, as they are now."""
        self._machines.forget()
        return await self._machines.get()

    async def _create(self, cluster: Cluster, name: str) -> Instance:
        """Create a machine. If the answer is lost, or the name is taken, look for the machine by its name."""
        try:
            return _instance(cluster, await self._api.create(self._request(cluster, name)))
        except ApiError as error:
            if not is_taken(error):
                raise await self._precise(cluster, error) from error
            if (found := await self._look_for(cluster, name)) is None:
                raise RuntimeError(f"Machine {name!r} exists at Hyperstack, but is not listed.") from error
        except SkywardError:
            raise
        except Exception:
            if (found := await self._look_for(cluster, name)) is None:
                raise
        return found

    async def _look_for(self, cluster: Cluster, name: str) -> Instance | None:
        """Return the machine of that name, which may be listed only later; None if it is not."""
        until = time.monotonic() + LOOK_FOR
        while True:
            with contextlib.suppress(SkywardError):  # the outcome of the creation stays unknown
                for each in await self._listed():
                    if each["name"] == name and _label(each, _POOL) == cluster.pool:
                        return _instance(cluster, each)
            if time.monotonic() > until:
                return None
            await asyncio.sleep(LOOK_EVERY)

    async def _precise(self, cluster: Cluster, refusal: ApiError) -> SkywardError:
        """Return why a machine was refused: no stock, or no quota, which the answer itself does not tell."""
        if refusal.status not in BUSY:
            return refusal
        offer, specific = cluster.offer, cluster.specific
        with contextlib.suppress(SkywardError):
            flavor = await self._flavor(offer)
            if flavor is not None and not flavor.get("stock_available"):
                return NoCapacityError(f"Hyperstack has no {offer.instance_type.name} in {offer.region} now.")
            quota = await self._api.quota(specific["environment_id"])
            if quota.get("available_vms") == 0:
                return QuotaError(
                    f"An environment at Hyperstack may have {quota.get('max_vms')} machines, and the pool's has them."
                )
        return refusal

    def _request(self, cluster: Cluster, name: str) -> dict[str, Any]:
        """Return the request for one machine."""
        specific = cluster.specific
        host_key = host_key_of(cluster, name)
        rules = [_rule("tcp", source, _SSH, _SSH) for source in specific["sources"]]
        if specific["private"]:
            rules += [_rule(protocol, specific["private"], 1, 65_535) for protocol in ("tcp", "udp")]
        return {
            "name": name,
            "environment_name": specific["environment"],
            "flavor_name": cluster.offer.instance_type.name,
            "image_name": specific["image"],
            "key_name": specific["key"],
            "count": 1,
            "assign_floating_ip": True,
            "enable_port_randomization": False,
            "create_bootable_volume": False,
            "labels": [f"{key}={value}" for key, value in cluster.tags.items()],
            "security_rules": rules,
            "user_data": cloud_config(specific["public_key"], host_key, ""),
        }

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a machine."""
        found = next((each for each in await self._machines.get() if str(each["id"]) == instance_id), None)
        return cluster, None if found is None or found["status"] in _GONE else _instance(cluster, found)

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the machines with the pool's label."""
        mine = [each for each in await self._listed() if _label(each, _POOL) == cluster.pool]
        return [_instance(cluster, each) for each in mine if each["status"] not in _GONE]

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Delete machines, with their public addresses. One that is being created can be deleted only afterwards."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def delete(id: str) -> None:
            async with slots:
                await self._delete(id)

        try:
            for error in await asyncio.gather(*map(delete, instance_ids), return_exceptions=True):
                if error is not None:
                    raise error
        finally:
            self._machines.forget()

    async def _delete(self, id: str) -> None:
        held = f"Hyperstack does not delete machine {id}"
        await _until_done(partial(self._api.delete, id), DELETED_WITHIN, held)

    async def teardown(self, cluster: Cluster) -> None:
        """Remove the pool's environment, with its SSH key, and volumes in it."""
        name = cluster.specific["environment"]
        for each in await self._api.environments(name):
            if each["name"] == name:
                await self._remove_environment(name, each["id"])

    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return the machines and environments of this owner."""
        machines = await self._listed()
        found = [
            Leftover("machine", str(each["id"]), _label(each, _POOL), (each.get("environment") or {}).get("region", ""))
            for each in machines
            if _label(each, _OWNER) == owner and each["status"] not in _GONE
        ]
        for each in await self._api.environments(_prefix(owner)):
            keys = [key["name"] for key in await self._api.keys(each["name"])]
            pool = _pool_of(each["name"], keys, _prefix(owner))
            if pool is not None:
                specific = {"name": each["name"]}
                found.append(Leftover("environment", str(each["id"]), pool, each["region"], specific=specific))
        return found

    async def remove(self, leftover: Leftover) -> None:
        """Delete a machine or an environment."""
        if leftover.kind == "environment":
            await self._remove_environment(leftover.specific["name"], int(leftover.id))
            return
        try:
            await self._delete(leftover.id)
        finally:
            self._machines.forget()

    async def check(self) -> Sequence[Check]:
        """Check that the key may list machines, environments and offers."""

        async def offers() -> None:
            async for _ in self.offers():
                pass

        async def environments() -> None:
            await self._api.environments(_prefix(""))

        return await run_checks({
            "may list machines": self._api.machines, "may list environments": environments, "may list offers": offers,
        })  # fmt: skip  # a table


async def _until_done(delete: Callable[[], Awaitable[str]], within: float, held: str) -> None:
    """Repeat `delete` until it returns no reason why not.

    Raises:
        ProvisioningError: it did not within that many seconds. `held` begins the message.
    """
    until = time.monotonic() + within
    while reason := (await delete()).rstrip("."):
        if time.monotonic() > until:
            raise ProvisioningError(f"{held} ({reason}).")
        await asyncio.sleep(LOOK_EVERY)


def _rule(protocol: str, source: str, first: int, last: int) -> dict[str, Any]:
    return {
        "direction": "ingress",
        "ethertype": "IPv4",
        "protocol": protocol,
        "remote_ip_prefix": source,
        "port_range_min": first,
        "port_range_max": last,
    }


def _prefix(owner: str) -> str:
    """Return how the names of environments of an owner begin. They have no labels."""
    return f"sky-{owner[:8]}-"


def _names(pool: PoolIdentity, region: str) -> tuple[str, str]:
    """Return the names of the pool's environment and SSH key in a region.

    Both begin with a sign of the region. The first has the end of the pool's id, which is unique, and the second its
    beginning, so that both together have all of it.
    """
    sign = hashlib.blake2b(region.encode(), digest_size=2).hexdigest()
    start = f"{_prefix(pool.owner)}{sign}-"
    return f"{start}{pool.id[len(start) - _NAME :]}", f"{sign}-{pool.id}"[:_NAME]


def _pool_of(environment: str, keys: Sequence[str], prefix: str) -> str | None:
    """Return the id of the pool of an environment; None if it is cut, and there is no key yet: it is being prepared."""
    sign, _, end = environment.removeprefix(prefix).partition("-")
    beginnings = [key.removeprefix(f"{sign}-") for key in keys if key.startswith(f"{sign}-")]
    ids = [beginning + end[len(end) - more :] for beginning in beginnings for more in range(len(end))]
    whole = end if len(environment) < _NAME else None
    return next((id for id in ids if id.endswith(end)), whole)


def _machine_name(cluster: Cluster, number: int) -> str:
    """Return the name of a machine: always the same for a request, so that Hyperstack refuses a second one."""
    words = f"{cluster.pool}/{cluster.tags[_REQUEST]}/{number}"
    return f"{cluster.pool[:29]}-{hashlib.blake2b(words.encode(), digest_size=10).hexdigest()}"


def _label(machine: Mapping[str, Any], key: str) -> str:
    start = f"{key}="
    return next((each.removeprefix(start) for each in machine.get("labels") or () if each.startswith(start)), "")


def _environment_of(machine: Mapping[str, Any]) -> str:
    return str((machine.get("environment") or {}).get("name") or "")


def _instance(cluster: Cluster, found: Mapping[str, Any]) -> Instance:
    """Return a listed machine as one: it runs once it is active and its public address is attached."""
    status, address = found["status"], found.get("floating_ip") or ""
    attached = address and found.get("floating_ip_status") in (None, "ATTACHED")
    access, detail = None, ""
    if status == "ACTIVE" and attached:
        port = _ssh_port(found)
        if port is None:
            detail = "Hyperstack gave it random ports, and does not tell which one is for SSH"
        else:
            access = ssh_access(cluster, address, port, found["name"])
    elif status == "ACTIVE" or status in _STARTING:
        detail = f"it is {status}, without a public address yet"
    else:
        detail = f"Hyperstack reports it as {status}" + ", which is billed" * (status in _BILLED)
    waits = status in _STARTING or (status == "ACTIVE" and not attached)
    return Instance(
        str(found["id"]),
        "running" if access is not None else "provisioning" if waits else "exited",
        access,
        address=found.get("fixed_ip") or address,
        public_address=address,
        hourly_price=cluster.offer.hourly_price("on-demand") or 0.0,
        detail=detail,
    )


def _ssh_port(machine: Mapping[str, Any]) -> int | None:
    """Return the port of a machine's sshd: the only single port of its rules if ports are random; None if unknown."""
    if not machine.get("port_randomization"):
        return _SSH
    ports = {
        rule["port_range_min"]
        for rule in machine.get("security_rules") or ()
        if rule.get("protocol") == "tcp" and rule.get("port_range_min") == rule.get("port_range_max")
    }
    return int(ports.pop()) if len(ports) == 1 and None not in ports else None
