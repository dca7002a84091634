"""Images (AMIs): the newest of Ubuntu, by the parameters that its vendors publish."""

from dataclasses import dataclass
from typing import Any

from skyward.errors import ProvisioningError, SpecError
from skyward.providers import Offer
from skyward_providers.aws.settings import AWS
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError

__all__ = ["MachineImage", "find_image", "ordinary_image"]

_FALLBACK = "22.04"
"""Version of Ubuntu for which every image with a driver exists."""


@dataclass(frozen=True, slots=True)
class MachineImage:
    """An image to boot.

    Attributes:
        id: its id.
        root_device: name of its root disk.
        disk_gb: least size of the root disk, GiB.
    """

    id: str
    root_device: str
    disk_gb: int


async def find_image(account: Account, settings: AWS, offer: Offer) -> MachineImage:
    """Return the image for the machines of an offer.

    Raises:
        SpecError: the image of the settings does not exist, or is for another architecture.
        ProvisioningError: there is no public image for such machines in that region.
    """
    region, architecture = offer.region, offer.instance_type.architecture
    image = settings.ami or await _published(account, settings, offer)
    found = (await account.call("ec2", "describe_images", region, ImageIds=[image])).get("Images", ())
    if not found:
        raise SpecError(f"There is no image {image} in {region}: check `sky.AWS(ami=...)`.")
    described: dict[str, Any] = found[0]
    if described.get("Architecture", architecture) != architecture:
        raise SpecError(
            f"Image {image} is for {described['Architecture']}, but {offer.instance_type.name} is {architecture}: "
            f"ask for `architecture={described['Architecture']!r}`, or name another image."
        )
    root = described.get("RootDeviceName") or "/dev/sda1"
    disks = {each.get("DeviceName"): each.get("Ebs", {}) for each in described.get("BlockDeviceMappings", ())}
    return MachineImage(image, root, disks.get(root, {}).get("VolumeSize") or 0)


def ordinary_image(settings: AWS, offer: Offer) -> str:
    """Return the id of the image of the settings, or the name of the newest public one that is looked for."""
    return settings.ami or _parameters(settings, offer)[0]


async def _published(account: Account, settings: AWS, offer: Offer) -> str:
    for name in _parameters(settings, offer):
        try:
            answer = await account.call("ssm", "get_parameter", offer.region, Name=name)
        except CallError as error:
            if error.code != "ParameterNotFound":
                raise
        else:
            return str(answer["Parameter"]["Value"])
    raise ProvisioningError(
        f"AWS publishes no image of Ubuntu {settings.ubuntu_version} for {offer.instance_type.name} in {offer.region}; "
        "name one with `sky.AWS(ami=...)`."
    )


def _parameters(settings: AWS, offer: Offer) -> list[str]:
    """Return the names of the parameters to ask, in order."""
    architecture, version = offer.instance_type.architecture, settings.ubuntu_version
    if offer.specific.get("image", "ubuntu" if offer.instance_type.accelerator is None else "nvidia") == "nvidia":
        path = f"/aws/service/deeplearning/ami/{architecture}/base-oss-nvidia-driver-gpu-ubuntu"
        return [f"{path}-{each}/latest/ami-id" for each in dict.fromkeys((version, _FALLBACK))]
    debian = {"x86_64": "amd64", "arm64": "arm64"}[architecture]
    disk = "ebs-gp3" if version >= "23.10" else "ebs-gp2"  # what Canonical publishes them for
    return [f"/aws/service/canonical/ubuntu/server/{version}/stable/current/{debian}/hvm/{disk}/ami-id"]
