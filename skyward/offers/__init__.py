"""Offers of providers: requesting them, filtering them by a spec, and ranking the rest."""

from skyward.offers.filters import FILTERS, excluded_by
from skyward.offers.ranking import Excluded, OfferCandidate, Ranking, SpecOffers, no_offer_fits, rank
from skyward.offers.requests import ask, reason_of

__all__ = [
    "FILTERS",
    "Excluded",
    "OfferCandidate",
    "Ranking",
    "SpecOffers",
    "ask",
    "excluded_by",
    "no_offer_fits",
    "rank",
    "reason_of",
]
