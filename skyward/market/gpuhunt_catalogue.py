"""Offers of providers that Skyward cannot rent from, to compare prices: those of the catalogue of gpuhunt.

gpuhunt is a package of others, and an extra. It fetches the catalogue from its publisher, or from the address in
`GPUHUNT_CATALOG_URL`. Its rows have no stock, and are of the date of the catalogue.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, Final, cast

from skyward.errors import ProviderMissingError, ProvisioningError
from skyward.providers.protocol import InstanceType, Offer, Provider

__all__ = ["GPUHUNT", "ListedByGpuhunt", "gpuhunt_providers"]

GPUHUNT: Final = "gpuhunt"
"""Name of the catalogue, as `--provider` takes it to show offers."""

_PROVIDERS: Final = ("azure", "cloudrift", "nebius", "oci")
"""Providers of the catalogue that Skyward does not ask itself."""

_LASTS: Final = 3600.0
"""Seconds for which a fetched catalogue is kept in this process: all its providers are fetched at once."""

logging.getLogger(GPUHUNT).addHandler(logging.NullHandler())  # it logs each failure with a traceback, and raises one

_loading = threading.Lock()
_loaded: dict[str, tuple[float, Any]] = {}


def gpuhunt_providers() -> tuple["ListedByGpuhunt", ...]:
    """Return the providers whose offers only the catalogue has. Fetches nothing.

    Raises:
        ProviderMissingError: gpuhunt is not installed.
    """
    if find_spec("gpuhunt") is None:
        raise ProviderMissingError(
            "The catalogue of gpuhunt needs a package that is not installed; install it with "
            "`pip install 'skyward-jupyter[gpuhunt]'`."
        )
    return tuple(map(ListedByGpuhunt, _PROVIDERS))


@dataclass(frozen=True, slots=True)
class ListedByGpuhunt:
    """Settings of a provider whose offers only the catalogue of gpuhunt has.

    Attributes:
        name: gpuhunt's name of the provider.
    """

    name: str

    def create_provider(self) -> Provider:
        """Return what lists the offers; it rents nothing."""
        return cast("Provider", _Listing(self.name))


@dataclass(frozen=True, slots=True)
class _Listing:
    name: str

    async def offers(self) -> AsyncIterator[Offer]:
        """Yield the offers of the catalogue.

        Raises:
            ProvisioningError: the catalogue could not be fetched.
        """
        for offer in await asyncio.to_thread(_fetch, self.name):
            yield offer


def _fetch(name: str) -> list[Offer]:
    listed = _catalogue().get(name)
    if listed is None:
        raise ProvisioningError(f"the catalogue of gpuhunt has no provider {name!r}.")
    source = {"date": _date_of(listed.version), "source": f"gpuhunt {listed.version}"}
    return [_offer(each, source) for each in listed.items if each.price > 0]


def _catalogue() -> Any:
    """Return the catalogue: by provider, the items and their version.

    Raises:
        ProvisioningError: it could not be fetched.
    """
    from gpuhunt import Catalog

    address = os.environ.get("GPUHUNT_CATALOG_URL", "")
    with _loading:
        at, found = _loaded.get(address, (-_LASTS, None))
        if found is None or time.monotonic() - at > _LASTS:
            catalogue = Catalog(auto_reload=False)
            try:
                catalogue.load()
            except Exception as error:  # of its own, or of urllib
                raise ProvisioningError(f"the catalogue of gpuhunt could not be fetched: {error}.") from error
            found = catalogue.catalog
            _loaded[address] = time.monotonic(), found
        return found


def _date_of(version: str) -> str:
    """Return the date of a version such as "20260701" or "20260701-6543"; today if it has none."""
    try:
        at = datetime.strptime(version[:8], "%Y%m%d")
    except ValueError:
        at = datetime.now(UTC)
    return f"{at:%Y-%m-%d}"


def _offer(item: Any, source: dict[str, str]) -> Offer:
    kind = InstanceType(
        item.instance_name,
        item.cpu or 0,
        item.memory or 0,
        item.gpu_name or None,
        item.gpu_count or 0,
        "arm64" if item.cpu_arch.value == "arm" else "x86_64",
        item.gpu_memory or None,
    )
    market = {"spot_price": item.price} if item.spot else {"on_demand_price": item.price}
    id = f"{item.location}/{item.instance_name}{'/spot' if item.spot else ''}"
    return Offer(id, kind, region=item.location, specific=source, **market)
