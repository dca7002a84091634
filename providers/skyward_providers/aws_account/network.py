"""The network of a pool's machines: subnets, and a security group that lets nobody in but this computer."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from skyward.errors import NoCapacityError, ProvisioningError, SpecError
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError

__all__ = [
    "Subnets",
    "create_group",
    "delete_group",
    "delete_groups_of",
    "find_subnets",
    "group_name",
    "is_group_of_tasks",
    "let_in",
    "tag_list",
    "tags_of",
]

_VISIBLE_WITHIN = 30.0
"""Seconds until what was created is visible to every call."""

_RELEASED_WITHIN = 420.0
"""Seconds until a terminated machine has released its network interface: large ones take minutes."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0

_OF_MACHINES, _OF_TASKS = "skyward-", "skyward/"
"""Beginnings of the names of groups."""


@dataclass(frozen=True, slots=True)
class Subnets:
    """Subnets of one network.

    Attributes:
        vpc: id of the network.
        zones: zone of each subnet, by its id.
    """

    vpc: str
    zones: Mapping[str, str]


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as AWS takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_of(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a resource of EC2."""
    return {each["Key"]: each["Value"] for each in described.get("Tags", ())}


async def find_subnets(account: Account, region: str, subnet_id: str | None) -> Subnets:
    """Return the subnet of the settings, or those of the default network, one for each zone.

    Raises:
        NoCapacityError: there is no default network; another region may have one.
    """
    if subnet_id is not None:
        found = await account.all("ec2", "describe_subnets", region, "Subnets", SubnetIds=[subnet_id])
        return Subnets(found[0]["VpcId"], {subnet_id: found[0]["AvailabilityZone"]})
    default = [{"Name": "default-for-az", "Values": ["true"]}]
    found = await account.all("ec2", "describe_subnets", region, "Subnets", Filters=default)
    if not found:
        raise NoCapacityError(
            f"The account has no default network in {region}; create it with `aws ec2 create-default-vpc --region "
            f"{region}`, or name a subnet with `{account.door}(subnet_id=...)`."
        )
    zones = {each["SubnetId"]: each["AvailabilityZone"] for each in found}
    return Subnets(found[0]["VpcId"], dict(sorted(zones.items(), key=lambda pair: (pair[1], pair[0]))))


def group_name(pool: str, *, of_tasks: bool = False) -> str:
    """Return the name of a pool's security group: one for all its machines in a region, and one for all its tasks.

    A pool may have both, and each is deleted apart. Ids of pools have no slash.
    """
    return f"{_OF_TASKS if of_tasks else _OF_MACHINES}{pool}"


def is_group_of_tasks(name: str) -> bool:
    """Return whether a group of ours is for tasks of Fargate, by its name."""
    return name.startswith(_OF_TASKS)


async def create_group(account: Account, region: str, vpc: str, name: str, tags: Mapping[str, str]) -> str:
    """Create the security group of a pool, unless it exists; return its id. Its machines reach each other.

    Raises:
        ProvisioningError: somebody else has a group of that name.
    """
    try:
        created = await account.call(
            "ec2",
            "create_security_group",
            region,
            GroupName=name,
            Description="Machines of a pool of Skyward",
            VpcId=vpc,
            TagSpecifications=[{"ResourceType": "security-group", "Tags": tag_list({"Name": name, **tags})}],
        )
        group: str = created["GroupId"]
    except CallError as error:
        if error.code != "InvalidGroup.Duplicate":
            raise
        group = await _existing_group(account, region, vpc, name, tags)
    own = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group, "Description": "Machines of the pool"}]}
    await _allow(account, region, group, own)
    return group


async def _existing_group(account: Account, region: str, vpc: str, name: str, tags: Mapping[str, str]) -> str:
    filters = {"group-name": name, "vpc-id": vpc, **{f"tag:{key}": value for key, value in tags.items()}}
    until = time.monotonic() + _VISIBLE_WITHIN
    while True:
        found = await account.all(
            "ec2", "describe_security_groups", region, "SecurityGroups", Filters=_filters(filters)
        )
        if found:
            return str(found[0]["GroupId"])
        if time.monotonic() > until:
            raise ProvisioningError(f"Security group {name!r} in {region} is not of this pool: delete or rename it.")
        await asyncio.sleep(_FIRST_PAUSE)


def _filters(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": [value]} for name, value in values.items()]


async def let_in(account: Account, region: str, group: str, ranges: Sequence[str]) -> None:
    """Let the addresses of `ranges` in to the machines of a group, over SSH."""
    for each in ranges:
        if ip_network(each).version == 4:
            source: dict[str, Any] = {"IpRanges": [{"CidrIp": each, "Description": "Skyward's client"}]}
        else:
            source = {"Ipv6Ranges": [{"CidrIpv6": each, "Description": "Skyward's client"}]}
        await _allow(account, region, group, {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, **source})


async def _allow(account: Account, region: str, group: str, permission: Mapping[str, Any]) -> None:
    until = time.monotonic() + _VISIBLE_WITHIN
    while True:
        try:
            await account.call(
                "ec2", "authorize_security_group_ingress", region, GroupId=group, IpPermissions=[permission]
            )
            return
        except CallError as error:
            if error.code == "InvalidPermission.Duplicate":
                return
            if error.code != "InvalidGroup.NotFound":
                raise
            if time.monotonic() > until:
                raise SpecError(f"Security group {group} in {region} is gone: start the pool again.") from error
        await asyncio.sleep(_FIRST_PAUSE)


async def delete_group(account: Account, region: str, group: str, within: float = _RELEASED_WITHIN) -> None:
    """Delete a security group, once the last machine has released its network interface.

    Raises:
        ProvisioningError: it is still in use.
    """
    until, pause = time.monotonic() + within, _FIRST_PAUSE
    while True:
        try:
            await account.call("ec2", "delete_security_group", region, GroupId=group)
            return
        except CallError as error:
            if error.code == "InvalidGroup.NotFound":
                return
            if error.code != "DependencyViolation":
                raise
            if time.monotonic() > until:
                raise ProvisioningError(
                    f"Security group {group} in {region} is still in use after {within:.0f} s: "
                    "terminate the machines that use it, or delete it later."
                ) from error
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def delete_groups_of(account: Account, region: str, pool: str, name: str, made: str | None) -> None:
    """Delete the security group `made`, and those with the tag of a pool and a name. Idempotent.

    Raises:
        ProvisioningError: one is still in use.
    """
    named = _filters({"tag:skyward-pool": pool, "group-name": name})
    found = await account.all("ec2", "describe_security_groups", region, "SecurityGroups", Filters=named)
    listed = [each["GroupId"] for each in found]
    for group in dict.fromkeys(listed if made is None else (made, *listed)):  # a new one may not be listed yet
        await delete_group(account, region, group)
