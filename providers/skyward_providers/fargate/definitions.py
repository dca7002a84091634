"""Names of what a pool has in ECS, and its task definitions.

A family of task definitions belongs to one pool and offer. A revision is registered for its content, so a preparation
that is repeated finds it. The names begin with the owner, by which the sweep finds them.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from skyward.errors import ProvisioningError, SpecError
from skyward.providers import Cluster
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError
from skyward_providers.cloud import container_start
from skyward_providers.fargate.offers import size_of
from skyward_providers.fargate.settings import Fargate
from skyward_providers.fargate.sizes import DISK_AT_LEAST, DISK_AT_MOST

__all__ = [
    "CONTAINER",
    "CONTENT_TAG",
    "definition_of",
    "ecs_tags",
    "families_of",
    "family_name",
    "name_of_owner",
    "pool_in",
    "register",
    "remove_family",
]

CONTAINER: Final = "node"
"""Name of a task's container."""

CONTENT_TAG: Final = "skyward-content"
"""Tag of a task definition with a digest of its content."""

_STOP_WITHIN = 120
"""Seconds between SIGTERM and SIGKILL: the most that Fargate has, and the notice of spot tasks."""

_AT_ONCE = 10
"""Task definitions that one call deletes."""

_CPU = {"x86_64": "X86_64", "arm64": "ARM64"}


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def name_of_owner(owner: str) -> str:
    """Return the beginning of the names of everything of an owner."""
    return f"skyward-{_digest(owner, 6)}-"


def family_name(owner: str, pool: str, offer: str) -> str:
    """Return the name of the task definitions of a pool for an offer."""
    return f"{name_of_owner(owner)}{pool}-{_digest(offer, 4)}"


def pool_in(family: str) -> str:
    """Return the pool of a family."""
    return family.rpartition("-")[0].split("-", 2)[2]


def ecs_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as ECS takes them."""
    return [{"key": key, "value": value} for key, value in tags.items()]


def definition_of(settings: Fargate, cluster: Cluster) -> dict[str, Any]:
    """Return the content of a task definition.

    Raises:
        SpecError: the disk is larger than Fargate's.
    """
    spec, offer = cluster.spec, cluster.offer
    cpu, memory = size_of(offer).units
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": settings.container_image.replace("{python}", spec.image.resolved_python),
        "essential": True,
        "user": "0",
        "entryPoint": ["sh", "-c"],
        "command": [
            container_start(
                '"$SKYWARD_CLIENT_KEY"', '"$SKYWARD_HOST_KEY"', "exit 0", notice='"${SKYWARD_STOP_NOTICE:-}"'
            )
        ],
        "stopTimeout": _STOP_WITHIN,
    }
    if settings.log_group is not None:
        options = {
            "awslogs-group": settings.log_group,
            "awslogs-region": offer.region,
            "awslogs-stream-prefix": "skyward",
        }
        container["logConfiguration"] = {"logDriver": "awslogs", "options": options}
    content: dict[str, Any] = {
        "requiresCompatibilities": ["FARGATE"],
        "networkMode": "awsvpc",
        "cpu": cpu,
        "memory": memory,
        "runtimePlatform": {
            "cpuArchitecture": _CPU[offer.instance_type.architecture],
            "operatingSystemFamily": "LINUX",
        },
        "containerDefinitions": [container],
    }
    if settings.execution_role_arn is not None:
        content["executionRoleArn"] = settings.execution_role_arn
    if settings.task_role_arn is not None:
        content["taskRoleArn"] = settings.task_role_arn
    if spec.disk_gb is not None and spec.disk_gb > DISK_AT_LEAST:
        if spec.disk_gb > DISK_AT_MOST:
            raise SpecError(
                f"A task of Fargate has at most {DISK_AT_MOST} GB of disk; lower `disk_gb`, or use sky.AWS()."
            )
        content["ephemeralStorage"] = {"sizeInGiB": int(-(-spec.disk_gb // 1))}
    return content


async def register(
    account: Account, region: str, family: str, content: Mapping[str, Any], tags: Mapping[str, str]
) -> str:
    """Register a task definition, unless the newest of its family has that content; return its ARN."""
    digest = _digest(json.dumps(content, sort_keys=True), 8)
    arns = await _revisions(account, region, family, "ACTIVE")
    if arns:
        newest = max(arns, key=lambda arn: int(arn.rpartition(":")[2]))
        found = await account.call("ecs", "describe_task_definition", region, taskDefinition=newest, include=["TAGS"])
        if {"key": CONTENT_TAG, "value": digest} in found.get("tags", ()):
            return newest
    made = await account.call(
        "ecs",
        "register_task_definition",
        region,
        family=family,
        tags=ecs_tags({**tags, CONTENT_TAG: digest}),
        **content,
    )
    return str(made["taskDefinition"]["taskDefinitionArn"])


async def _revisions(account: Account, region: str, family: str, status: str) -> list[str]:
    return await account.all(
        "ecs", "list_task_definitions", region, "taskDefinitionArns", familyPrefix=family, status=status
    )


async def families_of(account: Account, region: str, start: str, *, active: bool) -> list[str]:
    """Return the families whose name begins with `start`, and that have revisions: active ones only, or any."""
    found = await account.all(
        "ecs", "list_task_definition_families", region, "families", familyPrefix=start, status="ALL"
    )
    pattern = re.compile(re.escape(start) + r".*[0-9a-f]{8}")
    kept = []
    for family in found:
        if not pattern.fullmatch(family):
            continue
        left = await _revisions(account, region, family, "ACTIVE")
        if left or (not active and await _revisions(account, region, family, "INACTIVE")):
            kept.append(family)
    return kept


async def remove_family(account: Account, region: str, family: str) -> None:
    """Deregister and delete all task definitions of a family. Idempotent.

    Raises:
        ProvisioningError: one is left.
    """
    active = await _revisions(account, region, family, "ACTIVE")
    for arn in active:
        try:
            await account.call("ecs", "deregister_task_definition", region, taskDefinition=arn)
        except CallError as error:
            if error.code != "ClientException":  # it is gone
                raise
    # The listing may lack those that were deregistered a moment ago.
    left = [*dict.fromkeys((*active, *await _revisions(account, region, family, "INACTIVE")))]
    for first in range(0, len(left), _AT_ONCE):
        answer = await account.call(
            "ecs", "delete_task_definitions", region, taskDefinitions=left[first : first + _AT_ONCE]
        )
        _check_deleted(answer.get("failures", ()))


def _check_deleted(failures: Iterable[Mapping[str, str]]) -> None:
    for each in failures:
        reason = each.get("reason") or each.get("detail") or ""
        if "not exist" not in reason:
            raise ProvisioningError(f"Task definition {each.get('arn')} could not be deleted ({reason}).")
