"""Texts of the sources of machines that are found."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import skyward as sky
from skyward.control.act.machines.offers import SourceOffer, find_offers
from skyward.providers.protocol import InstanceType, Offer
from skyward.values.validation import FrozenMap
from skyward.wire.protocol.adapter import Heartbeat

pytestmark = pytest.mark.unit

OFFER = Offer("o", InstanceType("small", 2, 4), on_demand_price=0.0126, region="here")


@dataclass(frozen=True)
class Cloud:
    """Settings of a cloud with one offer."""

    offer: Offer
    name: str = "cloud"

    def create_provider(self) -> "Cloud":
        return self

    async def offers(self) -> AsyncIterator[Offer]:
        yield self.offer


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory for the stored offers."""
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))


def found(offer: Offer, **fields: object) -> SourceOffer:
    """Return the only source of a cloud with that offer."""
    spec = sky.Spec(provider=Cloud(offer), **fields)  # type: ignore[arg-type]  # a cloud of this test
    (source,) = asyncio.run(find_offers([spec], "cheapest")).offered
    return source


@pytest.mark.parametrize(
    ("unknown", "told"),
    [
        (False, "cloud small here on-demand at $0.0126 per hour each"),
        (True, "cloud small here at $0.0126 per hour each"),
    ],
)
def test_market_is_named_only_if_it_is_known(unknown: bool, told: str) -> None:
    source = found(replace(OFFER, market_unknown=unknown))
    assert source.at_price == told
    assert source.priced
    assert source.source.hourly_price == 0.0126
    assert source.spec.allocation == "on-demand"
    (shown,) = sky.offers(provider=Cloud(replace(OFFER, market_unknown=unknown)))
    assert (shown.market, shown.hourly_price) == ("" if unknown else "on-demand", 0.0126)


def test_offer_without_a_price_has_an_unknown_one() -> None:
    source = found(replace(OFFER, on_demand_price=None, market_unknown=True))
    assert not source.priced
    assert source.at_price == "cloud small here at an unknown price"


def test_market_of_an_adapter_is_unknown() -> None:
    from skyward_providers.adapter import _offer

    offer = _offer(Heartbeat("adapter-1", 2, 1, frozenset(), FrozenMap({"CPU": 2.0}), 0.0126))
    assert (offer.market_unknown, offer.on_demand_price) == (True, 0.0126)
