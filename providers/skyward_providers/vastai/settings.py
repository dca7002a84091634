"""The settings of Vast.ai."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skyward.errors import SpecError
from skyward.providers import PROVIDER_FIELDS, ActsOn, CredentialSource, Provider
from skyward.values import limits
from skyward.values.validation import Secret, number, of_type, seconds, strings
from skyward_providers.api_settings import check_texts, check_urls, find_api_key

__all__ = ["VastAI", "find_key"]

_VARIABLE = "VAST_API_KEY"


@dataclass(frozen=True, slots=True)
class VastAI:
    """Containers with GPUs on machines of many hosts, rented on the marketplace Vast.ai.

    Each offer is one machine, which another renter may take first; then a similar one is rented, for at most half more,
    or for at most `max_hourly_cost` of the spec. Spot machines are bids: a higher bid of another renter pauses them.
    The machines have no network between them, so the nodes form no cluster: tasks work, collections do not.

    Attributes:
        api_key: the API key; None for `VAST_API_KEY`, or the key that the command `vastai` has saved.
        min_reliability: least reliability of a machine, from 0 to 1.
        verified_only: True for machines that Vast.ai has verified, only.
        min_cuda: least version of CUDA that the driver of a machine supports.
        geolocation: two-letter codes of countries to use; empty for all. `region` of the spec is one of them.
        bid_multiplier: bid for a spot machine, as a multiple of the lowest bid that is accepted.
        docker_image: image of the containers; None for Vast.ai's own, with the CUDA that suits the machine.
        disk_gb: disk of a container, GB, where the spec does not set `disk_gb`.
        require_direct_port: True to use no machine that can be reached through Vast.ai's proxy only, which is slower.
        min_inet_down, min_inet_up: least download and upload rates of a machine, Mb/s; None for any.
        request_timeout: seconds for one request.
        endpoint: another server with the same API; None for Vast.ai's.

    Example:
        with sky.Compute(provider=sky.VastAI(geolocation=["SE", "NO"]), accelerator="RTX_4090", nodes=2) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: a value is not allowed.
    """

    api_key: str | None = field(default=None, repr=False)
    min_reliability: float = 0.95
    verified_only: bool = True
    min_cuda: float = 12.0
    geolocation: Sequence[str] = ()
    bid_multiplier: float = 1.2
    docker_image: str | None = None
    disk_gb: int = 100
    require_direct_port: bool = False
    min_inet_down: float | None = None
    min_inet_up: float | None = None
    request_timeout: float = 30.0
    endpoint: str | None = None

    def __post_init__(self) -> None:
        check_texts(self, "api_key", "docker_image")
        check_urls(self, "endpoint", optional=True)
        number(self.min_reliability, "min_reliability", zero=True, most=1)
        number(self.min_cuda, "min_cuda", zero=True, most=100)
        number(self.bid_multiplier, "bid_multiplier", most=100)
        if self.bid_multiplier < 1:
            raise SpecError(
                f"bid_multiplier must be at least 1, but got {self.bid_multiplier:g}: a lower bid gets none."
            )
        number(self.disk_gb, "disk_gb", most=limits.GIB)
        for name in ("min_inet_down", "min_inet_up"):
            if (value := getattr(self, name)) is not None:
                number(value, name, zero=True, most=1e6)
        for name in ("verified_only", "require_direct_port"):
            of_type(getattr(self, name), name, bool, f"{name}=True")
        seconds(self.request_timeout, "request_timeout")
        codes = strings(self.geolocation, "geolocation", "['SE', 'NO']")
        for each in codes:
            if len(each) != 2 or not each.isalpha():
                raise SpecError(f"geolocation takes two-letter codes of countries, such as 'SE', but got {each!r}.")
        object.__setattr__(self, "geolocation", tuple(each.upper() for each in codes))

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "vastai"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        return ActsOn(PROVIDER_FIELDS, "Machines of Vast.ai")

    @property
    def boot_timeout(self) -> float:
        """Seconds that a launched machine may take to run."""
        return 900.0

    @property
    def offers_ttl(self) -> float:
        """Seconds for which listed offers count as current."""
        return 300.0

    @property
    def isolated_nodes(self) -> bool:
        """True, because the machines of different hosts do not reach each other."""
        return True

    def credentials(self) -> CredentialSource:
        """Look for the API key."""
        found, _ = find_key(self)
        return CredentialSource(found, f"set {_VARIABLE}, run `vastai set api-key`, or give `sky.VastAI(api_key=...)`")

    @property
    def policy(self) -> str:
        """The least permissions of the API key; "" because it is not known."""
        return ""

    def create_provider(self) -> Provider:
        """Create the provider."""
        from skyward_providers.vastai.provider import VastAIProvider  # circular: loaded when a pool opens

        return VastAIProvider(self)


def find_key(settings: VastAI) -> tuple[str, Secret]:
    """Return the place of the API key and the key; empty strings if there is none."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    files = (Path(home, "vastai", "vast_api_key"), Path("~/.vast_api_key"))
    return find_api_key(settings.api_key, _VARIABLE, dict.fromkeys(files, str))
