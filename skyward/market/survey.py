"""Survey of the offers of several providers: to show, not to buy.

A provider that does not answer is shown with the offers that it listed before, or with those of the bundled catalogue,
each with its date.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from skyward.formatting import duration_text
from skyward.market.catalogue import catalogue
from skyward.market.filters import filtering_fields
from skyward.market.gpuhunt_catalogue import ListedByGpuhunt
from skyward.market.listing import MOST, ListedOffers, OfferLister
from skyward.market.ranking import OfferCandidate, SpecOffers, rank
from skyward.market.requests import reason_of
from skyward.providers.protocol import PROVIDER_FIELDS, Market, Provider, ProviderConfig, acts_on
from skyward.specs import Spec
from skyward.specs.options import Selection

__all__ = ["AskedProvider", "MachineOffer", "Survey", "survey"]

type PriceOrigin = Literal["provider", "catalogue", "gpuhunt"]


@dataclass(frozen=True, slots=True)
class MachineOffer:
    """A type of machine that a provider offers in one market, as `sky.offers` returns it.

    Attributes:
        provider: name of the provider.
        type: the provider's name of the type of machine.
        region: the provider's name of the region; "" if unknown.
        market: "spot" or "on-demand"; "" if the provider does not know it.
        hourly_price: USD per hour of one machine; None if unknown.
        accelerator: model of its accelerators, as the provider names it; "" if it has none, or they are unknown.
        accelerator_count: number of accelerators; 0 if it has none, or they are unknown.
        vcpus: number of virtual CPUs; 0 if unknown.
        memory_gb: memory in GiB; 0 if unknown.
        architecture: architecture of the CPUs.
        listed: time of the price: when the provider listed it, or the date of the row of the catalogue.
        origin: "provider", "catalogue" for one of Skyward's bundled catalogue, or "gpuhunt" for one of gpuhunt's: of a
            provider that Skyward does not rent from.
        is_current: True if the provider listed it recently enough to be bought at this price.
        boot_seconds: usual seconds from the request of a machine to an active node in earlier pools; None if unknown.

    Example:
        >>> cheapest = sky.offers(accelerator="A100", limit=1)
    """

    provider: str
    type: str
    region: str
    market: Market | Literal[""]
    hourly_price: float | None
    accelerator: str
    accelerator_count: float
    vcpus: float
    memory_gb: float
    architecture: Literal["x86_64", "arm64"]
    listed: datetime
    origin: PriceOrigin = "provider"
    is_current: bool = True
    boot_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AskedProvider:
    """A spec, and the provider to ask.

    Attributes:
        name: name of the provider.
        config: its settings; None to use the catalogue only.
    """

    spec: Spec
    name: str
    config: ProviderConfig | None


@dataclass(frozen=True, slots=True)
class Survey:
    """Offers of several providers.

    Attributes:
        offers: those that fit, best first.
        notes: by name, a sentence about each provider that did not list its offers.
    """

    offers: tuple[MachineOffer, ...]
    notes: Mapping[str, str]


async def survey(
    asked: Sequence[AskedProvider],
    selection: Selection,
    *,
    directory: Path | None,
    create: Callable[[ProviderConfig], Provider],
    usual_start: Callable[[str], float | None],
    within: float,
    limit: int | None,
) -> Survey:
    """Return the offers that fit any of `asked`, in the order in which a pool would try them.

    Args:
        directory: folder of the repository; None to store nothing.
        create: creates a provider from its settings.
        usual_start: returns the usual seconds of the start of a node of a provider, by its name.
        within: timeout of a provider's listing in seconds.
        limit: most offers to return; None for all.
    """
    most = None if limit is None else max(limit, MOST)
    with OfferLister(directory, within, shows_stale=True, limit=most) as lister:
        answers = await asyncio.gather(*(_ask(lister, each, create) for each in asked))
    filtering = iter(filtering_fields(each.config for each in asked if each.config is not None))
    fields = [PROVIDER_FIELDS if each.config is None else next(filtering) for each in asked]
    ranked = rank(list(map(_to_rank, asked, answers, fields)), selection)
    boots = {each.name: usual_start(each.name) for each in asked}
    shown = dict.fromkeys(_shown(one, answers[one.position], boots) for one in ranked.candidates)
    notes = {each.name: answer.note for each, answer in zip(asked, answers, strict=True) if answer.note}
    return Survey(tuple(shown)[:limit], notes)


@dataclass(frozen=True, slots=True)
class _Answer:
    listed: ListedOffers
    origin: PriceOrigin = "provider"
    note: str = ""


async def _ask(lister: OfferLister, asked: AskedProvider, create: Callable[[ProviderConfig], Provider]) -> _Answer:
    known = ListedOffers(catalogue().get(asked.name, ()), 0.0)
    config = asked.config
    if config is None:
        return _Answer(known, "catalogue")
    try:
        listed = await lister.fitting(config, lambda: create(config), asked.spec)
    except Exception as error:  # providers and cloud libraries raise anything
        instead = "; its prices are those of the bundled catalogue" if known.offers else ""
        return _Answer(
            known, "catalogue", f"Provider {asked.name!r} did not list its offers ({reason_of(error)}){instead}."
        )
    origin: PriceOrigin = "gpuhunt" if isinstance(config, ListedByGpuhunt) else "provider"
    if listed.problem:
        age = duration_text(datetime.now(UTC).timestamp() - listed.at)
        note = f"Provider {asked.name!r} did not list its offers ({listed.problem}); its prices are {age} old."
        return _Answer(listed, origin, note)
    return _Answer(listed, origin)


def _to_rank(asked: AskedProvider, answer: _Answer, fields: frozenset[str]) -> SpecOffers:
    lacks = {} if asked.config is None else acts_on(asked.config).lacks
    return SpecOffers(asked.spec, asked.name, answer.listed.offers, fields, lacks)


def _shown(one: OfferCandidate, answer: _Answer, boots: Mapping[str, float | None]) -> MachineOffer:
    kind = one.offer.instance_type
    at = datetime.fromtimestamp(answer.listed.at, UTC)
    if answer.origin != "provider":
        at = datetime.fromisoformat(str(one.offer.specific["date"])).replace(tzinfo=UTC)
    return MachineOffer(
        one.provider,
        kind.name,
        one.offer.region,
        "" if one.offer.market_unknown else one.market,
        one.hourly_price,
        kind.accelerator or "",
        (kind.accelerator_count or 1) if kind.accelerator else kind.accelerator_count,
        kind.vcpus,
        kind.memory_gb,
        kind.architecture,
        at,
        answer.origin,
        answer.origin == "provider" and not answer.listed.problem,
        boots[one.provider],
    )
