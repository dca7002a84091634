"""Offers of providers: listing and storing them, filtering them by a spec, and ranking the rest."""

from skyward.market.filters import FILTERS, excluded_by, filtering_fields
from skyward.market.freshness import offers_ttl
from skyward.market.listing import ListedOffers, OfferLister
from skyward.market.ranking import Excluded, OfferCandidate, Ranking, SpecOffers, no_offer_fits, rank
from skyward.market.repository import OfferRepository, RepositoryError
from skyward.market.requests import ask, reason_of

__all__ = [
    "FILTERS",
    "Excluded",
    "ListedOffers",
    "OfferCandidate",
    "OfferLister",
    "OfferRepository",
    "Ranking",
    "RepositoryError",
    "SpecOffers",
    "ask",
    "excluded_by",
    "filtering_fields",
    "no_offer_fits",
    "offers_ttl",
    "rank",
    "reason_of",
]
