"""Resources that Skyward left in an account, found by their names and tags in every region of the settings."""

import asyncio
from collections.abc import Sequence

from skyward.providers import Leftover
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.network import delete_group, is_group_of_tasks, tags_of
from skyward_providers.fargate.definitions import families_of, name_of_owner, pool_in, remove_family
from skyward_providers.fargate.ecs_clusters import delete_cluster
from skyward_providers.fargate.listing import list_tasks, stop_task
from skyward_providers.fargate.tasks import tags_of_task, task_id

__all__ = ["find_leftovers", "remove_leftover", "started_by"]


def started_by(owner: str) -> str:
    """Return by whom the tasks of an owner are started, as ECS lists them."""
    return name_of_owner(owner).rstrip("-")


async def find_leftovers(account: Account, regions: Sequence[str], owner: str, cluster: str | None) -> list[Leftover]:
    """Return what belongs to `owner`; `cluster` is the ECS cluster of the user."""
    found = await asyncio.gather(*(_in_region(account, region, owner, cluster) for region in regions))
    return [each for region in found for each in region]


async def _in_region(account: Account, region: str, owner: str, named: str | None) -> list[Leftover]:
    start = name_of_owner(owner)
    ours = [{"Name": "tag:skyward-owner", "Values": [owner]}]
    arns, families, groups = await asyncio.gather(
        account.all("ecs", "list_clusters", region, "clusterArns"),
        families_of(account, region, start, active=False),
        account.all("ec2", "describe_security_groups", region, "SecurityGroups", Filters=ours),
    )
    own = [name for name in map(task_id, arns) if name.startswith(start)]
    clusters = [*own, *([named] if named is not None else [])]
    listed = await asyncio.gather(
        *(list_tasks(account, region, name, startedBy=started_by(owner)) for name in clusters)
    )
    tasks = [
        Leftover("machine", task_id(each["taskArn"]), tags.get("skyward-pool", ""), region, specific={"cluster": name})
        for name, some in zip(clusters, listed, strict=True)
        for each in some
        if (tags := tags_of_task(each)).get("skyward-owner") == owner
    ]
    return [  # in the order in which they can be removed
        *tasks,
        *(Leftover("task definition", each, pool_in(each), region, 0.0) for each in families),
        *(Leftover("ECS cluster", each, each.removeprefix(start), region, 0.0) for each in own),
        *(
            Leftover("security group", each["GroupId"], tags_of(each).get("skyward-pool", ""), region, 0.0)
            for each in groups
            if is_group_of_tasks(each["GroupName"])
        ),
    ]


async def remove_leftover(account: Account, leftover: Leftover) -> None:
    """Remove a leftover. Idempotent.

    Raises:
        CallError, ProvisioningError: it could not be removed.
    """
    region = leftover.region
    match leftover.kind:
        case "machine":
            await stop_task(account, region, leftover.specific["cluster"], leftover.id)
        case "task definition":
            await remove_family(account, region, leftover.id)
        case "ECS cluster":
            await delete_cluster(account, region, leftover.id)
        case "security group":
            await delete_group(account, region, leftover.id)
