"""The provider of Google Cloud."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from skyward.errors import NoCapacityError, ProvisioningError, QuotaError, SkywardError, SpecError
from skyward.providers import Check, Cluster, Instance, Leftover, Offer, PoolIdentity, ProviderImage
from skyward.specs import Spec
from skyward.values.validation import Secret
from skyward_providers.cloud import ApiError, SharedListing, launch_each, network_ranges, run_checks
from skyward_providers.gcp.api import ComputeApi, UnfinishedError
from skyward_providers.gcp.built_images import check_project, find_images, image_exists, make_image
from skyward_providers.gcp.catalogue import region_offers
from skyward_providers.gcp.failures import (
    is_gone,
    is_taken,
    never_possible,
    of_operation,
    reason_of,
    zones_with_capacity,
)
from skyward_providers.gcp.firewall import ensure_rules
from skyward_providers.gcp.machines import (
    instance,
    instance_id,
    machine_request,
    ordinary_image,
    place,
    spot_properties,
)
from skyward_providers.gcp.naming import described, label, machine_name, rule_names
from skyward_providers.gcp.permissions import PERMISSIONS
from skyward_providers.gcp.prices import PriceList
from skyward_providers.gcp.settings import GCP

__all__ = ["GcpProvider"]

_logger = logging.getLogger(__name__)

_WHO_AM_I = "https://checkip.amazonaws.com"
"""Service that answers with the caller's IPv4 address."""

_LAUNCHED_WITHIN = 180.0
_DELETED_WITHIN = 180.0
_RULES_WITHIN = 60.0
_HISTORY_WITHIN = 10.0
"""Timeouts in seconds, of operations and of the history of spot prices. A machine that cannot be launched takes up to
100 s until it says so."""

_AT_ONCE = 64
_LISTS_AT_ONCE = 8

_CONFLICT = 409
_NEVER = (400, 404, 412)


class GcpProvider:
    """Launches and deletes virtual machines. It belongs to one event loop."""

    def __init__(self, settings: GCP) -> None:
        self._settings = settings
        self._api = ComputeApi(settings)
        self._listings: dict[str, SharedListing[list[dict[str, Any]]]] = {}
        self._rules_asked: dict[str, list[dict[str, Any]]] = {}

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the machine types of the regions, with the accelerators that N1 machines can have."""
        regions: dict[str, list[str]] = {}
        for zone in await self._api.zones():
            name, region = zone["name"], zone["region"].rpartition("/")[2]
            if zone.get("status") == "UP" and self._uses(region, name):
                regions.setdefault(region, []).append(name)
        slots = asyncio.Semaphore(_LISTS_AT_ONCE)

        async def types(zone: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
            async with slots:
                return await self._api.machine_types(zone), await self._api.accelerator_types(zone)

        zones = [zone for each in regions.values() for zone in each]
        prices, *listed = await asyncio.gather(self._prices(), *(types(zone) for zone in zones))
        found = dict(zip(zones, listed, strict=True))
        for region, its_zones in regions.items():
            machines = {zone: found[zone][0] for zone in its_zones}
            accelerators = {zone: found[zone][1] for zone in its_zones}
            for offer in region_offers(region, machines, accelerators, prices):
                yield offer

    def _uses(self, region: str, zone: str) -> bool:
        settings = self._settings
        return (not settings.regions or region in settings.regions) and (not settings.zones or zone in settings.zones)

    async def _prices(self) -> PriceList:
        try:
            return PriceList(await self._api.skus())
        except SkywardError as error:
            _logger.warning("the prices of Google Cloud are unknown: %s", error)
            return PriceList(())

    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Write the key of the pool, and ask for its firewall rules. For spot machines, compare the zones."""
        callers = await network_ranges(self._settings.caller_cidr, _WHO_AM_I)
        zones: list[str] = list(offer.specific["zones"])
        spot_prices: dict[str, float] = {}
        if spec.allocation == "spot":
            zones, spot_prices = await self._compared(zones, offer)
        specific = {
            "public_key": pool.ssh_key(),
            "key_file": str(pool.key_file),
            "host_key_seed": Secret(pool.host_key_seed),
            "zones": zones,
            "spot_prices": spot_prices,
        }
        self._rules_asked[pool.id] = await ensure_rules(self._api, pool, self._settings.network, callers)
        return Cluster(pool.id, pool.id, spec, offer, specific, _notes(self._settings))

    async def _compared(self, zones: Sequence[str], offer: Offer) -> tuple[list[str], dict[str, float]]:
        """Return the zones, those first where few spot machines are taken back, and their spot prices where known."""

        async def history(zone: str) -> tuple[float, float | None]:
            try:
                async with asyncio.timeout(_HISTORY_WITHIN):
                    found = await self._api.spot_history(zone, spot_properties(offer.specific, zone))
            except (SkywardError, TimeoutError):  # a preference only: the permission may be missing
                return 1.0, None
            rate, latest = _latest(found.get("preemptionHistory")), _latest(found.get("priceHistory"))
            money = latest.get("listPrice") or {}
            price = int(money.get("units") or 0) + (money.get("nanos") or 0) / 1e9
            is_known = price and money.get("currencyCode", "USD") == "USD"
            return (rate.get("preemptionRate", 0.0) if rate else 1.0), price if is_known else None

        found = dict(zip(zones, await asyncio.gather(*map(history, zones)), strict=True))
        prices = {zone: price for zone, (_, price) in found.items() if price is not None}
        return sorted(zones, key=lambda zone: found[zone][0]), prices

    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Launch machines, zone by zone until there are enough. A repeated request adds only those that are missing.

        Google accepts a request before it knows whether it has such a machine: wait for that, not for the boot.
        """
        tag = label(cluster.tags["skyward-request"])
        listed = await self._api.machines(f'labels.skyward-request = "{tag}"')
        made = {each["name"]: instance(cluster, each) for each in listed if described(each)[1] == cluster.pool}
        names = [machine_name(cluster.pool, cluster.tags["skyward-request"], number) for number in range(count)]
        if any(name not in made for name in names):
            await self._check_quota(cluster)
        try:
            cluster = await self._launch(cluster, names, made)
            await self._check_rules(cluster)
        except asyncio.CancelledError:
            await self.terminate(cluster, [each.id for each in made.values()])
            raise
        finally:
            self._forget(cluster.pool)
        return cluster, [made[name] for name in names if name in made]

    async def _launch(self, cluster: Cluster, names: Sequence[str], made: dict[str, Instance]) -> Cluster:
        """Add the machines called `names` to `made`, as far as there are any; return the cluster.

        Raises:
            SkywardError: there is none; the error of the last zone.
        """
        zones: list[str] = list(cluster.specific["zones"])
        tried: list[str] = []
        error: SkywardError | None = None
        while zones and (missing := [name for name in names if name not in made]):
            zone = zones.pop(0)
            tried.append(zone)
            better: list[str] = []

            async def create(
                number: int, zone: str = zone, missing: Sequence[str] = missing, better: list[str] = better
            ) -> Instance:
                launched = await self._create(cluster, zone, missing[number], better)
                made[missing[number]] = launched
                return launched

            async def undo(ids: Sequence[str]) -> None:
                await self.terminate(cluster, ids)

            try:
                await launch_each(len(missing), create, undo, at_once=_AT_ONCE)
            except (NoCapacityError, SpecError) as refused:  # other zones may have it, or have the type at all
                error = refused
            except SkywardError as refused:
                error = refused
                break
            zones.sort(key=lambda each: each not in better)
        if error is not None and not made:
            raise error
        best = [zone for zone in tried if any(place(each.id)[0] == zone for each in made.values())]
        order = best + [zone for zone in cluster.specific["zones"] if zone not in best]
        return replace(cluster, specific={**cluster.specific, "zones": order})

    async def _create(self, cluster: Cluster, zone: str, name: str, better: list[str]) -> Instance:
        """Launch one machine. Add the zones to `better` that Google names as such where it has none.

        Raises:
            SkywardError: it was not launched. After any other error, it may have been.
        """
        request = machine_request(self._settings, cluster, zone, name)
        try:
            operation = await self._api.insert(zone, request, name)
        except ApiError as error:
            if error.status == _CONFLICT and is_taken(error.body):  # of a former try, whose answer was lost
                return _booting(cluster, zone, name)
            if error.status in _NEVER:
                raise never_possible(reason_of(error.status, error.body)) from error
            raise
        try:
            operation = await self._api.finished(operation, _LAUNCHED_WITHIN)
            if (refused := of_operation(operation)) is not None:
                await self._delete(instance_id(zone, name))  # it may appear for a moment, and vanish mostly
        except UnfinishedError:  # it may take longer, and is asked for until it runs
            return _booting(cluster, zone, name)
        except SkywardError as error:
            raise UnfinishedError(f"the launch of {name} was accepted, and then: {error}") from error
        if refused is None:
            return _booting(cluster, zone, name)
        better += zones_with_capacity(operation)
        raise refused

    async def _check_quota(self, cluster: Cluster) -> None:
        """Ask for the quota of GPUs: it takes Google half a minute to say that a machine exceeds it.

        Raises:
            QuotaError: not even one machine is within it.
        """
        gpus, region = cluster.offer.specific["gpus"], cluster.offer.region
        if not gpus:
            return
        quotas = await self._api.quotas(region)
        prefix = "PREEMPTIBLE_" if cluster.spec.allocation == "spot" else ""
        model = cluster.offer.specific["model"].replace("tesla-", "").replace("-", "_").upper()
        metric = f"{prefix}{model}_GPUS"
        if metric in quotas:
            limit, usage = quotas[metric]
            if limit - usage < gpus:
                raise QuotaError(
                    f"The project may have {limit:g} such GPUs in {region} at Google Cloud, and has {usage:g}: quota "
                    f"{metric}; ask for more at IAM & Admin, Quotas."
                )

    async def _check_rules(self, cluster: Cluster) -> None:
        """Wait for the firewall rules that `prepare` asked for.

        Raises:
            SkywardError: one was refused, so the machines were deleted. After any other error, they may exist.
        """
        operations = self._rules_asked.pop(cluster.pool, [])
        try:
            done = await asyncio.gather(*(self._api.finished(each, _RULES_WITHIN) for each in operations))
            refused = next(filter(None, map(of_operation, done)), None)
            if refused is not None:
                await self.terminate(cluster, [each.id for each in await self.find(cluster)])
        except SkywardError as error:
            raise UnfinishedError(f"the firewall rules were accepted, and then: {error}") from error
        if refused is not None:
            raise refused

    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a machine."""
        found = (instance(cluster, each) for each in await self._machines(cluster.pool).get())
        return cluster, next((each for each in found if each.id == instance_id), None)

    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the machines with the pool's label, also those that are stopped."""
        self._forget(cluster.pool)
        return [instance(cluster, each) for each in await self._machines(cluster.pool).get()]

    def _machines(self, pool: str) -> SharedListing[list[dict[str, Any]]]:
        """Return the machines of a pool, in one request for all who ask."""
        if pool not in self._listings:

            async def fetch() -> list[dict[str, Any]]:
                listed = await self._api.machines(f'labels.skyward-pool = "{label(pool)}"')
                return [each for each in listed if described(each)[1] == pool]

            self._listings[pool] = SharedListing(fetch, 1.0)
        return self._listings[pool]

    def _forget(self, pool: str) -> None:
        self._machines(pool).forget()

    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Delete machines, and wait until they are gone: until then they count, and a deletion may fail.

        Raises:
            ProvisioningError: a machine is not gone yet.
        """
        try:
            await _all(map(self._delete, instance_ids))
        finally:
            self._forget(cluster.pool)

    async def _delete(self, id: str) -> None:
        await self._gone(await self._api.delete(*place(id)), id)

    async def _gone(self, operation: Mapping[str, Any] | None, what: str) -> None:
        """Wait for a deletion.

        Raises:
            ProvisioningError: it failed, or is not done in time.
        """
        if operation is None:
            return
        try:
            done = await self._api.finished(operation, _DELETED_WITHIN)
        except UnfinishedError as error:
            raise ProvisioningError(f"{what} is not deleted yet: {error}; try again.") from error
        if (refused := of_operation(done)) is not None and not is_gone(done):
            raise ProvisioningError(f"{what} could not be deleted: {refused}") from refused

    async def teardown(self, cluster: Cluster) -> None:
        """Delete the firewall rules of the pool, also those that are still being made."""
        for operation in self._rules_asked.pop(cluster.pool, []):
            with contextlib.suppress(SkywardError, UnfinishedError):  # the deletion tells
                await self._api.finished(operation, _RULES_WITHIN)
        await _all(map(self._delete_rule, rule_names(cluster.pool, self._settings.network)))

    async def _delete_rule(self, name: str) -> None:
        await self._gone(await self._api.delete_rule(name), f"The firewall rule {name!r}")

    async def image_scope(self, spec: Spec, offer: Offer) -> str:
        """Return the project, the architecture and the ordinary image. Images are for all regions."""
        base = ordinary_image(self._settings, offer)
        return " ".join((await self._api.project(), offer.instance_type.architecture, base))

    async def make_image(self, cluster: Cluster, instance_id: str, name: str) -> ProviderImage:
        """Stop a machine, and make an image of its disk.

        Raises:
            SkywardError: it failed. After any error, there may be an image.
        """
        try:
            return await make_image(self._api, cluster, instance_id, name)
        finally:
            self._forget(cluster.pool)

    async def find_images(self, cluster: Cluster) -> Sequence[ProviderImage]:
        """Return the images with the pool's label."""
        return await find_images(self._api, cluster.pool)

    async def image_exists(self, image: ProviderImage) -> bool:
        """Return whether machines can be launched from an image."""
        return await image_exists(self._api, image)

    async def delete_image(self, image: ProviderImage) -> None:
        """Delete an image, and wait until it is gone.

        Raises:
            SkywardError: it may still exist.
        """
        await check_project(self._api, image)
        await self._delete_image(image.id)

    async def _delete_image(self, name: str) -> None:
        await self._gone(await self._api.delete_image(name), f"Image {name!r}")

    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return the machines of this owner in all zones, its images, and its firewall rules."""
        of_owner = f'labels.skyward-owner = "{label(owner)}"'
        machines, images, rules = await asyncio.gather(
            self._api.machines(of_owner), self._api.images(of_owner), self._api.rules('name eq "skyward-.*"')
        )
        found = [
            Leftover("machine", instance_id(zone, each["name"]), described(each)[1], zone.rpartition("-")[0])
            for each in machines
            if described(each)[0] == owner
            for zone in (each["zone"].rpartition("/")[2],)
        ]
        for kind, listed in (("image", images), ("firewall rule", rules)):
            found += [
                Leftover(kind, each["name"], described(each)[1]) for each in listed if described(each)[0] == owner
            ]
        return found

    async def remove(self, leftover: Leftover) -> None:
        """Delete a machine, an image or a firewall rule."""
        delete = {"machine": self._delete, "image": self._delete_image}.get(leftover.kind, self._delete_rule)
        await delete(leftover.id)

    async def check(self) -> Sequence[Check]:
        """Check that the credentials have the permissions, and that the APIs are enabled."""

        async def permissions() -> str:
            missing = sorted(set(PERMISSIONS) - await self._api.granted(PERMISSIONS))
            return f"it lacks {', '.join(missing)}; grant the role that `sky.GCP().policy` has" if missing else ""

        return await run_checks(
            {
                "has the permissions of the role": permissions,
                "may list machines": self._api.zones,
                "may list prices": self._api.skus,
            }
        )


def _latest(records: Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any]:
    """Return the record of a history whose interval ended last; an empty one if there is none."""
    return max(records or ({},), key=lambda each: (each.get("interval") or {}).get("endTime") or "")


async def _all(deletions: Iterable[Awaitable[None]]) -> None:
    """Wait for all deletions, however many fail; raise the first error then."""
    errors = [each for each in await asyncio.gather(*deletions, return_exceptions=True) if each is not None]
    if errors:
        raise errors[0]


def _booting(cluster: Cluster, zone: str, name: str) -> Instance:
    """Return a machine that was launched, and is looked at later."""
    spot = cluster.spec.allocation == "spot"
    price = cluster.specific["spot_prices"].get(zone) if spot else None
    return Instance(
        instance_id(zone, name),
        "provisioning",
        spot=spot,
        hourly_price=price or cluster.offer.hourly_price("spot" if spot else "on-demand") or 0.0,
        notices="gcp" if spot else "",
    )


def _notes(settings: GCP) -> tuple[str, ...]:
    """Return what a user has to know about the end of a machine that nobody uses any more."""
    if settings.max_run_duration is not None:
        return ()
    return (
        "Machines of Google Cloud that lose their client shut down by themselves, but their disks are paid until "
        "`skyward reap`; `sky.GCP(max_run_duration=SECONDS)` makes Google delete machine and disk after that time.",
    )
