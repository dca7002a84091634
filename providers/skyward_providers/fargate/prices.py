"""Prices of Fargate: USD per vCPU and hour, and per GB and hour, by architecture and market.

On-demand prices are those of AWS's price list. That has no prices of spot tasks; the page with AWS's prices reads them
from a file, which is read here too.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from skyward.errors import ProvisioningError
from skyward.providers import Market
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.price_list import price_list
from skyward_providers.cloud import fetch_text

__all__ = ["Prices", "find_prices", "spot_prices_in"]

_logger = logging.getLogger(__name__)

_USAGE = re.compile(r"(?:[A-Z]{2,4}\d*-)?Fargate-(?P<arm>ARM-)?(?P<part>vCPU-Hours:perCPU|GB-Hours)")
_SPOT_UNITS: Final = {
    "vCPU-Hours": ("x86_64", 0),
    "GB-Hours": ("x86_64", 1),
    "ARM-vCPU-Hours": ("arm64", 0),
    "ARM-GB-Hours": ("arm64", 1),
}


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one architecture in one market: USD per hour of a vCPU, and of a GB."""

    vcpu: float
    gb: float

    def of(self, vcpus: float, memory_gb: float) -> float:
        """Return the price of a task, USD per hour."""
        return round(vcpus * self.vcpu + memory_gb * self.gb, 8)


async def find_prices(account: Account, region: str, spot_url: str) -> dict[tuple[str, Market], Prices]:
    """Return the prices of a region by architecture and market; markets whose prices are unknown are missing.

    Raises:
        CallError, CredentialsError, ProvisioningError: the price list could not be read.
    """
    parts: dict[tuple[str, int], float] = {}
    async for product, price in price_list(account, "AmazonECS", {"regionCode": region}):
        if found := _USAGE.fullmatch(product.get("usagetype", "")):
            parts["arm64" if found["arm"] else "x86_64", int(found["part"] == "GB-Hours")] = price
    prices: dict[tuple[str, Market], Prices] = {(name, "on-demand"): each for name, each in _complete(parts).items()}
    try:
        spot = spot_prices_in(await fetch_text(spot_url), region)
    except (ProvisioningError, ValueError) as error:
        _logger.warning(
            "Fargate's spot tasks are left out: their prices could not be read from %s (%s)", spot_url, error
        )
        return prices
    return prices | {(name, "spot"): each for name, each in spot.items()}


def spot_prices_in(text: str, region: str) -> dict[str, Prices]:
    """Return the spot prices of a region by architecture, from the file that AWS publishes.

    Raises:
        ValueError: the file has another form.
    """
    parts: dict[tuple[str, int], float] = {}
    try:
        for each in json.loads(text)["prices"]:
            row: Mapping[str, Any] = each
            if row["attributes"]["aws:region"] == region and row["unit"] in _SPOT_UNITS:
                parts[_SPOT_UNITS[row["unit"]]] = float(row["price"]["USD"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it has another form: {error!r}") from error
    return _complete(parts)


def _complete(parts: Mapping[tuple[str, int], float]) -> dict[str, Prices]:
    """Return the prices of the architectures that have both."""
    return {
        name: Prices(vcpu, gb)
        for name in ("x86_64", "arm64")
        if (vcpu := parts.get((name, 0))) and (gb := parts.get((name, 1)))
    }
