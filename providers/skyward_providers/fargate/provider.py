"""The provider behind `sky.Fargate()`."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from skyward.errors import ProvisioningError, SkywardError
from skyward.providers import Check, Cluster, Instance, Leftover, Market, Offer, PoolIdentity
from skyward.specs import Spec
from skyward_providers.aws_account.account import Account, told
from skyward_providers.aws_account.admission import Admission
from skyward_providers.aws_account.failures import CallError, explained
from skyward_providers.aws_account.launches import RecentLaunches
from skyward_providers.aws_account.network import create_group, delete_groups_of, find_subnets, group_name
from skyward_providers.cloud import cluster_keys, host_key_of
from skyward_providers.fargate.checks import check_account
from skyward_providers.fargate.definitions import (
    definition_of,
    families_of,
    family_name,
    name_of_owner,
    pool_in,
    register,
    remove_family,
)
from skyward_providers.fargate.ecs_clusters import check_cluster, cluster_name, create_cluster, delete_cluster
from skyward_providers.fargate.launching import STOP_NOTICE, TaskLaunch, launch_tasks
from skyward_providers.fargate.leftovers import find_leftovers, remove_leftover, started_by
from skyward_providers.fargate.listing import TaskWatch, list_tasks, stop_task
from skyward_providers.fargate.offers import offers_in
from skyward_providers.fargate.settings import Fargate
from skyward_providers.fargate.tasks import interface_of, tags_of_task, task_id, task_of

__all__ = ["FargateProvider"]

_logger = logging.getLogger(__name__)

_STOPS_AT_ONCE = 8


class FargateProvider:
    """Tasks of Fargate."""

    def __init__(self, settings: Fargate) -> None:
        self._settings = settings
        self._account = Account(settings, "sky.Fargate")
        self._admission = Admission(self._account, settings.caller_cidr, settings.caller_address_url)
        self._watches: dict[tuple[str, str], TaskWatch] = {}
        self._launches = RecentLaunches[Mapping[str, Any]](lambda launched: task_id(launched["taskArn"]))

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the sizes that each region sells.

        Raises:
            CredentialsError: the credentials are missing, or may not read prices.
            ProvisioningError: AWS could not be asked.
        """
        for found in await asyncio.gather(*(self._offers_in(region) for region in self._settings.all_regions)):
            for offer in found:
                yield offer

    @told
    async def _offers_in(self, region: str) -> list[Offer]:
        return await offers_in(self._account, self._settings, region)

    @told
    async def prepare(self, spec: Spec, offer: Offer, pool: PoolIdentity) -> Cluster:
        """Create the ECS cluster and the security group of the pool, and register a task definition.

        Raises:
            SkywardError: it failed, and nothing is left.
        """
        account, settings, region = self._account, self._settings, offer.region
        specific: dict[str, Any] = {
            **cluster_keys(pool),
            "owner": pool.owner,
            "family": family_name(pool.owner, pool.id, offer.id),
            "tags": dict(pool.tags),
            "public_address": settings.public_address,
            "ecs_cluster": settings.cluster or cluster_name(pool.owner, pool.id),
            "own_cluster": settings.cluster is None,
            "own_group": settings.security_group_id is None,
        }
        cluster = Cluster(f"fargate-{secrets.token_hex(4)}", pool.id, spec, offer, specific, _notes(spec, offer))
        content = definition_of(settings, cluster)
        subnets, ranges = await asyncio.gather(
            find_subnets(account, region, settings.subnet_id), self._admission.ranges()
        )
        specific["subnets"] = list(subnets.zones)[:16]
        if settings.cluster is not None:
            await check_cluster(account, region, settings.cluster)
        try:
            name = group_name(pool.id, of_tasks=True)
            specific["group"] = settings.security_group_id or await create_group(
                account, region, subnets.vpc, name, pool.tags
            )
            if specific["own_group"]:
                await self._admission.first(region, specific["group"], ranges)
            if specific["own_cluster"]:
                await create_cluster(account, region, specific["ecs_cluster"], pool.tags)
            specific["definition"] = await register(account, region, specific["family"], content, pool.tags)
        except BaseException:
            await asyncio.shield(self._undo(cluster))
            raise
        return cluster

    async def _undo(self, cluster: Cluster) -> None:
        try:
            await self._remove_shared(cluster)
        except (CallError, SkywardError) as error:
            _logger.warning("%s: what was prepared could not be removed: %s", cluster.id, error)

    @told
    async def provision(self, cluster: Cluster, count: int) -> tuple[Cluster, Sequence[Instance]]:
        """Launch tasks. Return them as they start; there may be fewer.

        Raises:
            NoCapacityError, QuotaError, RateLimitError, CredentialsError: nothing was launched.
            SkywardError: nothing was launched. After any other error, tasks may have been.
        """
        await self._admission.renew(cluster.offer.region, cluster.specific, needed=True)
        request = cluster.tags.get("skyward-request") or secrets.token_hex(16)
        launched = await self._launches.run(
            launch_tasks(self._account, self._launch(cluster, request), count),
            lambda ended: self.terminate(cluster, ended),
            cluster.pool,
        )
        found = [task_of(cluster, each) for each in launched]
        return cluster, [each for each in found if each is not None]

    def _launch(self, cluster: Cluster, request: str) -> TaskLaunch:
        specific, offer = cluster.specific, cluster.offer
        market: Market = "spot" if cluster.spec.allocation == "spot" else "on-demand"
        variables = {
            "SKYWARD_CLIENT_KEY": specific["public_key"],
            "SKYWARD_HOST_KEY": host_key_of(cluster, request).private,
            **({"SKYWARD_STOP_NOTICE": STOP_NOTICE} if market == "spot" else {}),
        }
        return TaskLaunch(
            offer.region,
            specific["ecs_cluster"],
            specific["definition"],
            f"{offer.instance_type.name} in {offer.region} ({market})",
            specific["subnets"],
            specific["group"],
            specific["public_address"],
            market,
            variables,
            {**specific["tags"], **cluster.tags, "skyward-request": request},
            started_by(specific["owner"]),
            request,
        )

    def _watch(self, cluster: Cluster) -> TaskWatch:
        key = cluster.offer.region, cluster.specific["ecs_cluster"]
        if key not in self._watches:
            self._watches[key] = TaskWatch(self._account, *key)
        return self._watches[key]

    @told
    async def get_instance(self, cluster: Cluster, instance_id: str) -> tuple[Cluster, Instance | None]:
        """Return the current state of a task."""
        watch = self._watch(cluster)
        described = await watch.get(instance_id)
        instance = None if described is None else self._machine(cluster, described)
        if instance is not None and instance.status == "running":
            try:
                await self._admission.renew(cluster.offer.region, cluster.specific, needed=False)
            except (CallError, ProvisioningError) as error:
                why = explained(error) if isinstance(error, CallError) else error
                _logger.warning("tasks of %s may be unreachable: %s", cluster.pool, why)
        return cluster, instance

    def _machine(self, cluster: Cluster, described: Mapping[str, Any]) -> Instance | None:
        return task_of(cluster, described, self._watch(cluster).addresses.get(interface_of(described)[0], ""))

    @told
    async def find(self, cluster: Cluster) -> Sequence[Instance]:
        """Return the tasks of the pool and the offer that have not been stopped."""
        watch, specific = self._watch(cluster), cluster.specific
        existing = await self._launches.listed(
            cluster.pool,
            lambda: list_tasks(self._account, cluster.offer.region, specific["ecs_cluster"], family=specific["family"]),
        )
        ours = [each for each in existing if tags_of_task(each).get("skyward-pool") == cluster.pool]
        await watch.look_up(ours)
        return [machine for each in ours if (machine := self._machine(cluster, each)) is not None]

    @told
    async def terminate(self, cluster: Cluster, instance_ids: Sequence[str]) -> None:
        """Stop tasks. Those that do not exist are left out; new ones may not be visible at once."""
        slots = asyncio.Semaphore(_STOPS_AT_ONCE)

        async def stop(task: str) -> None:
            pause = 0.2
            while True:
                async with slots:
                    known = await stop_task(self._account, cluster.offer.region, cluster.specific["ecs_cluster"], task)
                if known or not self._launches.may_be_hidden(task):
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)

        ids = list(dict.fromkeys(instance_ids))
        stopped = await asyncio.gather(*map(stop, ids), return_exceptions=True)
        self._watch(cluster).forget(ids)
        for error in stopped:
            if error is not None:
                raise error

    @told
    async def teardown(self, cluster: Cluster) -> None:
        """Delete the task definitions, and the ECS cluster and the security group with the last ones of the pool.

        Raises:
            ProvisioningError: tasks still use them.
        """
        await self._remove_shared(cluster)

    async def _remove_shared(self, cluster: Cluster) -> None:
        account, region, specific = self._account, cluster.offer.region, cluster.specific
        await remove_family(account, region, specific["family"])
        alike = await families_of(account, region, f"{name_of_owner(specific['owner'])}{cluster.pool}-", active=True)
        if any(pool_in(each) == cluster.pool and each != specific["family"] for each in alike):
            return  # the pool has tasks of other offers
        if specific["own_cluster"]:
            await delete_cluster(account, region, specific["ecs_cluster"])
        if specific["own_group"]:
            name = group_name(cluster.pool, of_tasks=True)
            await delete_groups_of(account, region, cluster.pool, name, specific.get("group"))

    @told
    async def leftovers(self, owner: str) -> Sequence[Leftover]:
        """Return what belongs to `owner`, in every region of the settings."""
        return await find_leftovers(self._account, self._settings.all_regions, owner, self._settings.cluster)

    @told
    async def remove(self, leftover: Leftover) -> None:
        """Remove a resource. Idempotent."""
        await remove_leftover(self._account, leftover)

    async def check(self) -> Sequence[Check]:
        """Check the credentials, and what they may do in the first region."""
        return await check_account(self._account, self._settings.all_regions[0])


def _notes(spec: Spec, offer: Offer) -> tuple[str, ...]:
    if spec.vcpus is not None or spec.memory_gb is not None:
        return ()
    return (f"A node has {offer.instance_type.name}, the smallest size: `vcpus` and `memory_gb` ask for more.",)
