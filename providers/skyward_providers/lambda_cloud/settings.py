"""The settings of Lambda."""

from dataclasses import dataclass, field

from skyward.providers import SETUP_FIELDS, ActsOn, CredentialSource, Provider
from skyward.values.validation import Secret, seconds
from skyward_providers.api_settings import check_ranges, check_texts, check_urls, find_api_key

__all__ = ["Lambda", "find_key"]

_VARIABLE = "LAMBDA_API_KEY"


@dataclass(frozen=True, slots=True)
class Lambda:
    """Instances of Lambda, the GPU cloud (not AWS Lambda): virtual machines with GPUs, rented by the minute.

    An instance cannot terminate itself: only `%sky reap` and the next pool of this computer end one whose client was
    killed. Lambda allows one launch every 12 seconds.

    Attributes:
        api_key: the API key; None for `LAMBDA_API_KEY`.
        region: region to use, such as "us-east-1"; None for all. `region` of the spec must be the same.
        image: family of images, such as "lambda-stack-24-04"; None for the newest Lambda Stack.
        caller_cidr: IPv4 addresses that may connect over SSH, such as "203.0.113.7/32", separated by commas; None for
            the public address of this computer. Rules that the account has for all its instances apply as well.
        request_timeout: seconds for one request.
        endpoint: another server with the same API; None for Lambda's.

    Example:
        with sky.Compute(provider=sky.Lambda(), accelerator="A10", nodes=2) as pool:
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
        return "lambda"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        fields = SETUP_FIELDS | {"accelerator", "vcpus", "memory_gb", "architecture", "region", "ttl"}
        return ActsOn(
            frozenset(fields),
            "Instances of Lambda have disks of a fixed size, and cannot end themselves",
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
        return CredentialSource(found, f"set {_VARIABLE}, or give `sky.Lambda(api_key=...)`")

    @property
    def policy(self) -> str:
        """The least permissions of the API key."""
        return "An API key of cloud.lambda.ai/api-keys. Lambda's keys have all permissions of the account."

    def create_provider(self) -> Provider:
        """Create the provider."""
        from skyward_providers.lambda_cloud.provider import LambdaProvider  # circular: loaded when a pool opens

        return LambdaProvider(self)


def find_key(settings: Lambda) -> tuple[str, Secret]:
    """Return the place of the API key and the key; empty strings if there is none."""
    return find_api_key(settings.api_key, _VARIABLE)
