"""Statements of IAM policies."""

import json
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["BEING_TAGGED", "LOOK_AT_NETWORKS", "TAGGED", "of_ec2", "passing", "policy_text", "statement"]

TAGGED: Final[dict[str, Any]] = {"Null": {"aws:ResourceTag/skyward-owner": "false"}}
BEING_TAGGED: Final[dict[str, Any]] = {"Null": {"aws:RequestTag/skyward-owner": "false"}}
"""Conditions: the resource has Skyward's tag, or gets it in the same call."""

LOOK_AT_NETWORKS: Final = [
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "pricing:GetProducts",
    "sts:GetCallerIdentity",
]
"""Calls of every provider that take no resource."""


def statement(name: str, actions: Sequence[str], resource: Any = "*", condition: Any = None) -> dict[str, Any]:
    """Return a statement that allows actions."""
    made = {"Sid": name, "Effect": "Allow", "Action": sorted(actions), "Resource": resource}
    return made if condition is None else {**made, "Condition": condition}


def passing(service: str, *roles: str | None) -> list[dict[str, Any]]:
    """Return a statement that allows giving roles to a service; none without roles."""
    given = sorted({role for role in roles if role is not None})
    condition = {"StringEquals": {"iam:PassedToService": service}}
    return [statement("GiveRoles", ["iam:PassRole"], given, condition)] if given else []


def of_ec2(*kinds: str) -> list[str]:
    """Return all resources of some kinds of EC2."""
    return [f"arn:aws:ec2:*:*:{kind}/*" for kind in kinds]


def policy_text(statements: Sequence[dict[str, Any]]) -> str:
    """Return a policy in JSON, ready to paste."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)}, indent=2)
