"""The provider behind `sky.AWS()`."""

import asyncio
import dataclasses
import logging
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from skyward.errors import NoCapacityError, ProvisioningError, SkywardError
from skyward.providers import (
    Check,
    Cluster,
    Instance,
    Leftover,
    Market,
    Offer,
    PoolIdentity,
    ProviderImage,
    key_pair,
)
from skyward.specs import Spec
from skyward.values.validation import Secret
from skyward_providers.aws.built_images import delete_image, find_images, image_exists, launched_from, make_image
from skyward_providers.aws.checks import check_account
from skyward_providers.aws.fleet import (
    FleetRequest,
    Launched,
    create_template,
    delete_template,
    launch,
    template_name,
    user_data,
)
from skyward_providers.aws.images import MachineImage, find_image, ordinary_image
from skyward_providers.aws.leftovers import find_leftovers, remove_leftover
from skyward_providers.aws.machines import machine_of
from skyward_providers.aws.offers import DEARER, offers_in
from skyward_providers.aws.prices import spot_prices
from skyward_providers.aws.settings import AWS
from skyward_providers.aws_account.account import Account, told
from skyward_providers.aws_account.admission import Admission
from skyward_providers.aws_account.failures import CallError, explained
from skyward_providers.aws_account.launches import RecentLaunches
from skyward_providers.aws_account.network import create_group, delete_groups_of, find_subnets, group_name, tag_list
from skyward_providers.cloud import SharedListing, cloud_config, watchdog

__all__ = ["AWSProvider"]

_logger = logging.getLogger(__name__)

_DISK_GB = 100
"""Size of a root disk by default, GiB."""

_PRICES_FOR = 240.0
"""Seconds for which spot prices are current."""

_ID: Final = re.compile(r"\bi-[0-9a-f]+\b")

_EXISTING: Final = ("pending", "running", "stopping", "stopped")


class AWSProvider:
    """Machines of EC2."""

    def __init__(self, settings: AWS) -> None:
        self._settings = settings
        self._account = Account(settings, "sky.AWS")
        self._listings: dict[tuple[str, str], SharedListing[Mapping[str, Any]]] = {}
        self._admission = Admission(self._account, settings.caller_cidr, settings.caller_address_url)
        self._launches = RecentLaunches[Launched](lambda launched: launched.id)
        self._spot_prices: dict[tuple[str, ...], tuple[float, Mapping[str, Mapping[str, float]]]] = {}

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the types that each region sells.

        Raises:
            CredentialsError: the credentials are missing, or may not list types or prices.
            ProvisioningError: AWS could not be asked.
        """
        regions = self._settings.all_regions
        for found in await asyncio.gather(*(self._offers_in(region) for region in regions)):
            for offer in found:
                yield offer

    @told
    async def _offers_in(self, region: str) -> list[Offer]:
        return await offers_in(self._account, self._settings, region)

    @told
    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Create the security group of the pool and a launch template.

        Raises:
            SkywardError: it failed, and nothing is left.
        """
        account, settings, region = self._account, self._settings, offer.region
        subnets, image, ranges = await asyncio.gather(
            find_subnets(account, region, settings.subnet_id),
            find_image(account, settings, offer),
            self._admission.ranges(),
        )
        prices = {offer.instance_type.name: offer.hourly_price("on-demand"), **offer.specific.get("types", {})}
        places = await self._places(region, [*prices], subnets.zones)
        specific: dict[str, Any] = {
            "places": places,
            "prices": prices,
            "spot_prices": {},
            "vpc": subnets.vpc,
            "tags": dict(pool.tags),
            "user": settings.username or "root",
            "public_address": settings.public_address,
            "public_key": pool.ssh_key(),
            "key_file": str(pool.key_file),
            "host_key_seed": Secret(pool.host_key_seed),
        }
        cluster = Cluster(f"aws-{secrets.token_hex(4)}", pool.id, spec, offer, specific)
        try:
            group = settings.security_group_id or await create_group(
                account, region, subnets.vpc, group_name(pool.id), pool.tags
            )
            specific |= {"group": group, "own_group": settings.security_group_id is None}
            if specific["own_group"]:
                await self._admission.first(region, group, ranges)
            specific["template_data"] = self._template_data(cluster, image, group)
            specific["template"] = await create_template(
                account, region, template_name(pool.id, offer.id), specific["template_data"], pool.tags
            )
        except BaseException:
            await asyncio.shield(self._undo(cluster))
            raise
        return cluster

    async def _undo(self, cluster: Cluster) -> None:
        try:
            await self._remove_shared(cluster)
        except (CallError, SkywardError) as error:
            _logger.warning("%s: what was prepared could not be removed: %s", cluster.id, error)

    async def _places(self, region: str, types: Sequence[str], zones: Mapping[str, str]) -> list[list[str]]:
        """Return the types and subnets to choose among: those of the zones that have the type."""
        sold = await self._account.all(
            "ec2",
            "describe_instance_type_offerings",
            region,
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": [*types]}],
        )
        pairs = {(each["InstanceType"], each["Location"]) for each in sold}
        found = [[kind, subnet, zone] for kind in types for subnet, zone in zones.items() if (kind, zone) in pairs]
        if not any(kind == types[0] for kind, _, _ in found):
            raise NoCapacityError(
                f"AWS has {types[0]} in none of the zones of these subnets in {region}: "
                "name another subnet with `sky.AWS(subnet_id=...)`, or another region."
            )
        return found

    def _template_data(self, cluster: Cluster, image: MachineImage, group: str) -> dict[str, Any]:
        """Return the content of the launch template, without user data."""
        settings, spec = self._settings, cluster.spec
        disk = max(int(-(-(spec.disk_gb or _DISK_GB) // 1)), image.disk_gb)
        profile = (
            {"IamInstanceProfile": {"Arn": settings.instance_profile_arn}} if settings.instance_profile_arn else {}
        )
        return {
            "ImageId": image.id,
            "InstanceType": cluster.offer.instance_type.name,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {
                "HttpTokens": "required",
                "HttpEndpoint": "enabled",
                "HttpPutResponseHopLimit": 1,
                "InstanceMetadataTags": "enabled",
            },
            "BlockDeviceMappings": [
                {
                    "DeviceName": image.root_device,
                    "Ebs": {"VolumeSize": disk, "VolumeType": "gp3", "DeleteOnTermination": True},
                }
            ],
            "NetworkInterfaces": [
                {
                    "DeviceIndex": 0,
                    "AssociatePublicIpAddress": settings.public_address,
                    "DeleteOnTermination": True,
                    "Groups": [group],
                }
            ],
            **profile,
        }

    @told
    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Launch machines by one fleet over types and zones. Return them as they boot; there may be fewer.

        Raises:
            NoCapacityError, QuotaError, RateLimitError, CredentialsError: nothing was launched.
            SkywardError: nothing was launched. After any other error, machines may have been.
        """
        await self._admission.renew(cluster.offer.region, cluster.specific, needed=True)
        market: Market = "spot" if cluster.spec.allocation == "spot" else "on-demand"
        if market == "spot":
            cluster = await self._with_prices(cluster, within=0.0)
        request = cluster.tags.get("skyward-request") or secrets.token_hex(16)
        fleet = self._fleet(cluster, market, request)
        launched = await self._launches.run(
            launch(self._account, fleet, count), lambda ended: self.terminate(cluster, ended), cluster.pool
        )
        self._listing(cluster).forget()
        return cluster, [self._booting(cluster, each, market) for each in launched]

    async def _with_prices(self, cluster: Cluster, within: float) -> Cluster:
        """Return the cluster with the spot prices that are in force, asked for in the last `within` seconds."""
        region, types = cluster.offer.region, sorted({kind for kind, _, _ in cluster.specific["places"]})
        at, prices = self._spot_prices.get((region, *types), (-math.inf, {}))
        if time.monotonic() - at >= within:
            prices = await spot_prices(self._account, region, types)
            self._spot_prices[(region, *types)] = time.monotonic(), prices
        return dataclasses.replace(cluster, specific={**cluster.specific, "spot_prices": prices})

    def _fleet(self, cluster: Cluster, market: Market, request: str) -> FleetRequest:
        specific, spec = cluster.specific, cluster.spec
        tags = {**specific["tags"], **cluster.tags, "skyward-request": request}
        named = tag_list({"Name": f"skyward-{cluster.pool}", **tags})
        config = cloud_config(
            specific["public_key"],
            key_pair(specific["host_key_seed"], request),
            watchdog("shutdown -h now"),  # which terminates it
        )
        return FleetRequest(
            cluster.offer.region,
            specific["template"],
            {
                **launched_from(cluster.machine_image, specific["template_data"]),
                "UserData": user_data(config),
                "TagSpecifications": [
                    {"ResourceType": kind, "Tags": named} for kind in ("instance", "volume", "network-interface")
                ],
            },
            _affordable(cluster, market),
            market,
            self._settings.allocation_strategy,
            spec.max_hourly_cost,
            tags,
            request,
        )

    def _booting(self, cluster: Cluster, launched: Launched, market: Market) -> Instance:
        zones = {subnet: zone for _, subnet, zone in cluster.specific["places"]}
        described = {
            "InstanceId": launched.id,
            "InstanceType": launched.type,
            "State": {"Name": "pending"},
            "Placement": {"AvailabilityZone": zones.get(launched.subnet, "")},
            **({"InstanceLifecycle": "spot"} if market == "spot" else {}),
        }
        instance = machine_of(cluster, described)
        assert instance is not None  # it is pending
        return instance

    def _listing(self, cluster: Cluster) -> SharedListing[Mapping[str, Any]]:
        """Return the machines of the pool by id, asked for at most every two seconds."""
        key = cluster.offer.region, cluster.pool
        if key not in self._listings:
            self._listings[key] = SharedListing(lambda: self._describe(*key))
        return self._listings[key]

    async def _describe(self, region: str, pool: str) -> Mapping[str, Any]:
        ours = [{"Name": "tag:skyward-pool", "Values": [pool]}]
        found = await self._account.all("ec2", "describe_instances", region, "Reservations", Filters=ours)
        return {machine["InstanceId"]: machine for each in found for machine in each["Instances"]}

    @told
    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a machine. Its address is that of the last minutes."""
        described = (await self._listing(cluster).get()).get(instance_id)
        if described is not None and described.get("InstanceLifecycle") == "spot":
            try:
                cluster = await self._with_prices(cluster, within=_PRICES_FOR)
            except (CallError, SkywardError) as error:  # the last known prices count on
                _logger.info("the spot prices of machines of %s are unknown: %s", cluster.pool, error)
        instance = None if described is None else machine_of(cluster, described)
        if instance is not None and instance.status == "running":
            try:
                await self._admission.renew(cluster.offer.region, cluster.specific, needed=False)
            except (CallError, ProvisioningError) as error:
                why = explained(error) if isinstance(error, CallError) else error
                _logger.warning("machines of %s may be unreachable: %s", cluster.pool, why)
        return cluster, instance

    @told
    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the machines with the pool's tag that exist, stopped ones too."""
        listing = self._listing(cluster)

        async def now() -> Mapping[str, Any]:
            listing.forget()
            return await listing.get()

        found = await self._launches.listed(cluster.pool, now)
        existing = [each for each in found.values() if each["State"]["Name"] in _EXISTING]
        return [machine for each in existing if (machine := machine_of(cluster, each)) is not None]

    @told
    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Terminate machines. Those that do not exist are left out; new ones may not be visible at once."""
        await self._terminate(cluster.offer.region, list(dict.fromkeys(instance_ids)))
        self._listing(cluster).forget()

    async def _terminate(self, region: str, ids: Sequence[str]) -> None:
        pause = 0.2
        while ids:
            try:
                await self._account.call("ec2", "terminate_instances", region, InstanceIds=[*ids])
                return
            except CallError as error:  # one unknown id fails them all
                if not error.code.startswith("InvalidInstanceID"):
                    raise
                unknown = set(ids) if len(ids) == 1 else set(_ID.findall(error.detail)) & set(ids)
            if not unknown:
                for each in ids:
                    await self._terminate(region, [each])
                return
            if others := [each for each in ids if each not in unknown]:
                await self._terminate(region, others)
            if ids := [*filter(self._launches.may_be_hidden, unknown)]:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)

    @told
    async def teardown(self, cluster: Cluster) -> None:
        """Remove the launch template, and the security group with the last one of the pool in the region.

        Raises:
            ProvisioningError: machines still use the group.
        """
        await self._remove_shared(cluster)

    async def _remove_shared(self, cluster: Cluster) -> None:
        account, region, specific = self._account, cluster.offer.region, cluster.specific
        ours = [{"Name": "tag:skyward-pool", "Values": [cluster.pool]}]
        name = template_name(cluster.pool, cluster.offer.id)

        async def templates() -> list[Any]:
            return await account.all("ec2", "describe_launch_templates", region, "LaunchTemplates", Filters=ours)

        # A listing may lack what was created, and have what was deleted a moment ago.
        made = [specific["template"]] if "template" in specific else []
        listed = [each["LaunchTemplateId"] for each in await templates() if each["LaunchTemplateName"] == name]
        for template in dict.fromkeys((*made, *listed)):
            await delete_template(account, region, template)
        if any(each["LaunchTemplateName"] != name for each in await templates()):
            return  # the pool has machines of other offers, in the same group
        if specific.get("own_group", True):
            await delete_groups_of(account, region, cluster.pool, group_name(cluster.pool), specific.get("group"))

    @told
    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return what has the tag of `owner`, in every region of the settings."""
        return await find_leftovers(self._account, self._settings.all_regions, owner)

    @told
    async def remove(self, leftover: Leftover) -> None:
        """Remove a resource. Idempotent."""
        await remove_leftover(self._account, leftover)

    @told
    async def image_scope(self, spec: Spec, offer: Offer) -> str:
        """Return the account, the region, the architecture, and the ordinary image with its user."""
        identity = await self._account.call("sts", "get_caller_identity", offer.region)
        base = ordinary_image(self._settings, offer)
        user = self._settings.username or "root"
        return " ".join((str(identity["Account"]), offer.region, offer.instance_type.architecture, base, user))

    @told
    async def make_image(self, cluster: Cluster, instance_id: str, name: str) -> ProviderImage:
        """Stop a machine, and make an AMI of it.

        Raises:
            SkywardError: it failed.
        """
        tags = {**cluster.specific["tags"], **cluster.tags}
        made = await make_image(self._account, cluster.offer.region, instance_id, name, tags, cluster.pool)
        self._listing(cluster).forget()
        return made

    @told
    async def find_images(self, cluster: Cluster) -> Sequence[ProviderImage]:
        """Return the AMIs and snapshots with the pool's tag."""
        return await find_images(self._account, cluster.offer.region, cluster.pool)

    @told
    async def image_exists(self, image: ProviderImage) -> bool:
        """Return whether machines can be launched from an AMI."""
        return await image_exists(self._account, image)

    @told
    async def delete_image(self, image: ProviderImage) -> None:
        """Deregister an AMI, and delete its snapshots.

        Raises:
            SkywardError: it may still exist.
        """
        await delete_image(self._account, image)

    async def check(self) -> Sequence[Check]:
        """Check the credentials, and what they may do in the first region."""
        return await check_account(self._account, self._settings.all_regions[0])


def _affordable(cluster: Cluster, market: Market) -> list[tuple[str, str]]:
    """Return the types and subnets that cost about as much as the offer, and at most what the spec allows.

    Raises:
        NoCapacityError: prices have risen, and none does.
    """
    specific, asked, most = cluster.specific, cluster.offer.instance_type.name, cluster.spec.max_hourly_cost
    offered = cluster.offer.hourly_price(market)

    def allowed(kind: str, zone: str) -> bool:
        price = specific["spot_prices"].get(kind, {}).get(zone) if market == "spot" else specific["prices"].get(kind)
        if price is None:  # not sold there, or sold on demand at an unknown price
            return kind == asked and market == "on-demand" and most is None
        near = kind == asked or (offered is not None and price <= offered * DEARER)
        return near and (most is None or price <= most)

    found = [(kind, subnet) for kind, subnet, zone in specific["places"] if allowed(kind, zone)]
    if not found:
        raise NoCapacityError(
            f"AWS sells {asked} in {cluster.offer.region} ({market}) for no price that is allowed now; "
            "try another type, region or market."
        )
    return found
