"""Checks of an account: its credentials, and what they may do. Nothing is created."""

import asyncio
from typing import Any, Final

from skyward.providers import Check
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.checks import (
    check_call,
    check_dry_run,
    check_identity,
    check_prices,
    check_refused,
)
from skyward_providers.fargate.definitions import ecs_tags

__all__ = ["check_account"]

_NOTHING: Final = "skyward-check-does-not-exist"
_TAGS: Final = ecs_tags({"skyward-owner": "check"})
_GROUP: Final[dict[str, Any]] = {
    "GroupName": "skyward-check",
    "Description": "Check",
    "TagSpecifications": [{"ResourceType": "security-group", "Tags": [{"Key": "skyward-owner", "Value": "check"}]}],
}
_LAUNCH: Final[dict[str, Any]] = {
    "cluster": _NOTHING,
    "taskDefinition": _NOTHING,
    "launchType": "FARGATE",
    "tags": _TAGS,
}
_DEFINITION: Final[dict[str, Any]] = {
    "family": _NOTHING,
    "requiresCompatibilities": ["FARGATE"],
    "networkMode": "awsvpc",
    "cpu": "1",  # which is no size of a task
    "memory": "1",
    "containerDefinitions": [{"name": "check", "image": "check"}],
    "tags": _TAGS,
}


async def check_account(account: Account, region: str) -> list[Check]:
    """Check the credentials and, if they are valid, each permission in `region` that can be checked."""
    identity = await check_identity(account, region)
    if identity.problem:
        return [identity]
    checks = await asyncio.gather(
        check_prices(account, "AmazonECS"),
        check_call(account, "may list clusters", "ecs", "list_clusters", region),
        check_call(account, "may list task definitions", "ecs", "list_task_definition_families", region),
        check_dry_run(account, "may list subnets", "describe_subnets", region, {}),
        check_dry_run(account, "may list network interfaces", "describe_network_interfaces", region, {}),
        check_dry_run(account, "may create security groups", "create_security_group", region, _GROUP),
        check_refused(account, "may register task definitions", "ecs", "register_task_definition", region, _DEFINITION),
        check_refused(account, "may launch tasks", "ecs", "run_task", region, _LAUNCH),
    )
    return [identity, *checks]
