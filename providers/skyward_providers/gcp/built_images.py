"""Images that are made of the disks of machines."""

from collections.abc import Mapping, Sequence
from typing import Any

from skyward.errors import ProvisioningError
from skyward.providers import Cluster, ProviderImage
from skyward_providers.gcp.api import ComputeApi, UnfinishedError
from skyward_providers.gcp.failures import of_operation
from skyward_providers.gcp.machines import place
from skyward_providers.gcp.naming import described, description, label

__all__ = ["check_project", "find_images", "image_exists", "make_image"]

_STOPPED_WITHIN = 180.0
_MADE_WITHIN = 3600.0
"""Seconds for a machine to stop, and for an image to be made."""


async def make_image(api: ComputeApi, cluster: Cluster, instance_id: str, name: str) -> ProviderImage:
    """Stop a machine, and make an image of its disk.

    Raises:
        SkywardError: it failed. After any error, there may be an image.
    """
    zone, machine = place(instance_id)
    await _done(api, await api.stop(zone, machine), f"The stop of {machine}", _STOPPED_WITHIN)
    tag = label(cluster.pool)
    resources = await api.machines(f'labels.skyward-pool = "{tag}"')
    (disk,) = [
        each["source"] for one in resources if one["name"] == machine for each in one["disks"] if each.get("boot")
    ]
    labels = {key: label(cluster.tags[key]) for key in ("skyward-pool", "skyward-owner")}
    asked = {"name": name, "sourceDisk": disk, "description": description(cluster.tags), "labels": labels}
    await _done(api, await api.add_image(asked), f"Image {name}", _MADE_WITHIN)
    made = await api.image(name)
    if made is None:
        raise ProvisioningError(f"Image {name} is gone: it was deleted while it was made.")
    return await _described(api, made)


async def _done(api: ComputeApi, operation: Mapping[str, Any], what: str, within: float) -> None:
    try:
        refused = of_operation(await api.finished(operation, within))
    except UnfinishedError as error:
        raise ProvisioningError(f"{what} is not finished: {error}.") from error
    if refused is not None:
        raise ProvisioningError(f"{what} failed: {refused}") from refused


async def _described(api: ComputeApi, image: Mapping[str, Any]) -> ProviderImage:
    """Return an image: its disk is a minimum of those of machines, and its compressed content is billed."""
    stored = int(image.get("archiveSizeBytes") or 0) / 1e9
    disk = int(image.get("diskSizeGb") or 0)
    specific = {"project": await api.project(), "disk_gb": disk}
    return ProviderImage(image["name"], "", round(stored, 3) or float(disk), None, specific)


async def find_images(api: ComputeApi, pool: str) -> Sequence[ProviderImage]:
    """Return the images of a pool's machines, unfinished ones too."""
    listed = await api.images(f'labels.skyward-pool = "{label(pool)}"')
    return [await _described(api, each) for each in listed if described(each)[1] == pool]


async def image_exists(api: ComputeApi, image: ProviderImage) -> bool:
    """Return whether machines can be launched from an image."""
    await check_project(api, image)
    found = await api.image(image.id)
    return found is not None and found.get("status") == "READY"


async def check_project(api: ComputeApi, image: ProviderImage) -> None:
    """Check that an image is of the project of the settings.

    Raises:
        ProvisioningError: it is of another, so that nothing is known about it.
    """
    theirs, ours = image.specific["project"], await api.project()
    if theirs != ours:
        raise ProvisioningError(f"Image {image.id} is in project {theirs}, and these settings are of {ours}.")
