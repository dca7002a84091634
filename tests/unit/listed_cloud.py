"""A cloud that only lists offers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from skyward.providers import Offer

__all__ = ["ListedCloud"]


@dataclass(frozen=True)
class ListedCloud:
    """Settings of a provider with these offers, which launches nothing."""

    catalogue: tuple[Offer, ...]
    name: str = "cloud"

    def create_provider(self) -> Any:
        return self

    async def offers(self) -> AsyncIterator[Offer]:
        for each in self.catalogue:
            yield each
