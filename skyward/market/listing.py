"""Listing of the offers of providers: from the repository while they are fresh, else from the provider."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from skyward.market.freshness import lacks_credentials, offers_ttl, settings_key
from skyward.market.repository import OfferRepository, RepositoryError
from skyward.market.requests import ask, reason_of
from skyward.providers.protocol import Offer, Provider, ProviderConfig, acts_on
from skyward.specs import Spec

__all__ = ["MOST", "ListedOffers", "OfferLister"]

MOST: Final = 100
"""Offers of one provider that are read from the repository in each market: the best ones. A pool uses a few of them."""

_logger = logging.getLogger(__name__)
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class ListedOffers:
    """Offers of one provider.

    Attributes:
        offers: the offers, or only those that fit a spec.
        at: Unix time at which the provider listed them.
        problem: why they are older than they may be, as the end of a sentence; empty if they are fresh.
    """

    offers: Sequence[Offer]
    at: float
    problem: str = ""


class OfferLister:
    """Lister of offers. Each provider is asked at most once, unless it is asked always.

    Stored offers of a provider whose credentials are missing are not used: it is asked, and says what it needs.

    Args:
        directory: folder of the repository; None to store nothing.
        within: timeout of a listing in seconds.
        shows_stale: True to return offers that are too old if the provider does not list them now: to show, not to buy.
        limit: most offers of one provider in each market.
    """

    def __init__(
        self, directory: Path | None, within: float, *, shows_stale: bool = False, limit: int | None = MOST
    ) -> None:
        self._within = within
        self._since = time.time()
        self._shows_stale = shows_stale
        self._limit = limit
        self._repository = None if directory is None else _opened(directory)
        self._asking: dict[str, asyncio.Lock] = {}
        self._failed: dict[str, Exception] = {}
        self._at_least = 0.0
        self._kept: dict[str, ListedOffers] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._repository is not None:
            self._repository.close()

    async def fitting(
        self, config: ProviderConfig, create: Callable[[], Provider], spec: Spec, *, priced: bool = False
    ) -> ListedOffers:
        """Return the offers of a provider, without those that the repository knows not to fit.

        Raises:
            Exception: any exception of the provider, or of `create`.
        """
        key, ttl = settings_key(config), offers_ttl(config)
        if not ttl or self._repository is None:
            return ListedOffers(await ask(create(), self._within), time.time())
        async with self._asking.setdefault(key, asyncio.Lock()):
            problem = ""
            if key not in self._kept and not await self._is_usable(key, ttl, config):
                try:
                    await self._refresh(key, config, create)
                except Exception as error:
                    if not self._shows_stale or self._fetched(key) is None:
                        raise
                    problem = reason_of(error)
        if key in self._kept:
            return self._kept[key]
        try:
            at, fields = self._repository.fetched(key), acts_on(config).fields
            found = self._repository.select(key, spec, fields, priced=priced, limit=self._limit)
            if at is None:
                raise RepositoryError("the file of the offers was set aside meanwhile")
            return ListedOffers(found, at, problem)
        except RepositoryError as error:
            _warn(error)
            return ListedOffers(await ask(create(), self._within), time.time())

    def is_stored(self, listed: ListedOffers) -> bool:
        """Return whether a provider listed these offers before this lister asked any."""
        return listed.at < self._since

    def ask_again(self) -> None:
        """Ask each provider again whose offers are stored: from now on, those are too old."""
        self._at_least = self._since

    def everything(self, config: ProviderConfig, listed: ListedOffers) -> Sequence[Offer]:
        """Return all offers of a provider of which `listed` are those that may fit."""
        key = settings_key(config)
        if not offers_ttl(config) or self._repository is None or key in self._kept:
            return listed.offers
        try:
            return self._repository.all(key)
        except RepositoryError as error:
            _warn(error)
            return listed.offers

    def _fetched(self, key: str) -> float | None:
        """Return the time at which the stored offers were listed; None if there are none."""
        try:
            return None if self._repository is None else self._repository.fetched(key)
        except RepositoryError as error:
            _warn(error)
            return None

    async def _is_usable(self, key: str, ttl: float, config: ProviderConfig) -> bool:
        """Return whether the stored offers are fresh, and can be bought as far as is known without a request."""
        if not self._is_fresh(key, ttl):
            return False
        at = self._fetched(key)
        return (at is not None and at >= self._since) or not await asyncio.to_thread(lacks_credentials, config)

    def _is_fresh(self, key: str, ttl: float) -> bool:
        at = self._fetched(key)
        return at is not None and at >= self._at_least and 0 <= time.time() - at < ttl

    async def _refresh(self, key: str, config: ProviderConfig, create: Callable[[], Provider]) -> None:
        """Store the offers of a provider as it lists them now; keep them here if they cannot be stored."""
        if key in self._failed:
            raise self._failed[key]
        assert self._repository is not None
        try:
            at, offers = time.time(), await ask(create(), self._within)
        except Exception as error:
            self._failed[key] = error
            raise
        try:
            await asyncio.to_thread(self._repository.replace, key, config.name, offers, at)
        except RepositoryError as error:
            _warn(error)
            self._kept[key] = ListedOffers(offers, at)


def _opened(directory: Path) -> OfferRepository | None:
    try:
        return OfferRepository(directory)
    except RepositoryError as error:
        _warn(error)
        return None


def _warn(error: RepositoryError) -> None:
    """Log once that offers are not stored."""
    if str(error) not in _warned:
        _warned.add(str(error))
        _logger.warning("Offers are not stored, so providers are asked each time: %s.", error)
