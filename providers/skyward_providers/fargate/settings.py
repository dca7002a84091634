"""Settings of `sky.Fargate()`. Loads no SDK."""

from collections.abc import Sequence
from dataclasses import dataclass

from skyward.errors import SpecError
from skyward.providers import SETUP_FIELDS, ActsOn, CredentialSource, Provider
from skyward.values.validation import of_type, seconds, strings
from skyward_providers.api_settings import check_urls
from skyward_providers.aws_account.settings import check_ranges, check_regions, find_credentials, require_sdk

__all__ = ["Fargate"]

_TEXTS = (
    "profile",
    "cluster",
    "container_image",
    "subnet_id",
    "security_group_id",
    "execution_role_arn",
    "task_role_arn",
    "log_group",
    "caller_cidr",
)
_OF_ONE_REGION = ("cluster", "subnet_id", "security_group_id", "log_group")


@dataclass(frozen=True, slots=True)
class Fargate:
    """Tasks of AWS Fargate: containers with up to 16 vCPUs and 120 GB, billed by the second, without accelerators.

    Each pool has an ECS cluster, task definitions and a security group of its own, which are removed with it. Tasks are
    entered over SSH with a key of the pool, from the address of this computer only. A task that loses its client ends
    itself.

    Attributes:
        region: the region to launch in.
        regions: the regions to choose among; empty for `region` only.
        profile: profile of the AWS configuration; None for the SDK's default.
        cluster: name of an ECS cluster to use; None for one of the pool's own.
        container_image: image of the tasks, which run as root; "{python}" is replaced by the version of Python. It
            needs `sh`, `grep` and `sleep`. One with an OpenSSH server starts faster, since it is installed otherwise.
        subnet_id: subnet to launch in; None for those of the default VPC.
        security_group_id: a security group that lets this computer in; None for one of the pool's own.
        execution_role_arn: role with which ECS pulls a private image and writes logs; None for public images.
        task_role_arn: role whose rights the tasks have; None for none.
        log_group: log group of CloudWatch for the output of the tasks' first process; None for no log.
        public_address: False to enter tasks by their private address, from the same network.
        caller_cidr: ranges of addresses that may enter, separated by commas; None for this computer's public address.
        caller_address_url: service that answers with this computer's public address.
        spot_prices_url: where AWS publishes the prices of spot tasks.
        request_timeout: timeout of one request in seconds.

    Example:
        with sky.Compute(provider=sky.Fargate(region="eu-west-1"), vcpus=4, memory_gb=16, nodes=4) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: a value is not allowed.
    """

    region: str = "us-east-1"
    regions: Sequence[str] = ()
    profile: str | None = None
    cluster: str | None = None
    container_image: str = "public.ecr.aws/docker/library/python:{python}-slim"
    subnet_id: str | None = None
    security_group_id: str | None = None
    execution_role_arn: str | None = None
    task_role_arn: str | None = None
    log_group: str | None = None
    public_address: bool = True
    caller_cidr: str | None = None
    caller_address_url: str = "https://checkip.amazonaws.com"
    spot_prices_url: str = "https://dftu77xade0tc.cloudfront.net/fargate-spot-prices.json"
    request_timeout: float = 30.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "regions", strings(self.regions, "regions", "['us-east-1', 'eu-west-1']"))
        check_regions((self.region, *self.regions))
        for name in _TEXTS:
            if (value := getattr(self, name)) is not None:
                of_type(value, name, str, f"{name}='...'")
                if not value.strip():
                    raise SpecError(f"{name} must not be empty.")
        check_urls(self, "caller_address_url", "spot_prices_url")
        for name in _OF_ONE_REGION:
            if getattr(self, name) is not None and len(self.all_regions) > 1:
                raise SpecError(f"{name} belongs to one region: leave out `regions`, and set `region` to it.")
        if self.log_group is not None and self.execution_role_arn is None:
            raise SpecError("log_group needs the role with which ECS writes logs: set `execution_role_arn` too.")
        of_type(self.public_address, "public_address", bool, "public_address=True")
        seconds(self.request_timeout, "request_timeout")
        check_ranges(self.caller_cidr)

    @property
    def all_regions(self) -> tuple[str, ...]:
        """The regions that may be used, each once."""
        return tuple(dict.fromkeys(self.regions or (self.region,)))

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "fargate"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        fields = SETUP_FIELDS | {"accelerator", "vcpus", "memory_gb", "disk_gb", "architecture", "region", "ttl"}
        lacks = {"accelerator": "Fargate has no accelerators; `sky.AWS()` launches machines that have them"}
        return ActsOn(frozenset(fields), "Tasks of Fargate cannot be kept warm", lacks=lacks)

    @property
    def boot_timeout(self) -> float:
        """Seconds that a launched task may take to run: it may pull a large image."""
        return 600.0

    @property
    def offers_ttl(self) -> float:
        """Seconds for which offers are current: spot prices change a few times a day."""
        return 3600.0

    @property
    def policy(self) -> str:
        """The least permissions that the provider needs, as an IAM policy in JSON."""
        from skyward_providers.fargate.policy import policy_of  # circular: only for `%sky doctor`

        return policy_of(self.execution_role_arn, self.task_role_arn)

    def credentials(self) -> CredentialSource:
        """Look for credentials where the SDK would, without a request."""
        return find_credentials(self.profile)

    def create_provider(self) -> Provider:
        """Create the provider. The SDK is loaded with the first request.

        Raises:
            ProviderMissingError: the SDK is not installed.
        """
        require_sdk(self.name)
        from skyward_providers.fargate.provider import FargateProvider  # circular: loaded when a pool opens

        return FargateProvider(self)
