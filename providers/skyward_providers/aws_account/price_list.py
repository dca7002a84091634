"""The price list of AWS: the products of a service, with what an hour of them costs in USD."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from skyward_providers.aws_account.account import Account

__all__ = ["price_list"]

_REGION: Final = "us-east-1"
"""A region that answers for the prices of all."""

_HOURS: Final = frozenset({"Hrs", "Hours", "hours"})


async def price_list(
    account: Account, service: str, matching: Mapping[str, str]
) -> AsyncIterator[tuple[Mapping[str, str], float]]:
    """Yield the attributes of each product that has a price per hour, and that price.

    Args:
        service: code of the service, such as "AmazonEC2".
        matching: values of fields.

    Raises:
        CallError, CredentialsError, ProvisioningError: see `Account.call`.
    """
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in matching.items()]
    async for text in account.pages(
        "pricing", "get_products", _REGION, "PriceList",
        ServiceCode=service, FormatVersion="aws_v1", Filters=filters, MaxResults=100,
    ):  # fmt: skip  # one group of arguments a line
        product = json.loads(text)
        if price := _hourly(product):  # some products are free, such as those of reserved hosts
            yield product["product"]["attributes"], price


def _hourly(product: Mapping[str, Any]) -> float | None:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            if dimension.get("unit") in _HOURS and "USD" in dimension["pricePerUnit"]:
                return float(dimension["pricePerUnit"]["USD"])
    return None
