"""The repository of offers: filters in SQL, replacement, freshness, and files that cannot be used."""

import asyncio
import json
import logging
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward.control.act.machines.offers import find_offers
from skyward.errors import NoOffersError
from skyward.market import ListedOffers, OfferLister, OfferRepository, RepositoryError, SpecOffers, offers_ttl, rank
from skyward.market.filters import allowed_markets, excluded_by, market_excluded_by
from skyward.market.freshness import settings_key
from skyward.providers.protocol import PROVIDER_FIELDS, InstanceType, Offer, Provider, ProviderConfig
from skyward.specs import Spec
from skyward.values.validation import Secret
from skyward_providers.container import Container
from skyward_providers.local import Local
from tests.unit.market.strategies import OFFERS, SPECS

NOW = 1_800_000_000.0


def offer(name: str = "m", price: float | None = 1.0, **details: Any) -> Offer:
    return Offer(f"offer-{name}", InstanceType(name, 8, 32), on_demand_price=price, **details)


@dataclass
class Answers:
    """Answers of a cloud: offers, or an error, and the number of requests."""

    offers: tuple[Offer, ...] = (offer(),)
    error: Exception | None = None
    asked: int = 0


@dataclass(frozen=True)
class Cloud:
    """Settings of a cloud whose answers change."""

    answers: Answers = field(default_factory=Answers, compare=False)
    account: str = ""
    offers_ttl: float = 3600.0
    name: str = "cloud"

    def create_provider(self) -> Provider:
        return self  # type: ignore[return-value]  # only its offers are used

    async def offers(self) -> AsyncIterator[Offer]:
        self.answers.asked += 1
        if self.answers.error is not None:
            raise self.answers.error
        for each in self.answers.offers:
            yield each


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[OfferRepository]:
    with OfferRepository(tmp_path) as opened:
        yield opened


def listed(directory: Path, cloud: Any, spec: Spec | None = None, **options: Any) -> ListedOffers:
    async def ask() -> ListedOffers:
        with OfferLister(directory, 5.0, **options) as lister:
            return await lister.fitting(cloud, cloud.create_provider, spec or Spec())

    return asyncio.run(ask())


def names(found: ListedOffers) -> list[str]:
    return [each.instance_type.name for each in found.offers]


def age(directory: Path, seconds: float) -> None:
    """Make all stored offers older."""
    with sqlite3.connect(directory / "offers.db") as db:
        db.execute("UPDATE fetches SET at = at - ?", (seconds,))
    db.close()


# --- filters ---


def _fits(spec: Spec, offered: Offer, fields: frozenset[str], *, priced: bool) -> bool:
    markets = allowed_markets(spec, offered)
    in_market = [market for market in markets if not market_excluded_by(spec, offered, market, priced=priced)]
    return not excluded_by(spec, offered, fields) and bool(in_market)


@settings(max_examples=300)
@given(OFFERS, SPECS, st.sets(st.sampled_from(sorted(PROVIDER_FIELDS))), st.booleans(), st.booleans())
def test_sql_selects_what_the_filters_select(
    tmp_path_factory: pytest.TempPathFactory,
    offers: list[Offer],
    spec: Spec,
    some: set[str],
    acts_on_all: bool,
    priced: bool,
) -> None:
    fields = PROVIDER_FIELDS if acts_on_all else frozenset(some)
    with _shared(tmp_path_factory) as repository:
        repository.replace("key", "cloud", offers, NOW)
        selected = repository.select("key", spec, fields, priced=priced)
        stored = repository.all("key")
        assert sorted(map(_known, stored)) == sorted(map(_known, offers))
        assert sorted(map(_known, selected)) == sorted(
            _known(each) for each in offers if _fits(spec, each, fields, priced=priced)
        )
        everything = rank([SpecOffers(spec, "cloud", offers, fields)], priced=priced).candidates
        of_selected = rank([SpecOffers(spec, "cloud", selected, fields)], priced=priced).candidates
        assert [(_known(one.offer), one.market) for one in of_selected] == [
            (_known(one.offer), one.market) for one in everything
        ]
        first = repository.select("key", spec, fields, priced=priced, limit=1)
        best = rank([SpecOffers(spec, "cloud", first, fields)], priced=priced).candidates[:1]
        assert [one.hourly_price for one in best] == [one.hourly_price for one in everything[:1]]


def _shared(factory: pytest.TempPathFactory) -> OfferRepository:
    """Return a repository in a folder that all examples use."""
    folder = factory.getbasetemp() / "offers of examples"
    folder.mkdir(exist_ok=True)
    return OfferRepository(folder)


def _known(offered: Offer) -> str:
    """Return a text of an offer that is the same for equal numbers and equal prices."""
    kind = offered.instance_type
    numbers = [kind.vcpus, kind.memory_gb, kind.accelerator_count, kind.accelerator_memory_gb or 0]
    markets = [(market, offered.hourly_price(market)) for market in offered.markets]
    texts = offered.id, kind.name, kind.accelerator, kind.architecture, offered.region, offered.open_ended
    return repr((texts, list(map(float, numbers)), markets, json.dumps(dict(offered.specific))))


def test_best_offers_of_each_market_are_selected(repository: OfferRepository) -> None:
    both = [replace(offer(f"m{number}"), spot_price=9.0 - number, on_demand_price=10.0 + number) for number in range(8)]
    repository.replace("key", "cloud", both, NOW)
    found = repository.select("key", Spec(), limit=2)
    assert {each.instance_type.name for each in found} == {"m6", "m7", "m0", "m1"}


# --- replacement ---


def test_fetch_replaces_the_offers_of_the_same_settings_only(repository: OfferRepository) -> None:
    repository.replace("one", "cloud", [offer("a"), offer("b")], NOW)
    repository.replace("two", "cloud", [offer("c")], NOW)
    repository.replace("one", "cloud", [offer("d")], NOW + 1)
    assert [each.instance_type.name for each in repository.all("one")] == ["d"]
    assert [each.instance_type.name for each in repository.all("two")] == ["c"]
    assert (repository.fetched("one"), repository.fetched("two"), repository.fetched("three")) == (NOW + 1, NOW, None)


@pytest.mark.parametrize(
    "wrong",
    [
        offer(specific={"zones": ("a", "b")}),
        offer(specific={"client": object()}),
        offer(specific={1: "a"}),
        replace(offer(), id="\ud800"),
        replace(offer(), instance_type=InstanceType("m", float("nan"), 1)),
    ],
)
def test_offers_that_cannot_be_stored_keep_the_stored_ones(repository: OfferRepository, wrong: Offer) -> None:
    repository.replace("key", "cloud", [offer("a")], NOW)
    with pytest.raises(RepositoryError):
        repository.replace("key", "cloud", [offer("b"), wrong], NOW + 1)
    assert [each.instance_type.name for each in repository.all("key")] == ["a"]
    assert repository.fetched("key") == NOW


def test_offers_of_settings_out_of_use_are_deleted(repository: OfferRepository) -> None:
    repository.replace("old", "cloud", [offer()], time.time() - 31 * 86400)
    repository.replace("new", "cloud", [offer()], time.time())
    assert repository.fetched("old") is None
    with sqlite3.connect(repository.path) as db:
        assert db.execute("SELECT count(*) FROM offers").fetchone() == (1,)
    db.close()


_REPLACE_OFTEN = """
import sys
from pathlib import Path
from skyward.market import OfferRepository
from skyward.providers.protocol import InstanceType, Offer
from skyward.specs import Spec

directory, name = sys.argv[1:]
with OfferRepository(Path(directory)) as repository:
    for number in range(20):
        offer = Offer("id", InstanceType(f"{name}{number}", 8, 32), on_demand_price=1.0)
        repository.replace("key", "cloud", [offer] * 50, 1e9 + number)
        found = repository.select("key", Spec())
        assert len(found) == 50 and len({each.instance_type.name for each in found}) == 1
"""


def test_several_processes_replace_and_read_at_the_same_time(tmp_path: Path) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", _REPLACE_OFTEN, str(tmp_path), name]) for name in "abcd"]
    assert [each.wait(50) for each in processes] == [0] * 4
    with OfferRepository(tmp_path) as repository:
        assert len(repository.all("key")) == 50


# --- freshness ---


def test_provider_is_asked_again_once_its_offers_are_too_old(tmp_path: Path) -> None:
    cloud = Cloud()
    assert names(listed(tmp_path, cloud)) == names(listed(tmp_path, cloud)) == ["m"]
    assert cloud.answers.asked == 1
    age(tmp_path, 3500)
    listed(tmp_path, cloud)
    assert cloud.answers.asked == 1
    age(tmp_path, 101)
    cloud.answers.offers = (offer("new"),)
    assert names(listed(tmp_path, cloud)) == ["new"]
    assert cloud.answers.asked == 2


def test_offers_from_the_future_are_not_fresh(tmp_path: Path) -> None:
    cloud = Cloud()
    listed(tmp_path, cloud)
    age(tmp_path, -60)
    listed(tmp_path, cloud)
    assert cloud.answers.asked == 2


def test_offers_that_are_too_old_are_shown_but_not_bought_if_the_provider_fails(tmp_path: Path) -> None:
    cloud = Cloud()
    at = listed(tmp_path, cloud).at
    age(tmp_path, 7200)
    cloud.answers.error = OSError("no route to host\nsecret body")
    with pytest.raises(OSError, match="no route"):
        listed(tmp_path, cloud)
    shown = listed(tmp_path, cloud, shows_stale=True)
    assert names(shown) == ["m"]
    assert shown.problem == "no route to host"
    assert shown.at == pytest.approx(at - 7200)
    cloud.answers.error = None
    assert listed(tmp_path, cloud, shows_stale=True).problem == ""


def test_provider_that_never_listed_offers_has_none_to_show(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no route"):
        listed(tmp_path, Cloud(Answers(error=OSError("no route"))), shows_stale=True)


def test_pool_does_not_buy_stored_offers_past_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    old, other = Cloud(account="old"), Cloud(Answers((offer("other", 5.0),)), name="other")
    specs = [Spec(provider=old), Spec(provider=other)]
    first = asyncio.run(find_offers(specs, "cheapest"))
    assert [str(each.source) for each in first.offered] == ["cloud m on-demand", "other other on-demand"]
    age(tmp_path, 7200)
    old.answers.error = OSError("no route")
    found = asyncio.run(find_offers(specs, "cheapest"))
    assert [each.source.provider for each in found.offered] == ["other"]
    assert found.notes == ("Provider 'cloud' is left out, because it did not list its offers: no route.",)


def test_specs_of_the_same_provider_share_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    cloud = Cloud(Answers((offer("x"), replace(offer("y"), instance_type=InstanceType("y", 64, 32)))))
    specs = [Spec(provider=cloud, vcpus=16), Spec(provider=cloud)]
    found = asyncio.run(find_offers(specs, "cheapest")).offered
    assert {each.offer.instance_type.name for each in found} == {"x", "y"}
    failing = Cloud(Answers(error=OSError("no route")), account="failing")
    asyncio.run(find_offers([Spec(provider=failing), replace(Spec(provider=failing), vcpus=1), *specs], "cheapest"))
    assert (cloud.answers.asked, failing.answers.asked) == (1, 1)


def test_provider_is_asked_again_if_no_stored_offer_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    cloud, always = Cloud(Answers((offer("small"),))), Cloud(Answers((offer("small"),)), "always", offers_ttl=0)
    specs = [Spec(provider=cloud, vcpus=64), Spec(provider=cloud, vcpus=96), Spec(provider=always, vcpus=64)]
    with pytest.raises(NoOffersError, match="of 1 offer from cloud, vcpus excludes 1"):
        asyncio.run(find_offers(specs, "cheapest"))
    assert (cloud.answers.asked, always.answers.asked) == (1, 1)
    cloud.answers.offers = (replace(offer("big"), instance_type=InstanceType("big", 64, 32)),)
    found = asyncio.run(find_offers(specs, "cheapest"))
    assert [each.offer.instance_type.name for each in found.offered] == ["big"]
    assert (cloud.answers.asked, always.answers.asked) == (2, 2)
    cloud.answers.error = OSError("no route")
    with pytest.raises(NoOffersError, match="of 1 offer from cloud, vcpus excludes 1"):
        asyncio.run(find_offers(specs[1:2], "cheapest"))


def test_settings_of_one_provider_have_their_own_offers(tmp_path: Path) -> None:
    mine, yours = Cloud(Answers((offer("mine"),)), "mine"), Cloud(Answers((offer("yours"),)), "yours")
    assert (names(listed(tmp_path, mine)), names(listed(tmp_path, yours))) == (["mine"], ["yours"])
    assert (names(listed(tmp_path, mine)), names(listed(tmp_path, yours))) == (["mine"], ["yours"])


@dataclass(frozen=True)
class Keyed:
    key: Secret = field(default=Secret(""), repr=False)
    regions: frozenset[str] = frozenset()
    name: str = "keyed"
    thing: object = None

    def create_provider(self) -> Provider:
        raise AssertionError


def test_key_of_settings_depends_on_each_of_them() -> None:
    different = [Keyed(), Keyed(Secret("a")), Keyed(Secret("b")), Keyed(regions=frozenset("ab")), Keyed(name="other")]
    assert len({settings_key(each) for each in different}) == 5
    assert settings_key(Keyed(regions=frozenset("ab"))) == settings_key(Keyed(regions=frozenset("ba")))
    assert settings_key(Keyed(thing=object())) == ""


class Plain:
    name = "plain"

    def create_provider(self) -> Provider:
        raise AssertionError


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        (Keyed(), 86400),
        (Cloud(), 3600),
        (Cloud(offers_ttl=0), 0),
        (Cloud(offers_ttl=float("nan")), 0),
        (Keyed(thing=object()), 0),  # equal settings cannot be recognised
        (Plain(), 0),
        (Local(), 0),
        (Container(), 0),
    ],
)
def test_offers_hold_for_a_day_unless_the_settings_state_it(config: ProviderConfig, seconds: float) -> None:
    assert offers_ttl(config) == seconds


def test_provider_that_is_always_asked_stores_nothing(tmp_path: Path) -> None:
    cloud = Cloud(offers_ttl=0)
    assert names(listed(tmp_path, cloud)) == names(listed(tmp_path, cloud)) == ["m"]
    assert cloud.answers.asked == 2
    with OfferRepository(tmp_path) as repository:
        assert repository.fetched(settings_key(cloud)) is None


# --- files that cannot be used ---


def _text(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1000)


def _other_format(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE offers (id)")
        db.execute("PRAGMA user_version = 99")
    db.close()


def _lacks_a_table(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 1")
    db.close()


@pytest.mark.parametrize("spoil", [_text, _other_format, _lacks_a_table])
def test_unusable_file_is_set_aside_with_one_warning(
    tmp_path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    spoil(tmp_path / "offers.db")
    cloud = Cloud()
    with caplog.at_level(logging.WARNING):
        assert names(listed(tmp_path, cloud)) == names(listed(tmp_path, cloud)) == ["m"]
    assert [each.message.count("was renamed to offers-set-aside.db") for each in caplog.records] == [1]
    assert cloud.answers.asked == 1
    assert (tmp_path / "offers-set-aside.db").exists()


def test_file_that_is_damaged_inside_is_set_aside_and_the_provider_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cloud = Cloud(Answers(tuple(offer(f"m{number}") for number in range(500))))
    listed(tmp_path, cloud)
    with sqlite3.connect(tmp_path / "offers.db") as db:
        db.execute("PRAGMA journal_mode = DELETE")
    db.close()
    data = bytearray((tmp_path / "offers.db").read_bytes())
    data[8 * 4096 :] = b"\xff" * (len(data) - 8 * 4096)
    (tmp_path / "offers.db").write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert len(listed(tmp_path, cloud).offers) == 500
    assert (tmp_path / "offers-set-aside.db").exists()
    assert listed(tmp_path, cloud).offers
    assert cloud.answers.asked == 3


def test_offers_are_listed_without_a_repository_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "offers.db").mkdir()
    cloud = Cloud()
    with caplog.at_level(logging.WARNING):
        assert names(listed(tmp_path, cloud)) == names(listed(tmp_path, cloud)) == ["m"]
    assert len(caplog.records) == 1
    assert cloud.answers.asked == 2


def test_offers_that_cannot_be_stored_are_listed_all_the_same(tmp_path: Path) -> None:
    cloud = Cloud(Answers((offer(specific={"zones": ("a", "b")}),)))
    assert names(listed(tmp_path, cloud)) == ["m"]


def test_file_can_be_read_by_its_user_only(repository: OfferRepository) -> None:
    assert os.stat(repository.path).st_mode & 0o777 == 0o600


def test_every_field_of_an_offer_is_stored(repository: OfferRepository) -> None:
    kind = InstanceType("m", 3.0, 7.0, "A100", 2.0, "arm64", 40.0)
    assert {each.name for each in fields(kind) if getattr(kind, each.name) == each.default} == set()
    plain = Offer("id", kind, 0.5, 1.0, "minute", "here", {"zone": "a"}, True)
    others: dict[str, Any] = {each.name: True for each in fields(Offer) if each.default is False}  # such as a new one
    full = replace(plain, **others)
    for number, each in enumerate((plain, full)):
        repository.replace("key", "cloud", [each], NOW + number)
        assert repository.all("key") == repository.select("key", Spec(allocation="spot")) == (each,)
