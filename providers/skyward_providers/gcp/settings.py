"""The settings of Google Cloud."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyward.errors import SpecError
from skyward.providers import PROVIDER_FIELDS, ActsOn, CredentialSource, Provider
from skyward.values import limits
from skyward.values.validation import number, of_type, seconds, shown, strings
from skyward_providers.api_settings import check_urls

__all__ = ["GCP", "find_credentials", "read_json"]

_KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_CONFIG_DIRECTORY = "CLOUDSDK_CONFIG"
_USER_FILE = "application_default_credentials.json"
_MACHINE = Path("/sys/class/dmi/id/product_name")

_IMAGE = re.compile(r"projects/[^/\s]+/global/images/(family/)?[^/\s]+")
_NAME = re.compile(r"[a-z0-9][a-z0-9.:-]*")
_RUN_AT_LEAST, _RUN_AT_MOST = 30, 120 * 86400
"""Limits of `max_run_duration` in seconds, as Compute Engine has them."""


@dataclass(frozen=True, slots=True)
class GCP:
    """Virtual machines of Google Compute Engine, each with an address of its own and a firewall that admits you only.

    The machines run Ubuntu and have no rights in your project. A machine that nobody uses any more shuts down by
    itself; only Google, or Skyward, can delete it and its disk. Prices are those of the machine; its disk (about $0.10
    for a GB and month) and its address ($0.005 an hour, half of it for spot machines) are billed besides.

    Attributes:
        project: id of the project; None for `GOOGLE_CLOUD_PROJECT`, or the project of the credentials.
        regions: regions to use; empty for all. `region` of the spec is one of them.
        zones: zones to use; empty for all of the regions.
        credentials_file: a service account's key file, or a file written by `gcloud auth application-default login`;
            None for the usual places.
        image: image of the machines' disks, as "projects/P/global/images/family/F" or "projects/P/global/images/NAME".
            It needs cloud-init. None for Ubuntu 24.04, with NVIDIA's driver where there are GPUs.
        network: name of the VPC network.
        subnetwork: name of the subnetwork; None for that of an auto mode network.
        disk_gb: disk of a machine, GB, where the spec does not set `disk_gb`.
        disk_type: type of that disk; None for a balanced one that the machine type supports.
        service_account: e-mail address of the service account whose rights the machines have; None for none.
        max_run_duration: seconds after which Google deletes a machine, whatever it does; None for no limit.
        caller_cidr: IPv4 addresses that may enter the machines over SSH, such as "203.0.113.7/32"; None for the public
            address of this computer.
        request_timeout: seconds for one request.
        endpoint: another server with the same APIs; None for Google's.

    Example:
        with sky.Compute(provider=sky.GCP(regions=["europe-west4"]), accelerator="L4", nodes=2) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: a value is not allowed.
    """

    project: str | None = None
    regions: Sequence[str] = ("us-central1",)
    zones: Sequence[str] = ()
    credentials_file: str | None = None
    image: str | None = None
    network: str = "default"
    subnetwork: str | None = None
    disk_gb: int = 200
    disk_type: str | None = None
    service_account: str | None = None
    max_run_duration: float | None = None
    caller_cidr: str | None = None
    request_timeout: float = 30.0
    endpoint: str | None = None

    def __post_init__(self) -> None:
        names = ("project", "credentials_file", "image", "network", "subnetwork", "disk_type", "service_account")
        for name in (*names, "caller_cidr"):
            if (value := getattr(self, name)) is not None or name == "network":
                of_type(value, name, str, f"{name}='...'")
                if not value.strip():
                    raise SpecError(f"{name} must not be empty.")
        check_urls(self, "endpoint", optional=True)
        for name, example in (("regions", "['us-central1']"), ("zones", "['us-central1-a']")):
            object.__setattr__(self, name, strings(getattr(self, name), name, example))
        for name in ("project", "network", "subnetwork", "disk_type", "regions", "zones"):
            for each in (value,) if isinstance(value := getattr(self, name), str) else value or ():
                if not _NAME.fullmatch(each):
                    raise SpecError(f"{name} must have names like 'us-central1', but got {shown(each)}.")
        for zone in self.zones:
            if self.regions and zone.rpartition("-")[0] not in self.regions:
                raise SpecError(
                    f"zones has {zone!r}, which is in none of regions={list(self.regions)}; add its region."
                )
        if self.image is not None and not _IMAGE.fullmatch(self.image):
            raise SpecError(
                "image must be like 'projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64', "
                f"but got {shown(self.image)}."
            )
        number(self.disk_gb, "disk_gb", most=limits.GIB)
        seconds(self.request_timeout, "request_timeout")
        seconds(self.max_run_duration, "max_run_duration", optional=True, least=_RUN_AT_LEAST)
        if self.max_run_duration is not None and self.max_run_duration > _RUN_AT_MOST:
            raise SpecError(f"max_run_duration must be at most {_RUN_AT_MOST} seconds, which are 120 days.")
        if self.caller_cidr is not None:
            _check_ranges(self.caller_cidr)

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "gcp"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        return ActsOn(PROVIDER_FIELDS, "Machines of Google Cloud")

    @property
    def offers_ttl(self) -> float:
        """Seconds for which listed offers count as current."""
        return 86400.0

    def credentials(self) -> CredentialSource:
        """Look for the credentials."""
        place, _ = find_credentials(self)
        return CredentialSource(
            place,
            f"run `gcloud auth application-default login`, or set {_KEY_FILE} to the key file of a service account",
        )

    @property
    def policy(self) -> str:
        """The least permissions, as a custom role for `gcloud iam roles create`."""
        from skyward_providers.gcp.permissions import role  # circular: only for `%sky doctor`

        return role(with_account=self.service_account is not None)

    def create_provider(self) -> Provider:
        """Create the provider."""
        from skyward_providers.gcp.provider import GcpProvider  # circular: loaded when a pool opens

        return GcpProvider(self)


def _check_ranges(given: str) -> None:
    from ipaddress import IPv4Network

    for each in given.split(","):
        try:
            IPv4Network(each.strip(), strict=False)
        except ValueError:
            raise SpecError(
                f"caller_cidr must have IPv4 addresses, such as '203.0.113.7/32', but got {shown(given)}."
            ) from None


def find_credentials(settings: GCP) -> tuple[str, Path | None]:
    """Return the place of the credentials, and their file if it is one; an empty place if there are none."""
    if settings.credentials_file is not None:
        return "the settings", Path(settings.credentials_file).expanduser()
    if named := os.environ.get(_KEY_FILE, "").strip():
        return f"environment variable {_KEY_FILE}", Path(named).expanduser()
    directory = os.environ.get(_CONFIG_DIRECTORY) or "~/.config/gcloud"
    file = Path(directory).expanduser() / _USER_FILE
    if file.exists():
        return str(file), file
    try:
        on_google = _MACHINE.read_text().strip() == "Google Compute Engine"
    except OSError:
        on_google = False
    return ("the service account of this machine" if on_google else ""), None


def read_json(file: Path) -> Any:
    """Return the content of a credentials file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON.
    """
    return json.loads(file.read_text())
