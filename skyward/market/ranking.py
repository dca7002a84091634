"""Ranking of the offers that fit the specs of one group, best first. Pure: the same input gives the same ranking.

The order is total: it does not depend on the order in which providers list their offers, or answer.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from skyward.errors import NoOffersError
from skyward.market.filters import FILTERS, allowed_markets, excluded_by, market_excluded_by
from skyward.providers.protocol import PROVIDER_FIELDS, Market, Offer
from skyward.specs import Spec
from skyward.specs.options import Selection

__all__ = ["Excluded", "OfferCandidate", "Ranking", "SpecOffers", "no_offer_fits", "rank"]


@dataclass(frozen=True, slots=True)
class SpecOffers:
    """One spec, with the offers of its provider.

    Attributes:
        fields: fields of the spec that the provider supports; the others do not filter.
        lacks: by field, what no machine of the provider has; see `ActsOn.lacks`.
    """

    spec: Spec
    provider: str
    offers: Sequence[Offer]
    fields: frozenset[str] = PROVIDER_FIELDS
    lacks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OfferCandidate:
    """An offer that fits a spec, in one market.

    Attributes:
        position: index of the spec, from 0 on.
        hourly_price: USD per hour of one machine; None if unknown.
    """

    position: int
    provider: str
    offer: Offer
    market: Market
    hourly_price: float | None


@dataclass(frozen=True, slots=True)
class Excluded:
    """An offer that does not fit a spec.

    Attributes:
        position: index of the spec, from 0 on.
        reasons: by filter, the reason, as the end of a sentence about the offer; the first filter counts.
    """

    position: int
    provider: str
    offer: Offer
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Offers that fit, best first, and offers that were excluded."""

    candidates: tuple[OfferCandidate, ...] = ()
    excluded: tuple[Excluded, ...] = ()


def rank(asked: Sequence[SpecOffers], selection: Selection = "cheapest", *, priced: bool = False) -> Ranking:
    """Return the offers that fit any of the specs, best first.

    "cheapest" orders by price per hour over all specs, "first" by the position of the spec before that. Offers without
    accelerators come first where the spec asks for none, unless its allocation is "cheapest". Among the specs with
    allocation "spot-if-available", spot offers are before the on-demand offers that cost more than the cheapest of
    them. Offers with unknown prices come last; with `priced` they are excluded, since a budget could not be kept.
    """
    candidates: list[OfferCandidate] = []
    excluded: list[Excluded] = []
    for position, each in enumerate(asked):
        for offer in each.offers:
            found, reasons = _markets(each, offer, priced=priced)
            candidates += [
                OfferCandidate(position, each.provider, offer, market, offer.hourly_price(market)) for market in found
            ]
            if not found:
                excluded.append(Excluded(position, each.provider, offer, reasons))
    candidates.sort(key=_order)
    excluded.sort(key=lambda one: (one.position, *_identity(one.provider, one.offer)))
    groups = [candidates]
    if selection == "first":
        groups = [[one for one in candidates if one.position == position] for position in range(len(asked))]
    ordered = (one for group in groups for one in _by_allocation(group, asked))
    return Ranking(tuple(ordered), tuple(excluded))


def _markets(asked: SpecOffers, offer: Offer, *, priced: bool) -> tuple[list[Market], Mapping[str, str]]:
    """Return the markets in which the offer fits; if there is none, also the reasons."""
    spec = asked.spec
    reasons = excluded_by(spec, offer, asked.fields)
    markets = allowed_markets(spec, offer)
    if not markets:
        reasons["allocation"] = f"is not sold as {spec.allocation}"
    refused = [market_excluded_by(spec, offer, market, priced=priced) for market in markets]
    fitting = [market for market, why in zip(markets, refused, strict=True) if not why]
    if markets and not fitting:
        reasons |= refused[0]
    return ([] if reasons else fitting), reasons


def _price(candidate: OfferCandidate) -> float:
    return inf if candidate.hourly_price is None else candidate.hourly_price


def _order(candidate: OfferCandidate) -> tuple[Any, ...]:
    return (
        candidate.hourly_price is None,
        _price(candidate),
        *_identity(candidate.provider, candidate.offer),
        candidate.market,
        candidate.position,
    )


def _identity(provider: str, offer: Offer) -> tuple[Any, ...]:
    """Return the names that break ties, compared alphabetically."""
    return provider, offer.instance_type.name, offer.region, offer.id, _Text(offer)


@dataclass(frozen=True, slots=True, eq=False)
class _Text:
    """The text of an offer, which is made only if offers have the same names: it takes longer than all else."""

    offer: Offer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Text) and (self.offer is other.offer or repr(self.offer) == repr(other.offer))

    def __lt__(self, other: "_Text") -> bool:
        return repr(self.offer) < repr(other.offer)


def _by_allocation(candidates: Sequence[OfferCandidate], asked: Sequence[SpecOffers]) -> list[OfferCandidate]:
    """Order candidates that are sorted by price as the allocation of their specs demands.

    Specs with "spot-if-available" are merged with the others by price, so neither kind of spec waits for the other.
    """

    def has_unwanted(one: OfferCandidate) -> bool:
        """Return whether an offer has accelerators that its spec does not ask for."""
        spec = asked[one.position].spec
        return spec.accelerator is None and spec.allocation != "cheapest" and bool(one.offer.instance_type.accelerator)

    def merged(one: OfferCandidate) -> tuple[Any, ...]:
        return one.hourly_price is None, has_unwanted(one), *_order(one)

    preferring: list[OfferCandidate] = []
    others: list[OfferCandidate] = []
    for one in candidates:
        (preferring if asked[one.position].spec.allocation == "spot-if-available" else others).append(one)
    cheapest_spot = {
        kind: min(
            (_price(one) for one in preferring if one.market == "spot" and has_unwanted(one) is kind), default=inf
        )
        for kind in (False, True)
    }

    def stage(one: OfferCandidate) -> int:
        """Return 0 for an on-demand offer that costs no more than any spot offer, 1 for spot, 2 for others."""
        if one.market == "spot":
            return 1
        return 0 if _price(one) <= cheapest_spot[has_unwanted(one)] else 2

    preferring.sort(key=lambda one: (one.hourly_price is None, has_unwanted(one), stage(one)))  # stable: then by price
    others.sort(key=lambda one: (one.hourly_price is None, has_unwanted(one)))
    return list(heapq.merge(preferring, others, key=merged))


def no_offer_fits(asked: Sequence[SpecOffers], ranking: Ranking, failed: Mapping[int, str]) -> NoOffersError:
    """Return the error for a ranking without candidates: the exclusions by filter, and the nearest miss.

    `failed`: by position of the spec, why its provider did not list its offers.
    """
    if len(asked) == 1 and (lacking := _lacking(0, asked[0], ranking)):
        return NoOffersError(f"{lacking}.")
    details = [_of_spec(position, each, ranking, failed.get(position)) for position, each in enumerate(asked)]
    by_price = any("max_hourly_cost" in one.reasons for one in ranking.excluded)
    fix = f"ask for less, {'pay more, ' if by_price else ''}or name another provider"
    if len(failed) == len(asked):
        fix = "check the settings of the provider and the network, or name another provider"
    return NoOffersError(f"No offer fits the spec: {'; '.join(details)}; {fix}.")


def _of_spec(position: int, asked: SpecOffers, ranking: Ranking, failure: str | None) -> str:
    if failure is not None:
        return f"provider {asked.provider!r} did not list its offers ({failure})"
    if lacking := _lacking(position, asked, ranking):
        return lacking
    excluded = [one for one in ranking.excluded if one.position == position]
    if not excluded:
        return f"{asked.provider} has nothing on offer"
    counts = Counter(next(iter(one.reasons)) for one in excluded)
    removed = ", ".join(f"{name} excludes {counts[name]}" for name in (*FILTERS, *_ON_MARKETS) if counts[name])
    nearest = min(
        excluded, key=lambda one: (len(one.reasons), -_rank_of_first_filter(one), _lowest_price(asked.spec, one.offer))
    )
    kind, region = nearest.offer.instance_type.name, nearest.offer.region
    why = " and ".join(nearest.reasons.values())
    where = f" ({region})" if region else ""
    offers = "offer" if len(excluded) == 1 else "offers"
    return f"of {len(excluded)} {offers} from {asked.provider}, {removed}; the nearest, {kind}{where}, {why}"


def _lacking(position: int, asked: SpecOffers, ranking: Ranking) -> str:
    """Return what no machine of the provider has, if that excludes all of its offers; empty if nothing does."""
    excluded = [one for one in ranking.excluded if one.position == position]
    found = (said for name, said in asked.lacks.items() if excluded and all(name in one.reasons for one in excluded))
    return next(found, "")


_ON_MARKETS = ("allocation", "max_hourly_cost", "budget")


def _lowest_price(spec: Spec, offer: Offer) -> float:
    prices = [price for market in allowed_markets(spec, offer) if (price := offer.hourly_price(market)) is not None]
    return min(prices, default=inf)


def _rank_of_first_filter(one: Excluded) -> int:
    """Return the rank of its first filter: an offer of the right model is nearer than one of another."""
    return [*FILTERS, *_ON_MARKETS].index(next(iter(one.reasons)))
