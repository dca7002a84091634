"""Offers of Fargate: one per size, architecture and region."""

from typing import Literal

from skyward.errors import ProvisioningError
from skyward.providers import InstanceType, Offer
from skyward_providers.aws_account.account import Account
from skyward_providers.fargate.prices import find_prices
from skyward_providers.fargate.settings import Fargate
from skyward_providers.fargate.sizes import TaskSize, sizes

__all__ = ["offers_in", "size_of"]

_ARCHITECTURES: tuple[Literal["x86_64", "arm64"], ...] = ("x86_64", "arm64")


async def offers_in(account: Account, settings: Fargate, region: str) -> list[Offer]:
    """Return the offers of one region.

    Raises:
        CallError, CredentialsError, ProvisioningError: the prices could not be read.
    """
    prices = await find_prices(account, region, settings.spot_prices_url)
    found = []
    for architecture in _ARCHITECTURES:
        on_demand, spot = prices.get((architecture, "on-demand")), prices.get((architecture, "spot"))
        if on_demand is None:  # not sold in the region
            continue
        for size in sizes():
            name = f"{size.vcpus:g} vCPU, {size.memory_gb} GB{', ARM' * (architecture == 'arm64')}"
            found.append(
                Offer(
                    f"{region}/{architecture}/{size.vcpus:g}/{size.memory_gb}",
                    InstanceType(name, size.vcpus, size.memory_gb, architecture=architecture),
                    spot_price=None if spot is None else spot.of(size.vcpus, size.memory_gb),
                    on_demand_price=on_demand.of(size.vcpus, size.memory_gb),
                    region=region,
                )
            )
    if not found:
        raise ProvisioningError(f"AWS states no prices of Fargate in {region}; check the region.")
    return found


def size_of(offer: Offer) -> TaskSize:
    """Return the size of the tasks of an offer."""
    return TaskSize(offer.instance_type.vcpus, int(offer.instance_type.memory_gb))
