"""Settings of `sky.AWS()`. Loads no SDK."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from skyward.errors import SpecError
from skyward.providers import PROVIDER_FIELDS, ActsOn, CredentialSource, Provider
from skyward.values.validation import choice, of_type, seconds, strings
from skyward_providers.api_settings import check_urls
from skyward_providers.aws.policy import policy_of
from skyward_providers.aws_account.settings import check_ranges, check_regions, find_credentials, require_sdk

__all__ = ["AWS"]

type SpotStrategy = Literal["price-capacity-optimized", "capacity-optimized", "lowest-price", "diversified"]


@dataclass(frozen=True, slots=True)
class AWS:
    """Machines of Amazon EC2.

    Each pool has a security group and launch templates of its own, which are removed with it. Machines are entered over
    SSH with a key of the pool, from the address of this computer only. A machine that loses its client terminates
    itself.

    Attributes:
        region: the region to launch in.
        regions: the regions to choose among; empty for `region` only.
        profile: profile of the AWS configuration; None for the SDK's default.
        ami: id of the image; None for Ubuntu, with NVIDIA's driver on machines with a GPU.
        username: user of `ami` that may log in with a key; None for root. Amazon Linux needs "ec2-user".
        ubuntu_version: version of Ubuntu on machines without a GPU.
        subnet_id: subnet to launch in; None for those of the default VPC.
        security_group_id: a security group that lets this computer in; None for one of the pool's own.
        instance_profile_arn: instance profile of the machines; None for none.
        allocation_strategy: how EC2 chooses among spot machines.
        exclude_burstable: True to leave out types whose CPU is limited by credits, such as t3.
        public_address: False to enter machines by their private address, from the same network.
        caller_cidr: ranges of addresses that may enter, separated by commas; None for this computer's public address.
        caller_address_url: service that answers with this computer's public address.
        request_timeout: timeout of one request in seconds.

    Example:
        with sky.Compute(provider=sky.AWS(region="eu-west-1"), accelerator="L4", nodes=2) as pool:
            train(0.1) >> pool

    Raises:
        SpecError: a value is not allowed.
    """

    region: str = "us-east-1"
    regions: Sequence[str] = ()
    profile: str | None = None
    ami: str | None = None
    username: str | None = None
    ubuntu_version: str = "24.04"
    subnet_id: str | None = None
    security_group_id: str | None = None
    instance_profile_arn: str | None = None
    allocation_strategy: SpotStrategy = "price-capacity-optimized"
    exclude_burstable: bool = False
    public_address: bool = True
    caller_cidr: str | None = None
    caller_address_url: str = "https://checkip.amazonaws.com"
    request_timeout: float = 30.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "regions", strings(self.regions, "regions", "['us-east-1', 'eu-west-1']"))
        check_regions((self.region, *self.regions))
        of_type(self.ubuntu_version, "ubuntu_version", str, "ubuntu_version='24.04'")
        check_urls(self, "caller_address_url")
        for name in ("profile", "ami", "username", "subnet_id", "security_group_id", "instance_profile_arn"):
            if getattr(self, name) is not None:
                of_type(getattr(self, name), name, str, f"{name}='...'")
        for name in ("ami", "subnet_id", "security_group_id"):
            if getattr(self, name) is not None and len(self.all_regions) > 1:
                raise SpecError(f"{name} belongs to one region: leave out `regions`, and set `region` to it.")
        for name in ("exclude_burstable", "public_address"):
            of_type(getattr(self, name), name, bool, f"{name}=True")
        choice(self.allocation_strategy, "allocation_strategy", SpotStrategy)
        seconds(self.request_timeout, "request_timeout")
        check_ranges(self.caller_cidr)

    @property
    def all_regions(self) -> tuple[str, ...]:
        """The regions that may be used, each once."""
        return tuple(dict.fromkeys(self.regions or (self.region,)))

    @property
    def name(self) -> str:
        """Name of the provider, as `--provider` takes it."""
        return "aws"

    @property
    def acts_on(self) -> ActsOn:
        """The fields of a spec that have an effect."""
        return ActsOn(PROVIDER_FIELDS, "Machines of EC2")

    @property
    def offers_ttl(self) -> float:
        """Seconds for which offers are current: spot prices change a few times a day."""
        return 3600.0

    @property
    def policy(self) -> str:
        """The least permissions that the provider needs, as an IAM policy in JSON."""
        return policy_of(self.instance_profile_arn)

    def credentials(self) -> CredentialSource:
        """Look for credentials where the SDK would, without a request."""
        return find_credentials(self.profile)

    def create_provider(self) -> Provider:
        """Create the provider. The SDK is loaded with the first request.

        Raises:
            ProviderMissingError: the SDK is not installed.
        """
        require_sdk(self.name)
        from skyward_providers.aws.provider import AWSProvider  # circular: loaded when a pool opens

        return AWSProvider(self)
