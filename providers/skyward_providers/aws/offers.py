"""Offers of EC2: one per type and region, with the types that may take its place in a fleet."""

import asyncio
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence

from skyward.providers import Offer
from skyward_providers.aws.prices import on_demand_prices, spot_prices
from skyward_providers.aws.settings import AWS
from skyward_providers.aws.types import MachineType, machine_types
from skyward_providers.aws_account.account import Account

__all__ = ["DEARER", "offers_in"]

DEARER = 1.2
"""Price of a type that may take the place of another, relative to it."""

_ALTERNATIVES = 5


async def offers_in(account: Account, settings: AWS, region: str) -> list[Offer]:
    """Return the offers of one region."""
    described, on_demand, spot = await asyncio.gather(
        account.all("ec2", "describe_instance_types", region, "InstanceTypes", MaxResults=100),
        on_demand_prices(account, region),
        spot_prices(account, region),
    )
    types = [
        each
        for each in machine_types(described)
        if (each.image or settings.ami is not None) and not (settings.exclude_burstable and each.burstable)
    ]
    alternatives = _alternatives(types, on_demand)
    found = []
    for each in types:
        name = each.shape.name
        zones = spot.get(name, {}) if each.spot else {}
        if name not in on_demand and not zones:
            continue  # without a price, it is sold in other ways only, such as capacity blocks
        found.append(
            Offer(
                f"{region}/{name}",
                each.shape,
                min(zones.values(), default=None),
                on_demand.get(name),
                region=region,
                specific={"image": each.image, "types": alternatives.get(name, {}), "burstable": each.burstable},
            )
        )
    return found


def _alternatives(types: Sequence[MachineType], prices: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the types that may take the place of each, with their on-demand prices: cheapest first.

    They have the same accelerators and architecture, and at least as many CPUs and as much memory.
    """
    alike: dict[object, list[tuple[float, MachineType]]] = defaultdict(list)
    for each in types:
        if (price := prices.get(each.shape.name)) is not None:
            shape = each.shape
            key = shape.architecture, shape.accelerator, shape.accelerator_count, shape.accelerator_memory_gb
            alike[key, each.image, each.burstable].append((price, each))
    found: dict[str, dict[str, float]] = {}
    for group in alike.values():
        group.sort(key=lambda pair: (pair[0], pair[1].shape.name))
        costs = [price for price, _ in group]
        for price, each in group:
            near = group[bisect_left(costs, price / DEARER) : bisect_right(costs, price * DEARER)]
            fitting = [
                (cost, other.shape.name)
                for cost, other in near
                if other is not each
                and other.shape.vcpus >= each.shape.vcpus
                and other.shape.memory_gb >= each.shape.memory_gb
            ]
            found[each.shape.name] = {name: cost for cost, name in fitting[:_ALTERNATIVES]}
    return found
