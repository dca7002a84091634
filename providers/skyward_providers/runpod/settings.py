"""The settings of RunPod."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from skyward.providers import PROVIDER_FIELDS, ActsOn, CredentialSource, Provider
from skyward.values import limits
from skyward.values.validation import Secret, choice, number, seconds, strings
from skyward_providers.api_settings import check_texts, check_urls, find_api_key

__all__ = ["RunPod", "find_key"]

type CloudType = Literal["secure", "community", "any"]

_VARIABLE = "RUNPOD_API_KEY"


@dataclass(frozen=True, slots=True)
class RunPod:
    """Pods of RunPod: containers with GPUs, rented by the second.

    Pods have no private network between them, so the nodes form no cluster: tasks work, collections do not.

    Attributes:
        api_key: the API key; None for `RUNPOD_API_KEY`, or the key in `~/.runpod/config.toml`.
        cloud_type: RunPod's own data centers ("secure"), those of partners ("community"), or "any".
        container_image: image of the pods; None for one with CUDA and Ubuntu.
        container_disk_gb: disk of a pod, GB, where the spec does not set `disk_gb`.
        data_center_ids: data centers to use; empty for all. `region` of the spec is one of them.
        country_codes: countries to use; empty for all.
        request_timeout: seconds for one request.
        endpoint: another server with the same API; None for RunPod's.

    Example:
        with sky.Compute(provider=sky.RunPod(), accelerator="RTX_4090", nodes=2) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: a value is not allowed.
    """

    api_key: str | None = field(default=None, repr=False)
    cloud_type: CloudType = "secure"
    container_image: str | None = None
    container_disk_gb: int = 50
    data_center_ids: Sequence[str] = ()
    country_codes: Sequence[str] = ()
    request_timeout: float = 30.0
    endpoint: str | None = None

    def __post_init__(self) -> None:
        check_texts(self, "api_key", "container_image")
        check_urls(self, "endpoint", optional=True)
        choice(self.cloud_type, "cloud_type", CloudType)
        number(self.container_disk_gb, "container_disk_gb", most=limits.GIB)
        seconds(self.request_timeout, "request_timeout")
        for name, example in (("data_center_ids", "['EU-RO-1']"), ("country_codes", "['RO']")):
            object.__setattr__(self, name, strings(getattr(self, name), name, example))

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "runpod"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        return ActsOn(PROVIDER_FIELDS, "Pods of RunPod")

    @property
    def boot_timeout(self) -> float:
        """Seconds that a launched machine may take to run."""
        return 900.0

    @property
    def offers_ttl(self) -> float:
        """Seconds for which listed offers count as current."""
        return 3600.0

    @property
    def isolated_nodes(self) -> bool:
        """True, because pods do not reach each other."""
        return True

    def credentials(self) -> CredentialSource:
        """Look for the API key."""
        found, _ = find_key(self)
        return CredentialSource(found, f"set {_VARIABLE}, or give `sky.RunPod(api_key=...)`")

    @property
    def policy(self) -> str:
        """The least permissions of the API key."""
        return "An API key with the permission 'api.runpod.io/graphql: read', and 'rest.runpod.io: read and write'."

    def create_provider(self) -> Provider:
        """Create the provider."""
        from skyward_providers.runpod.provider import RunPodProvider  # circular: loaded when a pool opens

        return RunPodProvider(self)


def find_key(settings: RunPod) -> tuple[str, Secret]:
    """Return the place of the API key and the key; empty strings if there is none."""
    return find_api_key(settings.api_key, _VARIABLE, {Path("~/.runpod/config.toml"): _key_in})


def _key_in(text: str) -> str | None:
    """Return the key in the file of RunPod's own command."""
    words = tomllib.loads(text)
    table = words.get("default", words)
    return table.get("api_key", table.get("apikey")) if isinstance(table, dict) else None
