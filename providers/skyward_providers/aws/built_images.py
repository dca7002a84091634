"""Images that are made of machines: an AMI, and the snapshot of its disk, which is what is billed.

Both have the tags of their pool from the call that creates them. The machine is stopped first, so that its disk is
complete, and costs nothing while the snapshot is made.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from skyward.errors import ProvisioningError
from skyward.providers import Leftover, ProviderImage
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError
from skyward_providers.aws_account.network import tag_list, tags_of

__all__ = ["delete_image", "find_images", "image_exists", "launched_from", "leftover_images", "make_image"]

_STOPPED_WITHIN = 300.0
_MADE_WITHIN = 3600.0
_GONE_WITHIN = 120.0
_SETTLED_WITHIN = 60.0
"""Seconds for a machine to stop, for a snapshot to be made, for a deletion, and for the answer to an aborted call."""

_ASK_EVERY = 5.0
"""Seconds between questions about an image; fewer at first."""

_PRICES: Final[Mapping[str, float]] = dict.fromkeys(("us-east-1", "us-east-2", "us-west-2"), 0.05)
"""USD per GB and month of snapshots, as AWS lists them. In other regions, they differ."""

_SNAPSHOT: Final = "snap-"


async def make_image(
    account: Account, region: str, machine: str, name: str, tags: Mapping[str, str], pool: str
) -> ProviderImage:
    """Stop a machine, make an image of it, and return it once machines can be launched from it.

    Raises:
        CallError, ProvisioningError: it failed.
    """
    await account.call("ec2", "stop_instances", region, InstanceIds=[machine])
    await _until_stopped(account, region, machine)
    creating = asyncio.ensure_future(_create(account, region, machine, name, tags))
    try:
        image = await asyncio.shield(creating)
    except asyncio.CancelledError:  # an aborted call may still make an image
        await asyncio.wait([creating], timeout=_SETTLED_WITHIN)
        raise
    until, pause = time.monotonic() + _MADE_WITHIN, 0.2
    while True:
        found = await _images(account, region, image)
        state = found[0]["State"] if found else "pending"  # a new one may not be visible yet
        if state == "available":
            return _described(found[0], region, pool, await _account_id(account, region))
        if state != "pending":
            why = found[0].get("StateReason", {}).get("Message") or state
            raise ProvisioningError(f"AWS could not make image {image} in {region}: {why}")
        if time.monotonic() > until:
            raise ProvisioningError(f"AWS did not finish image {image} in {region} within {_MADE_WITHIN / 60:.0f} min")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _ASK_EVERY)


async def _create(account: Account, region: str, machine: str, name: str, tags: Mapping[str, str]) -> str:
    """Create an image; return its id. If the answer was lost, the image of that name is it."""
    named = tag_list({"Name": name, **tags})
    try:
        answer = await account.call(
            "ec2",
            "create_image",
            region,
            InstanceId=machine,
            Name=name,
            TagSpecifications=[{"ResourceType": kind, "Tags": named} for kind in ("image", "snapshot")],
        )
        return str(answer["ImageId"])
    except CallError as error:
        if error.code != "InvalidAMIName.Duplicate":
            raise
        until, pause = time.monotonic() + _SETTLED_WITHIN, 0.2
        while not (found := await _listed(account, region, {"name": name})):  # it may not be visible yet
            if time.monotonic() > until:
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _ASK_EVERY)
        return str(found[0]["ImageId"])


async def _until_stopped(account: Account, region: str, machine: str) -> None:
    until, pause = time.monotonic() + _STOPPED_WITHIN, 0.2
    while True:
        found = await account.all("ec2", "describe_instances", region, "Reservations", InstanceIds=[machine])
        states = [each["State"]["Name"] for reservation in found for each in reservation["Instances"]]
        if states == ["stopped"]:
            return
        if states not in (["running"], ["stopping"], ["pending"]):
            raise ProvisioningError(f"Machine {machine} ended before an image of it was made")
        if time.monotonic() > until:
            raise ProvisioningError(f"Machine {machine} did not stop within {_STOPPED_WITHIN:.0f} s")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _ASK_EVERY)


async def _listed(account: Account, region: str, filters: Mapping[str, str]) -> list[Any]:
    """Return the images of this account that pass filters."""
    given = [{"Name": name, "Values": [value]} for name, value in filters.items()]
    return await account.all("ec2", "describe_images", region, "Images", Owners=["self"], Filters=given)


async def _images(account: Account, region: str, image: str) -> list[Any]:
    """Return the description of an image; nothing if there is none."""
    try:
        return await account.all("ec2", "describe_images", region, "Images", ImageIds=[image])
    except CallError as error:
        if error.code in ("InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"):
            return []
        raise


def _disks(described: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each["Ebs"] for each in described.get("BlockDeviceMappings", ()) if "Ebs" in each]


def _snapshots(described: Mapping[str, Any]) -> list[str]:
    return [each["SnapshotId"] for each in _disks(described) if each.get("SnapshotId")]


async def _account_id(account: Account, region: str) -> str:
    return str((await account.call("sts", "get_caller_identity", region))["Account"])


async def _check_account(account: Account, image: ProviderImage) -> None:
    """Check that an image is of the account of the credentials.

    Raises:
        ProvisioningError: it is of another, so that nothing is known about it.
    """
    theirs = image.specific.get("account")
    if theirs is not None and (ours := await _account_id(account, image.region)) != theirs:
        raise ProvisioningError(f"Image {image.id} is in AWS account {theirs}, and these credentials are of {ours}")


def _described(described: Mapping[str, Any], region: str, pool: str, owner: str) -> ProviderImage:
    size = sum(each.get("VolumeSize", 0) for each in _disks(described))
    price = _PRICES.get(region)
    specific = {
        "account": owner,
        "pool": pool,
        "snapshots": _snapshots(described),
        "root_device": described.get("RootDeviceName") or "/dev/sda1",
        "disk_gb": size,
    }
    monthly = None if price is None else price * size
    return ProviderImage(described["ImageId"], region, size, monthly, specific)


async def find_images(account: Account, region: str, pool: str) -> list[ProviderImage]:
    """Return the images of a pool's machines, and snapshots that belong to none of them, as images of their own."""
    images = await _listed(account, region, {"tag:skyward-pool": pool})
    used = {snapshot for each in images for snapshot in _snapshots(each)}
    snapshots = await _tagged_snapshots(account, region, "skyward-pool", pool)
    alone = [each["SnapshotId"] for each in snapshots if each["SnapshotId"] not in used]
    owner = await _account_id(account, region) if images else ""
    return [
        *(_described(each, region, pool, owner) for each in images),
        *(ProviderImage(each, region, specific={"pool": pool, "snapshots": [each]}) for each in alone),
    ]


async def _tagged_snapshots(account: Account, region: str, tag: str, value: str) -> list[Any]:
    given = [{"Name": f"tag:{tag}", "Values": [value]}]
    return await account.all("ec2", "describe_snapshots", region, "Snapshots", OwnerIds=["self"], Filters=given)


async def image_exists(account: Account, image: ProviderImage) -> bool:
    """Return whether machines can be launched from an image."""
    await _check_account(account, image)
    return any(each["State"] == "available" for each in await _images(account, image.region, image.id))


async def delete_image(account: Account, image: ProviderImage) -> None:
    """Deregister an image, delete its snapshots, and wait until they are gone. Idempotent.

    Raises:
        CallError, ProvisioningError: it may still exist.
    """
    await _check_account(account, image)
    region, snapshots = image.region, set(image.specific.get("snapshots", ()))
    if not image.id.startswith(_SNAPSHOT):
        for each in await _images(account, region, image.id):
            snapshots.update(_snapshots(each))
        await _ended(account, "deregister_image", region, "InvalidAMIID", ImageId=image.id)
    if pool := image.specific.get("pool"):
        snapshots.update(each["SnapshotId"] for each in await _tagged_snapshots(account, region, "skyward-pool", pool))
    until, pause = time.monotonic() + _GONE_WITHIN, 0.2
    for snapshot in sorted(snapshots):
        while True:
            try:
                await _ended(account, "delete_snapshot", region, "InvalidSnapshot.NotFound", SnapshotId=snapshot)
                break
            except CallError as error:  # until the image is gone
                if error.code != "InvalidSnapshot.InUse" or time.monotonic() > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _ASK_EVERY)
    while not image.id.startswith(_SNAPSHOT) and await image_exists(account, image):
        if time.monotonic() > until:
            raise ProvisioningError(f"AWS lists image {image.id} still")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _ASK_EVERY)


async def _ended(account: Account, call: str, region: str, gone: str, **values: Any) -> None:
    """Make a call that deletes something, which may be gone."""
    try:
        await account.call("ec2", call, region, **values)
    except CallError as error:
        if not error.code.startswith(gone):
            raise


async def leftover_images(account: Account, region: str, owner: str) -> list[Leftover]:
    """Return images and snapshots with the tag of `owner`. Those of pools on record are kept on purpose."""
    images, snapshots = await asyncio.gather(
        _listed(account, region, {"tag:skyward-owner": owner}),
        _tagged_snapshots(account, region, "skyward-owner", owner),
    )
    used = {snapshot for each in images for snapshot in _snapshots(each)}
    alone = [each for each in snapshots if each["SnapshotId"] not in used]
    return [
        *(Leftover("image", each["ImageId"], tags_of(each).get("skyward-pool", ""), region) for each in images),
        *(Leftover("snapshot", each["SnapshotId"], tags_of(each).get("skyward-pool", ""), region) for each in alone),
    ]


def launched_from(image: ProviderImage | None, template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of a launch template, for machines of an image. Its disk is a minimum of theirs."""
    if image is None:
        return template
    ((disk,), specific) = template["BlockDeviceMappings"], image.specific
    size = max(disk["Ebs"]["VolumeSize"], specific.get("disk_gb", 0))
    changed = {**disk, "DeviceName": specific["root_device"], "Ebs": {**disk["Ebs"], "VolumeSize": size}}
    return {**template, "ImageId": image.id, "BlockDeviceMappings": [changed]}
