"""Checks of an account: its credentials, and what they may do. Nothing is created."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from skyward.errors import ProvisioningError
from skyward.providers import Check
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.checks import check_dry_run, check_identity, check_prices
from skyward_providers.aws_account.failures import CallError, explained

__all__ = ["check_account"]

_TEMPLATE: Final[dict[str, Any]] = {"LaunchTemplateName": "skyward-check", "Version": "1"}
_TAGS: Final = [{"Key": "skyward-owner", "Value": "check"}]


def _tagged(*kinds: str) -> dict[str, Any]:
    """Return tags for everything that a call creates: the policy asks for them, for each kind of resource."""
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": _TAGS} for kind in kinds]}


_DRY_RUNS: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    ("may list machines", "describe_instances", {}),
    ("may list types of machines", "describe_instance_types", {}),
    ("may list spot prices", "describe_spot_price_history", {}),
    (
        "may create security groups",
        "create_security_group",
        {"GroupName": "skyward-check", "Description": "Check", **_tagged("security-group")},
    ),
    (
        "may create launch templates",
        "create_launch_template",
        {
            "LaunchTemplateName": "skyward-check",
            "LaunchTemplateData": {"InstanceType": "t3.micro"},
            **_tagged("launch-template"),
        },
    ),
    (
        "may launch machines",
        "run_instances",
        {
            "MinCount": 1,
            "MaxCount": 1,
            "InstanceType": "t3.micro",
            **_tagged("instance", "volume", "network-interface"),
        },
    ),
    (
        "may launch fleets",
        "create_fleet",
        {
            "Type": "instant",
            "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": _TEMPLATE}],
            "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
            **_tagged("fleet"),
        },
    ),
)
"""Calls that AWS checks and does not carry out: what each shows, its name and arguments."""

_PARAMETER: Final = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"


async def check_account(account: Account, region: str) -> list[Check]:
    """Check the credentials and, if they are valid, each permission in `region`."""
    identity = await check_identity(account, region)
    if identity.problem:
        return [identity]
    image = ""
    try:
        image = (await account.call("ssm", "get_parameter", region, Name=_PARAMETER))["Parameter"]["Value"]
        found = Check("may look up images")
    except (CallError, ProvisioningError) as error:
        found = Check("may look up images", str(explained(error) if isinstance(error, CallError) else error))

    def dry_run(what: str, name: str, values: dict[str, Any]) -> Awaitable[Check]:
        images: dict[str, Any] = {"ImageId": image} if name == "run_instances" and image else {}
        return check_dry_run(account, what, name, region, {**values, **images})

    dry = (dry_run(what, name, values) for what, name, values in _DRY_RUNS)
    return [identity, found, *await asyncio.gather(check_prices(account, "AmazonEC2"), *dry)]
