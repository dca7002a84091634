"""Steps that tests of AWS share."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import skyward as sky
from skyward.providers import Cluster, Offer
from skyward.providers.conformance import conformance_identity

__all__ = ["SETTINGS", "offers_of", "prepared"]

SETTINGS = sky.AWS(caller_cidr="203.0.113.7")


_known: dict[sky.AWS, dict[str, Offer]] = {}


async def offers_of(settings: sky.AWS = SETTINGS) -> dict[str, Offer]:
    """Return the offers by id."""
    return {offer.id: offer async for offer in settings.create_provider().offers()}


async def prepared(
    provider: Any,
    folder: Path,
    kind: str = "c6i.large",
    *,
    settings: sky.AWS = SETTINGS,
    pool: str = "unit-1",
    request: str = "unit-1-1",
    **fields: Any,
) -> Cluster:
    """Return the cluster of a pool, ready for one request."""
    region = fields.pop("in_region", settings.all_regions[0])
    if settings not in _known:
        _known[settings] = await offers_of(settings)  # always the same
    offer = _known[settings][f"{region}/{kind}"]
    spec = sky.Spec(**{"provider": settings, "allocation": "on-demand", **fields})
    identity = conformance_identity(pool, folder)
    cluster: Cluster = await provider.prepare(spec, offer, identity)
    return replace(cluster, tags={**identity.tags, "skyward-request": request})
