"""The ECS cluster of a pool: one of its own, or one of the user's."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from skyward.errors import ProvisioningError, SpecError
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError
from skyward_providers.aws_account.launches import pauses, wait
from skyward_providers.fargate.definitions import ecs_tags, name_of_owner

__all__ = ["check_cluster", "cluster_name", "create_cluster", "delete_cluster"]

_ACTIVE_WITHIN = 60.0
_STOPPED_WITHIN = 300.0
"""Seconds until a new cluster can be used, and until the last task of a cluster has stopped."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0

_PROVIDERS: Final = ("FARGATE", "FARGATE_SPOT")
_IN_USE: Final = frozenset({"ClusterContainsTasksException", "UpdateInProgressException"})


def cluster_name(owner: str, pool: str) -> str:
    """Return the name of a pool's own cluster."""
    return f"{name_of_owner(owner)}{pool}"


async def create_cluster(account: Account, region: str, name: str, tags: Mapping[str, str]) -> None:
    """Create a cluster, unless it exists, and wait until tasks can be launched in it.

    Raises:
        ProvisioningError: it cannot be used in time.
    """
    made = await _created(account, region, name, tags)
    until, status = time.monotonic() + _ACTIVE_WITHIN, made.get("status")
    while status != "ACTIVE":
        if time.monotonic() > until:
            raise ProvisioningError(f"ECS cluster {name!r} in {region} is still {status}; try again later.")
        await asyncio.sleep(_FIRST_PAUSE)
        status = (await _described(account, region, name) or {}).get("status")


async def _created(account: Account, region: str, name: str, tags: Mapping[str, str]) -> Mapping[str, Any]:
    for pause in pauses():
        try:
            answer = await account.call(
                "ecs",
                "create_cluster",
                region,
                clusterName=name,
                tags=ecs_tags(tags),
                capacityProviders=list(_PROVIDERS),
            )
            found: Mapping[str, Any] = answer["cluster"]
            return found
        except CallError as error:
            # ECS makes its role with the first cluster of an account, and cannot use it at once.
            if pause is None or "service linked role" not in error.detail:
                raise
        await wait(pause)
    raise AssertionError("the last attempt returns or raises")


async def check_cluster(account: Account, region: str, name: str) -> None:
    """Check that a cluster of the user exists.

    Raises:
        SpecError: there is none of that name.
    """
    found = await _described(account, region, name)
    if found is None or found.get("status") != "ACTIVE":
        raise SpecError(
            f"There is no ECS cluster {name!r} in {region}; check `sky.Fargate(cluster=...)`, or leave it out for "
            "one of the pool's own."
        )


async def _described(account: Account, region: str, name: str) -> Mapping[str, Any] | None:
    answer = await account.call("ecs", "describe_clusters", region, clusters=[name])
    return next(iter(answer.get("clusters", ())), None)


async def delete_cluster(account: Account, region: str, name: str, within: float = _STOPPED_WITHIN) -> None:
    """Delete a cluster, once its last task has stopped. Idempotent.

    Raises:
        ProvisioningError: it still has tasks.
    """
    until, pause = time.monotonic() + within, _FIRST_PAUSE
    while True:
        try:
            await account.call("ecs", "delete_cluster", region, cluster=name)
            return
        except CallError as error:
            if error.code == "ClusterNotFoundException":
                return
            if error.code not in _IN_USE:
                raise
            if time.monotonic() > until:
                raise ProvisioningError(
                    f"ECS cluster {name!r} in {region} still has tasks after {within:.0f} s: stop them, or delete it "
                    "later."
                ) from error
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
