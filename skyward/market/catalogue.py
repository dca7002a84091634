"""Bundled catalogue of usual types and prices, to show when a provider cannot be asked. Nothing is bought by it.

The rows of `catalogue.csv` were written by hand from published prices, as they were known at the date of each row.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from skyward.providers.protocol import InstanceType, Offer

if TYPE_CHECKING:
    from skyward.specs.spec import Architecture

__all__ = ["catalogue"]


@cache
def catalogue() -> Mapping[str, tuple[Offer, ...]]:
    """Return the offers of the catalogue by provider. `specific` has the date of each, "2025-06-15", and its source."""
    found: dict[str, list[Offer]] = {}
    text = files("skyward.market").joinpath("catalogue.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        found.setdefault(row["provider"], []).append(_offer(row))
    return MappingProxyType({provider: tuple(offers) for provider, offers in found.items()})


def _offer(row: Mapping[str, str]) -> Offer:
    kind = InstanceType(
        row["type"],
        float(row["vcpus"]),
        float(row["memory_gb"]),
        row["accelerator"] or None,
        float(row["accelerator_count"]),
        cast("Architecture", row["architecture"]),
        _number(row["accelerator_memory_gb"]),
    )
    spot, on_demand = _number(row["spot_price"]), _number(row["on_demand_price"])
    specific = {"date": row["date"], "source": row["source"]}
    return Offer(row["type"], kind, spot, on_demand, region=row["region"], specific=specific)


def _number(text: str) -> float | None:
    return float(text) if text else None
