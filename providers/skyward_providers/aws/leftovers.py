"""Resources that Skyward left in an account, found by their tag in every region of the settings."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from skyward.providers import Leftover, ProviderImage
from skyward_providers.aws.built_images import delete_image, leftover_images
from skyward_providers.aws.fleet import delete_template
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError
from skyward_providers.aws_account.network import delete_group, is_group_of_tasks, tags_of

__all__ = ["find_leftovers", "remove_leftover"]

_EXISTING: Final = ("pending", "running", "stopping", "stopped")

_UNUSED: Final = ("available", "error")
"""States of disks that no machine has; those of machines are deleted with them."""

_ENDED_WITHIN = 60.0


async def find_leftovers(account: Account, regions: Sequence[str], owner: str) -> list[Leftover]:
    """Return what has the tag of `owner`."""
    found = await asyncio.gather(*(_in_region(account, region, owner) for region in regions))
    return [each for region in found for each in region]


async def _in_region(account: Account, region: str, owner: str) -> list[Leftover]:
    ours = [{"Name": "tag:skyward-owner", "Values": [owner]}]
    existing = [*ours, {"Name": "instance-state-name", "Values": [*_EXISTING]}]
    reservations, templates, groups, volumes, images = await asyncio.gather(
        account.all("ec2", "describe_instances", region, "Reservations", Filters=existing),
        account.all("ec2", "describe_launch_templates", region, "LaunchTemplates", Filters=ours),
        account.all("ec2", "describe_security_groups", region, "SecurityGroups", Filters=ours),
        account.all("ec2", "describe_volumes", region, "Volumes", Filters=ours),
        leftover_images(account, region, owner),
    )
    machines = [machine for each in reservations for machine in each["Instances"]]
    unused = [each for each in volumes if each["State"] in _UNUSED]
    groups_of_machines = [each for each in groups if not is_group_of_tasks(each["GroupName"])]
    return [  # in the order in which they can be removed
        *(_leftover("machine", each, "InstanceId", region) for each in machines),
        *(_leftover("launch template", each, "LaunchTemplateId", region) for each in templates),
        *(_leftover("disk", each, "VolumeId", region) for each in unused),
        *images,
        *(_leftover("security group", each, "GroupId", region) for each in groups_of_machines),
    ]


def _leftover(kind: str, described: Mapping[str, Any], key: str, region: str) -> Leftover:
    return Leftover(kind, described[key], tags_of(described).get("skyward-pool", ""), region)


async def remove_leftover(account: Account, leftover: Leftover) -> None:
    """Remove a leftover. Idempotent.

    Raises:
        CallError, ProvisioningError: it could not be removed.
    """
    region = leftover.region
    match leftover.kind:
        case "machine":
            await _terminate(account, region, leftover.id)
        case "launch template":
            await delete_template(account, region, leftover.id)
        case "security group":
            await delete_group(account, region, leftover.id)
        case "image" | "snapshot":
            specific = {"snapshots": [leftover.id]} if leftover.kind == "snapshot" else {}
            await delete_image(account, ProviderImage(leftover.id, region, specific=specific))
        case "disk":
            try:
                await account.call("ec2", "delete_volume", region, VolumeId=leftover.id)
            except CallError as error:
                if error.code != "InvalidVolume.NotFound":
                    raise


async def _terminate(account: Account, region: str, machine: str) -> None:
    """Terminate a machine, and wait until that has begun, which cannot be undone."""
    until = time.monotonic() + _ENDED_WITHIN
    while True:
        try:
            answer = await account.call("ec2", "terminate_instances", region, InstanceIds=[machine])
        except CallError as error:
            if error.code == "InvalidInstanceID.NotFound":
                return
            raise
        states = [each["CurrentState"]["Name"] for each in answer.get("TerminatingInstances", ())]
        if all(state in ("shutting-down", "terminated") for state in states) or time.monotonic() > until:
            return
        await asyncio.sleep(1)
