"""The filters that a spec puts on offers. Amounts are minimums; a value that an offer does not state excludes nothing.

`FILTERS` lists each filter once, in the order in which excluded offers are counted.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from skyward.accelerators import describe, from_name, has_variants
from skyward.errors import SpecError
from skyward.providers.protocol import PROVIDER_FIELDS, InstanceType, Market, Offer, ProviderConfig, acts_on
from skyward.specs import Spec

__all__ = [
    "FILTERS",
    "MEMORY_TOLERANCE",
    "allowed_in",
    "allowed_markets",
    "excluded_by",
    "filtering_fields",
    "market_excluded_by",
    "memory_of_one",
]

MEMORY_TOLERANCE: Final = 0.9
"""Tolerance of memory sizes: a card sold as 80 GB has 79.6 GiB, and one sold as 24 GB has 22.5 GiB."""

type Filter = Callable[[Spec, Offer], str]
"""Return why the offer does not fit, as the end of a sentence about it; "" if it fits."""


def _model(spec: Spec, offer: Offer) -> str:
    asked, kind = spec.accelerator, offer.instance_type
    if asked is None or kind.accelerator == "":
        return ""
    if kind.accelerator is None:
        return f"has no accelerator instead of {asked.name}"
    sold = describe(kind.accelerator)
    form = asked.metadata.get("form_factor") if asked.metadata else None
    if sold.model != describe(asked.name).model or (form and sold.form_factor and form != sold.form_factor):
        return f"has {kind.accelerator} instead of {asked.name}{f' {form}' if form else ''}"
    return ""


def _count(spec: Spec, offer: Offer) -> str:
    asked, kind = spec.accelerator, offer.instance_type
    if asked is None or kind.accelerator is None or (kind.accelerator == "" and not kind.accelerator_count):
        return ""
    sold = kind.accelerator_count or 1  # an unknown number is at least one
    return "" if sold >= asked.count else f"has {sold:g} of {asked.count:g} accelerators"


def _accelerator_memory(spec: Spec, offer: Offer) -> str:
    asked, kind = spec.accelerator, offer.instance_type
    if asked is None or asked.memory_gb is None or not kind.accelerator:
        return ""
    sold = memory_of_one(kind)
    if sold is None or sold >= asked.memory_gb * MEMORY_TOLERANCE:
        return ""
    return f"has accelerators of {sold:g} GB instead of {asked.memory_gb:g} GB"


def memory_of_one(kind: InstanceType) -> float | None:
    """Return the nominal memory of one accelerator, GB: as stated, in its name, or in the catalogue."""
    if kind.accelerator_memory_gb is not None:
        return kind.accelerator_memory_gb
    sold = describe(kind.accelerator or "")
    if sold.memory_gb is not None or has_variants(sold.model):
        return sold.memory_gb
    try:
        return from_name(sold.model).memory_gb
    except SpecError:  # not in the catalogue
        return None


def _vcpus(spec: Spec, offer: Offer) -> str:
    return _too_few(spec.vcpus, offer.instance_type.vcpus, "vCPU" if spec.vcpus == 1 else "vCPUs")


def _memory(spec: Spec, offer: Offer) -> str:
    return _too_few(spec.memory_gb, offer.instance_type.memory_gb, "GiB of memory")


def _too_few(asked: float | None, sold: float, what: str) -> str:
    return f"has {sold:g} of {asked:g} {what}" if asked is not None and 0 < sold < asked else ""


def _architecture(spec: Spec, offer: Offer) -> str:
    asked, sold = spec.architecture, offer.instance_type.architecture
    return "" if asked in (None, sold) else f"is {sold} instead of {asked}"


def _region(spec: Spec, offer: Offer) -> str:
    if spec.region is None or not offer.region or offer.region.casefold() == spec.region.casefold():
        return ""
    return f"is in {offer.region} instead of {spec.region}"


FILTERS: Final[Mapping[str, tuple[str, Filter]]] = {
    "accelerator": ("accelerator", _model),
    "accelerator count": ("accelerator", _count),
    "accelerator memory": ("accelerator", _accelerator_memory),
    "vcpus": ("vcpus", _vcpus),
    "memory_gb": ("memory_gb", _memory),
    "architecture": ("architecture", _architecture),
    "region": ("region", _region),
}
"""The filters by name, each with its field of `Spec`. Those on price and market apply after them."""


def excluded_by(spec: Spec, offer: Offer, fields: frozenset[str] = PROVIDER_FIELDS) -> dict[str, str]:
    """Return the filters that exclude `offer`, each with its reason, in the order of `FILTERS`.

    `fields` are those that the provider acts on; a filter on any other says nothing about its machines.
    """
    found: dict[str, str] = {}
    for name, (field, reason) in FILTERS.items():
        if field in fields and not (offer.open_ended and field != "region") and (why := reason(spec, offer)):
            found[name] = why
    return found


def filtering_fields(configs: Iterable[ProviderConfig]) -> list[frozenset[str]]:
    """Return the fields that filter the offers of each of the providers of one group: those that it acts on.

    This machine, which does not act on accelerators but knows which ones it has, is an alternative to a provider that
    does only if it has those that are asked for: it is free, so it would always be preferred.
    """
    declared = [acts_on(config) for config in configs]
    chosen = any("accelerator" in each.fields for each in declared)
    return [each.fields | ({"accelerator"} if chosen and each.knows_hardware else set()) for each in declared]


def allowed_in(spec: Spec) -> tuple[Market, ...]:
    """Return the markets that the allocation of `spec` allows."""
    return (spec.allocation,) if spec.allocation in ("spot", "on-demand") else ("spot", "on-demand")


def allowed_markets(spec: Spec, offer: Offer) -> tuple[Market, ...]:
    """Return the markets that the allocation of `spec` allows, of those that `offer` is sold in."""
    allowed = allowed_in(spec)
    return tuple(market for market in offer.markets if market in allowed)


def market_excluded_by(spec: Spec, offer: Offer, market: Market, *, priced: bool) -> dict[str, str]:
    """Return the filters on the price in one market that exclude `offer`, each with its reason.

    With `priced`, an unknown price excludes it, as `max_hourly_cost` always does.
    """
    price, most = offer.hourly_price(market), spec.max_hourly_cost
    if price is None and (priced or most is not None):
        return {"budget" if most is None else "max_hourly_cost": "has no known price"}
    if price is not None and most is not None and price > most:
        return {"max_hourly_cost": f"costs {price:.4g} of at most {most:.4g} USD per hour ({market})"}
    return {}
