"""Steps that tests of Fargate share."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import skyward as sky
from skyward.providers import Cluster, Offer
from skyward.providers.conformance import conformance_identity
from tests.fakes.aws import FakeAWS

__all__ = ["fargate_at", "launched", "offers_of", "prepared"]


def fargate_at(aws: FakeAWS, **fields: Any) -> sky.Fargate:
    """Return settings for a fake."""
    values = {"caller_cidr": "203.0.113.7", "spot_prices_url": f"{aws.url}/fargate-spot-prices.json", **fields}
    return sky.Fargate(**values)


async def offers_of(settings: sky.Fargate) -> dict[str, Offer]:
    """Return the offers by id."""
    return {offer.id: offer async for offer in settings.create_provider().offers()}


async def prepared(
    settings: sky.Fargate,
    folder: Path,
    kind: str = "x86_64/2/8",
    *,
    pool: str = "unit-1",
    request: str = "unit-1-1",
    **fields: Any,
) -> tuple[Any, Cluster]:
    """Return a provider, and the cluster of a pool that is ready for one request."""
    provider: Any = settings.create_provider()
    offer = (await offers_of(settings))[f"{fields.pop('in_region', settings.all_regions[0])}/{kind}"]
    spec = sky.Spec(**{"provider": settings, "allocation": "on-demand", **fields})
    identity = conformance_identity(pool, folder)
    cluster: Cluster = await provider.prepare(spec, offer, identity)
    return provider, replace(cluster, tags={**identity.tags, "skyward-request": request})


async def launched(
    settings: sky.Fargate, folder: Path, count: int = 1, **fields: Any
) -> tuple[Any, Cluster, list[str]]:
    """Launch tasks; return their ids too."""
    provider, cluster = await prepared(settings, folder, **fields)
    cluster, tasks = await provider.provision(cluster, count)
    return provider, cluster, [each.id for each in tasks]
