"""The permissions that `sky.GCP` needs in a project: as a role to paste, and as a list to check."""

from typing import Final

__all__ = ["PERMISSIONS", "role"]

PERMISSIONS: Final = (
    "compute.acceleratorTypes.list",
    "compute.disks.create",
    "compute.disks.setLabels",
    "compute.disks.useReadOnly",
    "compute.firewalls.create",
    "compute.firewalls.delete",
    "compute.firewalls.get",
    "compute.firewalls.list",
    "compute.firewalls.update",
    "compute.globalOperations.get",
    "compute.globalOperations.list",
    "compute.images.create",
    "compute.images.delete",
    "compute.images.list",
    "compute.images.setLabels",
    "compute.images.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.instances.stop",
    "compute.machineTypes.list",
    "compute.networks.updatePolicy",
    "compute.networks.use",
    "compute.regions.get",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "compute.zones.list",
)

_WITH_ACCOUNT: Final = ("compute.instances.setServiceAccount", "iam.serviceAccounts.actAs")


def role(*, with_account: bool) -> str:
    """Return a custom role in YAML. `with_account`: machines get a service account."""
    wanted = sorted((*PERMISSIONS, *_WITH_ACCOUNT)) if with_account else PERMISSIONS
    lines = (
        "# gcloud iam roles create skyward --project=PROJECT --file=skyward-role.yaml",
        "# gcloud services enable compute cloudbilling cloudresourcemanager  # each with .googleapis.com",
        "title: Skyward",
        "description: Launch and delete the machines of Skyward's pools.",
        "stage: GA",
        "includedPermissions:",
        *(f"- {each}" for each in wanted),
    )
    return "\n".join(lines) + "\n"
