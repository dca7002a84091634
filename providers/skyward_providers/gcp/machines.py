"""Machines of Compute Engine: the request for one, and what the API says about one."""

import math
from collections.abc import Mapping
from typing import Any, Final

from skyward.providers import Cluster, Instance, Market, Offer, SSHAccess, key_pair
from skyward_providers.cloud import cloud_config, watchdog
from skyward_providers.gcp.naming import description, label, pool_tag
from skyward_providers.gcp.settings import GCP

__all__ = ["instance", "instance_id", "machine_request", "ordinary_image", "place", "spot_properties"]

_USER: Final = "ubuntu"
"""Login name: the first user of Ubuntu's images, who may become root."""

_UBUNTU: Final = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-"
_WITH_DRIVER: Final = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-"
_IMAGES: Final = {"x86_64": f"{_UBUNTU}amd64", "arm64": f"{_UBUNTU}arm64"}
_DRIVER_IMAGES: Final = {
    "x86_64": f"{_WITH_DRIVER}amd64-with-nvidia-580",
    "arm64": f"{_WITH_DRIVER}arm64-with-nvidia-580",
}

_HYPERDISK_ONLY: Final = ("a3-ultra", "a4", "c4", "g4", "h4", "m4", "n4", "x4")
"""Beginnings of the machine types that take no Persistent Disk. Source: cloud.google.com/compute/docs/disks."""

_GUEST_AGENT: Final = {"/etc/default/instance_configs.cfg": "[InstanceSetup]\nset_host_keys = false\n"}
"""Configuration of Google's guest agent, which replaces all host keys at the first boot otherwise, ours too."""

_BOOTING: Final = ("PENDING", "PROVISIONING", "STAGING", "RUNNING", "REPAIRING")

_OS_LOGIN = (
    "a policy of the organization forces OS Login, which lets the pool's SSH key in nowhere: exempt the project from "
    "constraints/compute.requireOsLogin"
)


def machine_request(settings: GCP, cluster: Cluster, zone: str, name: str) -> dict[str, Any]:
    """Return the request for one machine."""
    spec, offer, tags = cluster.spec, cluster.offer, cluster.tags
    kind = offer.specific
    machine_type = kind["machine_type"]
    image, disk_gb = ordinary_image(settings, offer), spec.disk_gb or settings.disk_gb
    if (built := cluster.machine_image) is not None:
        image = f"projects/{built.specific['project']}/global/images/{built.id}"
        disk_gb = max(disk_gb, built.specific["disk_gb"])
    labels = {key: label(tags[key]) for key in ("skyward-pool", "skyward-owner", "skyward-request")}
    host_key = key_pair(cluster.specific["host_key_seed"], name)
    public_key = cluster.specific["public_key"]
    metadata = {
        "user-data": cloud_config(public_key, host_key, watchdog("poweroff"), _GUEST_AGENT),
        "ssh-keys": f"{_USER}:{public_key} skyward",
        "block-project-ssh-keys": "TRUE",
        "enable-oslogin": "FALSE",
    }
    network: dict[str, Any] = {
        "network": f"global/networks/{settings.network}",
        "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}],
    }
    if settings.subnetwork is not None:
        network["subnetwork"] = f"regions/{offer.region}/subnetworks/{settings.subnetwork}"
    disk_type = settings.disk_type or (
        "hyperdisk-balanced" if machine_type.startswith(_HYPERDISK_ONLY) else "pd-balanced"
    )
    request: dict[str, Any] = {
        "name": name,
        "description": description(tags),
        "machineType": f"zones/{zone}/machineTypes/{machine_type}",
        "labels": labels,
        "tags": {"items": [pool_tag(cluster.pool)]},
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata.items()]},
        "networkInterfaces": [network],
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": image,
                    "diskSizeGb": str(math.ceil(disk_gb)),
                    "diskType": f"zones/{zone}/diskTypes/{disk_type}",
                    "labels": labels,
                },
            }
        ],
        "scheduling": _scheduling(settings, cluster),
        "serviceAccounts": [],
    }
    if settings.service_account is not None:
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        request["serviceAccounts"] = [{"email": settings.service_account, "scopes": scopes}]
    return request | _accelerators(kind, f"zones/{zone}/")


def ordinary_image(settings: GCP, offer: Offer) -> str:
    """Return the image of the settings, or the public one for the machines of an offer."""
    images = _DRIVER_IMAGES if offer.specific["gpus"] else _IMAGES
    return settings.image or images[offer.instance_type.architecture]


def _scheduling(settings: GCP, cluster: Cluster) -> dict[str, Any]:
    """Return how Google may treat a machine: it never starts one again that has ended."""
    spot = cluster.spec.allocation == "spot"
    scheduling: dict[str, Any] = {"automaticRestart": False, "provisioningModel": "SPOT" if spot else "STANDARD"}
    if spot or cluster.offer.specific["gpus"]:
        scheduling["onHostMaintenance"] = "TERMINATE"
    if not spot:
        scheduling["skipGuestOsShutdown"] = True  # up to 120 s that are paid; nothing on it is to be kept
    if spot or settings.max_run_duration is not None:
        scheduling["instanceTerminationAction"] = "DELETE"
    if settings.max_run_duration is not None:
        scheduling["maxRunDuration"] = {"seconds": str(math.ceil(settings.max_run_duration))}
    return scheduling


def _accelerators(kind: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the accelerators to attach: those that are not part of the machine type."""
    if not kind.get("attached"):
        return {}
    attached = {"acceleratorType": f"{where}acceleratorTypes/{kind['model']}", "acceleratorCount": kind["gpus"]}
    return {"guestAccelerators": [attached]}


def spot_properties(kind: Mapping[str, Any], zone: str) -> dict[str, Any]:
    """Return a machine as the history of spot prices is asked for it."""
    asked = {"machineType": kind["machine_type"], "scheduling": {"provisioningModel": "SPOT"}}
    return asked | _accelerators(kind, f"zones/{zone}/")


def instance_id(zone: str, name: str) -> str:
    """Return the id of a machine: names are unique in a zone only."""
    return f"{zone}/{name}"


def place(id: str) -> tuple[str, str]:
    """Return the zone and the name of a machine."""
    zone, _, name = id.partition("/")
    return zone, name


def instance(cluster: Cluster, resource: Mapping[str, Any]) -> Instance:
    """Return what the API says about a machine of a pool."""
    name, status = resource["name"], resource["status"]
    zone = resource["zone"].rpartition("/")[2]
    interface: Mapping[str, Any] = next(iter(resource.get("networkInterfaces") or ()), {})
    external = next((each["natIP"] for each in interface.get("accessConfigs") or () if each.get("natIP")), "")
    spot = (resource.get("scheduling") or {}).get("provisioningModel") == "SPOT"
    market: Market = "spot" if spot else "on-demand"
    detail, access = "", None
    effective = (resource.get("resourceStatus") or {}).get("effectiveInstanceMetadata") or {}
    if effective.get("enableOsloginMetadataValue"):
        status, detail = "REFUSED", _OS_LOGIN
    elif status == "RUNNING" and external:
        host_key = key_pair(cluster.specific["host_key_seed"], name).public
        keys = (cluster.specific["key_file"],)
        access = SSHAccess(external, 22, _USER, client_keys=keys, host_key=host_key, config="none")
    elif status not in _BOOTING:
        detail = resource.get("statusMessage") or ("Google took the spot machine back" if spot else "it was stopped")
    else:
        detail = "it has no address yet" if status == "RUNNING" else f"it is {status.lower()}"
    spot_price = cluster.specific.get("spot_prices", {}).get(zone) if spot else None
    return Instance(
        instance_id(zone, name),
        "running" if access is not None else "provisioning" if status in _BOOTING else "exited",
        access,
        address=interface.get("networkIP", ""),
        public_address=external,
        spot=spot,
        hourly_price=spot_price or cluster.offer.hourly_price(market) or 0.0,
        detail=detail,
        notices="gcp" if spot else "",
    )
