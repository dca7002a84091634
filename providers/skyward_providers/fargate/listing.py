"""Listings of tasks, with their public addresses."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError
from skyward_providers.cloud import SharedListing
from skyward_providers.fargate.tasks import has_started, interface_of, task_id

__all__ = ["TaskWatch", "describe_tasks", "list_tasks", "stop_task"]

_AT_ONCE = 100
"""Tasks that one call describes."""


async def describe_tasks(account: Account, region: str, cluster: str, ids: Iterable[str]) -> list[Mapping[str, Any]]:
    """Return tasks by id; those that ECS does not know, or not yet, are missing."""
    wanted = list(ids)
    found: list[Mapping[str, Any]] = []
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        try:
            answer = await account.call("ecs", "describe_tasks", region, cluster=cluster, tasks=some, include=["TAGS"])
        except CallError as error:
            if error.code != "ClusterNotFoundException":
                raise
            return []
        found += answer.get("tasks", ())
    return found


async def list_tasks(account: Account, region: str, cluster: str, **chosen: str) -> list[Mapping[str, Any]]:
    """Return the tasks of a cluster that have not been stopped; `chosen` is one filter."""
    try:
        arns = await account.all("ecs", "list_tasks", region, "taskArns", cluster=cluster, **chosen)
    except CallError as error:
        if error.code != "ClusterNotFoundException":
            raise
        return []
    described = await describe_tasks(account, region, cluster, map(task_id, arns))
    return [each for each in described if each.get("desiredStatus") != "STOPPED"]


async def stop_task(account: Account, region: str, cluster: str, task: str) -> bool:
    """Stop a task; return whether ECS knows it. Idempotent."""
    try:
        await account.call("ecs", "stop_task", region, cluster=cluster, task=task, reason="Ended by Skyward")
    except CallError as error:
        unknown = error.code == "InvalidParameterException" and "not found" in error.detail
        if not unknown and error.code != "ClusterNotFoundException":
            raise
        return False
    return True


class TaskWatch:
    """The tasks of one cluster that are asked about, described at most every two seconds.

    Attributes:
        addresses: public addresses by the id of the network interface.
    """

    def __init__(self, account: Account, region: str, cluster: str) -> None:
        self.addresses: dict[str, str] = {}
        self._account = account
        self._region = region
        self._cluster = cluster
        self._ids: set[str] = set()
        self._listing = SharedListing(self._describe)

    async def get(self, id: str) -> Mapping[str, Any] | None:
        """Return a task; None if ECS does not know it."""
        if id not in self._ids:
            self._ids.add(id)
            self._listing.forget()
        return (await self._listing.get()).get(id)

    def forget(self, ids: Iterable[str]) -> None:
        """Ask about these tasks no more, and about the others anew."""
        self._ids -= set(ids)
        self._listing.forget()

    async def _describe(self) -> Mapping[str, Mapping[str, Any]]:
        described = await describe_tasks(self._account, self._region, self._cluster, sorted(self._ids))
        await self.look_up(described)
        return {task_id(each["taskArn"]): each for each in described}

    async def look_up(self, described: Iterable[Mapping[str, Any]]) -> None:
        """Ask for the public addresses of running tasks that are not known."""
        running = filter(has_started, described)
        unknown = [id for each in running if (id := interface_of(each)[0]) and id not in self.addresses]
        groups = [unknown[first : first + _AT_ONCE] for first in range(0, len(unknown), _AT_ONCE)]
        found = await asyncio.gather(*map(self._interfaces, groups))
        for each in (one for some in found for one in some):
            if address := each.get("Association", {}).get("PublicIp"):
                self.addresses[each["NetworkInterfaceId"]] = address

    async def _interfaces(self, ids: list[str]) -> list[Mapping[str, Any]]:
        named = [{"Name": "network-interface-id", "Values": ids}]
        return await self._account.all(
            "ec2", "describe_network_interfaces", self._region, "NetworkInterfaces", Filters=named
        )
