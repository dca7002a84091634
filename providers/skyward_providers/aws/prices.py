"""Prices of EC2 machines, USD per hour."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.price_list import price_list

__all__ = ["on_demand_prices", "spot_prices"]

_LINUX: Final[Mapping[str, str]] = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}


async def on_demand_prices(account: Account, region: str) -> dict[str, float]:
    """Return the on-demand price of each type in a region."""
    products = price_list(account, "AmazonEC2", {"regionCode": region, **_LINUX})
    return {product["instanceType"]: price async for product, price in products if "instanceType" in product}


async def spot_prices(account: Account, region: str, types: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """Return the spot price in force of each type, by zone; of all types if `types` is empty."""
    asked = {"InstanceTypes": [*types]} if types else {}
    rows = account.pages(
        "ec2", "describe_spot_price_history", region, "SpotPriceHistory",
        StartTime=datetime.now(UTC), ProductDescriptions=["Linux/UNIX"], **asked,
    )  # fmt: skip  # one group of arguments a line
    found: dict[str, dict[str, float]] = defaultdict(dict)
    newest: dict[tuple[str, str], datetime] = {}
    async for row in rows:
        place = row["InstanceType"], row["AvailabilityZone"]
        if place not in newest or row["Timestamp"] > newest[place]:
            newest[place] = row["Timestamp"]
            found[place[0]][place[1]] = float(row["SpotPrice"])
    return dict(found)
