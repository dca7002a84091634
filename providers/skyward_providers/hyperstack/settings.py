"""The settings of Hyperstack."""

from dataclasses import dataclass, field

from skyward.providers import SETUP_FIELDS, ActsOn, CredentialSource, Provider
from skyward.values.validation import Secret, seconds
from skyward_providers.api_settings import check_ranges, check_texts, check_urls, find_api_key

__all__ = ["Hyperstack", "find_key"]

_VARIABLE = "HYPERSTACK_API_KEY"


@dataclass(frozen=True, slots=True)
class Hyperstack:
    """Virtual machines of Hyperstack, with GPUs or without, rented by the minute.

    Each pool has an environment of its own in each region: a private network, with the pool's SSH key. A machine cannot
    delete itself: only `%sky reap` and the next pool of this computer end one whose client was killed.

    Attributes:
        api_key: the API key; None for `HYPERSTACK_API_KEY`.
        region: region to use, such as "CANADA-1"; None for all. `region` of the spec must be the same.
        image: name of an image; None for the newest Ubuntu, with CUDA for machines with GPUs.
        caller_cidr: IPv4 addresses that may connect over SSH, such as "203.0.113.7/32", separated by commas; None for
            the public address of this computer.
        request_timeout: seconds for one request.
        endpoint: another server with the same API; None for Hyperstack's.

    Example:
        with sky.Compute(provider=sky.Hyperstack(), accelerator="L40", nodes=2) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: a value is not allowed.
    """

    api_key: str | None = field(default=None, repr=False)
    region: str | None = None
    image: str | None = None
    caller_cidr: str | None = None
    request_timeout: float = 30.0
    endpoint: str | None = None

    def __post_init__(self) -> None:
        check_texts(self, "api_key", "region", "image", "caller_cidr")
        check_urls(self, "endpoint", optional=True)
        check_ranges(self.caller_cidr)
        seconds(self.request_timeout, "request_timeout")

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "hyperstack"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        fields = SETUP_FIELDS | {"accelerator", "vcpus", "memory_gb", "architecture", "region", "ttl"}
        return ActsOn(
            frozenset(fields),
            "Machines of Hyperstack have disks of a fixed size, and cannot end themselves",
        )

    @property
    def boot_timeout(self) -> float:
        """Seconds that a launched machine may take to run."""
        return 900.0

    @property
    def offers_ttl(self) -> float:
        """Seconds for which listed offers count as current."""
        return 3600.0

    def credentials(self) -> CredentialSource:
        """Look for the API key."""
        found, _ = find_key(self)
        return CredentialSource(found, f"set {_VARIABLE}, or give `sky.Hyperstack(api_key=...)`")

    @property
    def policy(self) -> str:
        """The least permissions of the API key."""
        return (
            "An API key of console.hyperstack.cloud/api-keys, of a user who may list, create and delete virtual "
            "machines, environments and key pairs, delete volumes, and list flavors, images and prices."
        )

    def create_provider(self) -> Provider:
        """Create the provider."""
        from skyward_providers.hyperstack.provider import HyperstackProvider  # circular: loaded when a pool opens

        return HyperstackProvider(self)


def find_key(settings: Hyperstack) -> tuple[str, Secret]:
    """Return the place of the API key and the key; empty strings if there is none."""
    return find_api_key(settings.api_key, _VARIABLE)
