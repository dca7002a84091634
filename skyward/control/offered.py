"""What is on offer for the nodes of one group: the places that fit, in the order they are preferred."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from skyward.control.places import Place
from skyward.errors import NoOffersError, ProviderMissingError
from skyward.provider import Offer, Provider, ProviderConfig, find_provider
from skyward.specs import Spec
from skyward.specs.options import Selection

__all__ = ["Offered", "find_offers", "provider_config"]

MOST_PLACES = 8
"""Places that a group falls back on, the preferred one included."""


@dataclass(frozen=True, slots=True)
class Offered:
    """One place, with what it takes to get machines there. `spec` asks for its market."""

    place: Place
    provider: Provider
    spec: Spec
    offer: Offer
    config: ProviderConfig

    @property
    def resources(self) -> Mapping[str, float]:
        """What a machine there is known to have. What the spec leaves open is as the offer has it."""
        kind = self.offer.instance_type
        return {"CPU": kind.vcpus, "memory": kind.memory_gb, **self.spec.node_resources}

    @property
    def accelerators(self) -> str:
        """What accelerators a machine there has, such as "A100" or "H100:8"; empty for none."""
        asked, sold = self.spec.accelerator, self.offer.instance_type
        name, count = (sold.accelerator, sold.accelerator_count) if asked is None else (asked.name, asked.count)
        return f"{name}:{count:g}" if name and count not in (0, 1) else name or ""

    def __reduce__(self) -> tuple[Any, ...]:
        """It is kept as what it is made from: what talks to a cloud is made anew."""
        return _restored, (self.place, self.spec, self.offer, self.config)


def _restored(place: Place, spec: Spec, offer: Offer, config: ProviderConfig) -> Offered:
    return Offered(place, config.create_provider(), spec, offer, config)


async def find_offers(specs: Sequence[Spec], selection: Selection) -> list[Offered]:
    """What is on offer for any of `specs`, the cheapest first; with "first", that of earlier specs before.

    Raises:
        NoOffersError: nothing on offer fits.
    """
    configs = [provider_config(spec) for spec in specs]
    found: list[tuple[int, Offered]] = []
    for position, (spec, config) in enumerate(zip(specs, configs, strict=True)):
        provider = config.create_provider()
        async for offer in provider.offers():
            found += [(position, each) for each in _markets(spec, config, provider, offer)]
        if found and selection == "first":
            break
    if not found:
        names = ", ".join(dict.fromkeys(config.name for config in configs))
        raise NoOffersError(f"No machine on offer from {names} fits the spec; ask for less, or pay more.")
    found.sort(key=lambda each: each[1].place.hourly_price)
    return [each for _, each in found[:MOST_PLACES]]


def _markets(spec: Spec, config: ProviderConfig, provider: Provider, offer: Offer) -> Iterator[Offered]:
    """The markets of an offer that the spec allows, within the price that it allows."""
    prices: dict[Literal["spot", "on-demand"], float | None] = {
        "spot": offer.spot_price,
        "on-demand": offer.on_demand_price,
    }
    if spec.allocation == "spot" or spec.allocation == "on-demand":
        prices = {spec.allocation: prices[spec.allocation]}
    for market, price in prices.items():
        if price is None or (spec.max_hourly_cost is not None and price > spec.max_hourly_cost):
            continue
        place = Place(config.name, offer.instance_type.name, offer.region, market, price)
        in_market = replace(spec, allocation=market) if spec.allocation not in ("spot", "on-demand") else spec
        yield Offered(place, provider, in_market, offer, config)


def provider_config(spec: Spec) -> ProviderConfig:
    """The provider settings of `spec`: its own, those of the provider it names, or `sky.Local()`.

    Raises:
        ProviderMissingError: it is neither settings nor the name of an installed provider.
    """
    given = spec.provider
    if given is None or isinstance(given, str):
        given = find_provider(given or "local")()
    if not isinstance(given, ProviderConfig):
        raise ProviderMissingError(f"{given!r} is no provider; give one such as sky.Local().")
    return given
