"""Offers to show: of several providers, of the bundled catalogue, and of providers without credentials."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import skyward as sky
from skyward.accelerators import describe, names
from skyward.control.observe.startup import usual_start
from skyward.journal import Journal
from skyward.market import OfferLister, rank
from skyward.market.candidates import candidate_providers, no_credentials
from skyward.market.catalogue import catalogue
from skyward.market.ranking import SpecOffers
from skyward.pool.account.offers import notes_on, survey_offers
from skyward.providers import protocol
from skyward.providers.protocol import CredentialSource, InstanceType, Offer, Provider
from skyward.specs import Spec
from skyward_providers.local import Local

DAY = 86400.0


def offer(name: str, price: float | None, spot: float | None = None, **details: Any) -> Offer:
    kind = InstanceType(name, 8, 32, details.pop("accelerator", None), details.pop("count", 0))
    return Offer(name, kind, spot, price, **details)


@dataclass
class Answers:
    offers: tuple[Offer, ...] = ()
    error: Exception | None = None
    asked: int = 0


@dataclass(frozen=True)
class Cloud:
    """Settings of a cloud with credentials, or without."""

    name: str = "cloud"
    answers: Answers = field(default_factory=Answers, compare=False)
    key: str = "environment variable CLOUD_KEY"
    region: str = ""

    @property
    def policy(self) -> str:
        raise AssertionError("the policy is not needed")

    def credentials(self) -> CredentialSource:
        return CredentialSource(self.key, "set CLOUD_KEY")

    def create_provider(self) -> Provider:
        return self  # type: ignore[return-value]  # only its offers are used

    async def offers(self) -> AsyncIterator[Offer]:
        self.answers.asked += 1
        if self.answers.error is not None:
            raise self.answers.error
        for each in self.answers.offers:
            yield each


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings classes of the installed providers, by name; an error instead of one that cannot be loaded."""
    found: dict[str, Any] = {}

    def load(name: str) -> Any:
        if isinstance(found[name], Exception):
            raise found[name]
        return found[name]

    class Entries(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return SimpleNamespace(load=lambda: load(name), dist=SimpleNamespace(name="skyward-jupyter"))

        def __contains__(self, name: object) -> bool:
            return name in found

        def __iter__(self) -> Iterator[str]:
            return iter(found)

    monkeypatch.setattr(protocol, "_entries", Entries)
    return found


def cloud(name: str, *offers: Offer, **details: Any) -> Cloud:
    return Cloud(name, Answers(offers), **details)


# --- sky.offers ---


def test_offers_are_public_values_in_the_order_in_which_a_pool_would_try_them() -> None:
    one = cloud("one", offer("a", 3.0, 1.0, accelerator="NVIDIA A100-SXM4-80GB", count=8, region="here"))
    two = cloud("two", offer("b", 2.0), offer("cheap", 0.5))
    found = sky.offers(provider=[one, two], accelerator=None)
    assert [(each.provider, each.type, each.market, each.hourly_price) for each in found] == [
        ("two", "cheap", "on-demand", 0.5),
        ("two", "b", "on-demand", 2.0),
        ("one", "a", "spot", 1.0),
        ("one", "a", "on-demand", 3.0),
    ]
    first = found[2]
    assert (first.accelerator, first.accelerator_count, first.region) == ("NVIDIA A100-SXM4-80GB", 8, "here")
    assert first.is_current
    assert abs(first.listed.timestamp() - time.time()) < 60
    assert [each.type for each in sky.offers(provider=[one, two], accelerator="A100", limit=1)] == ["a"]
    assert [each.type for each in sky.offers(provider=two, allocation="on-demand", max_hourly_cost=1)] == ["cheap"]


def test_specs_are_alternatives_as_those_of_a_pool() -> None:
    one, two = cloud("one", offer("a", 3.0)), cloud("two", offer("b", 2.0))
    specs = sky.Spec(provider=one), sky.Spec(provider=two)
    assert [each.type for each in sky.offers(*specs)] == ["b", "a"]
    assert [each.type for each in sky.offers(*specs, selection="first")] == ["a", "b"]
    with pytest.raises(sky.SpecError, match="offers got specs and also vcpus"):
        sky.offers(*specs, vcpus=4)
    with pytest.raises(sky.SpecError, match="by position"):
        sky.offers("A100")  # type: ignore[arg-type]  # a mistake
    with pytest.raises(sky.SpecError, match="limit must be a whole number"):
        sky.offers(limit=0)


def test_equal_offers_of_several_zones_are_shown_once() -> None:
    zones = [offer("a", 1.0, region="r", specific={"zone": zone}) for zone in "abc"]
    assert len(sky.offers(provider=cloud("one", *zones))) == 1


def test_provider_names_may_be_joined_by_commas(installed: dict[str, Any]) -> None:
    installed["one"] = lambda: cloud("one", offer("a", 3.0))
    installed["two"] = lambda: cloud("two", offer("b", 2.0))
    assert [each.provider for each in sky.offers(provider="one, two")] == ["two", "one"]
    with pytest.raises(sky.SpecError, match="'three'"):
        sky.offers(provider="one,three")
    with pytest.raises(sky.SpecError, match="but got none"):
        sky.offers(provider=" , ")


def test_failing_provider_is_logged_and_its_earlier_offers_are_shown_as_old(
    data: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, good = cloud("bad", offer("a", 1.0)), cloud("good", offer("b", 2.0))
    sky.offers(provider=[failing, good])
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 25 * 3600)
    failing.answers.error = OSError("401 Unauthorized\nsecret body")
    with caplog.at_level(logging.WARNING):
        found = sky.offers(provider=[failing, good])
    assert [(each.provider, each.is_current) for each in found] == [("bad", False), ("good", True)]
    assert abs(found[0].listed.timestamp() - now) < 60
    assert len(caplog.messages) == 1
    assert re.fullmatch(
        r"Provider 'bad' did not list its offers \(401 Unauthorized\); its prices are .+ old\.", caplog.messages[0]
    )


def test_failing_provider_without_earlier_offers_is_shown_with_the_catalogue(caplog: pytest.LogCaptureFixture) -> None:
    failing = Cloud("aws", Answers(error=OSError("no route")))
    with caplog.at_level(logging.WARNING):
        found = sky.offers(provider=failing, accelerator="T4")
    assert {(each.provider, each.origin, each.is_current) for each in found} == {("aws", "catalogue", False)}
    assert caplog.messages == [
        "Provider 'aws' did not list its offers (no route); its prices are those of the bundled catalogue."
    ]
    caplog.clear()
    assert sky.offers(provider=Cloud("unknown", Answers(error=OSError("no route")))) == []
    assert caplog.messages == ["Provider 'unknown' did not list its offers (no route)."]


def test_without_a_provider_those_with_credentials_are_asked_and_others_shown_with_the_catalogue(
    installed: dict[str, Any],
) -> None:
    asked = cloud("aws", offer("mine", 0.01, accelerator="T4", count=1))
    silent = cloud("gcp", offer("never", 0.01), key="")
    installed |= {"aws": _settings(asked), "gcp": _settings(silent), "local": Local}
    found = sky.offers(accelerator="L4", limit=None)
    assert {(each.provider, each.origin) for each in found} == {("gcp", "catalogue")}
    assert sky.offers(accelerator="T4")[0].type == "mine"
    assert (asked.answers.asked, silent.answers.asked) == (1, 0)
    assert notes_on(survey_offers((), {"accelerator": "L4"})) == [
        "gcp has no credentials, so its prices are those of the bundled catalogue; to rent from it, set CLOUD_KEY."
    ]


def _settings(made: Cloud) -> type[Cloud]:
    class Settings(Cloud):
        def __new__(cls) -> Any:
            return made

    return Settings


def test_offers_are_not_stored_where_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "file" / "below"))
    assert [each.type for each in sky.offers(provider=cloud("one", offer("a", 1.0)))] == ["a"]


def test_usual_start_of_a_provider_is_shown(data: Path) -> None:
    one = cloud("one", offer("a", 1.0))
    assert usual_start("one") is None
    with Journal() as journal:
        journal.add_phase_seconds("one", "", {"requested": 20.0}, 9)
        assert usual_start("one") is None
        for seconds in (10.0, 30.0, 50.0):
            journal.add_phase_seconds("one", "image", {"start": seconds, "deps": 5.0}, 9)
    assert sky.offers(provider=one)[0].boot_seconds == 50.0
    assert usual_start("two") is None


def test_notes_are_returned_to_front_ends() -> None:
    failing = Cloud("unknown", Answers(error=OSError("no route")))
    found = survey_offers([Spec(provider=failing)], {})
    assert found.notes == {"unknown": "Provider 'unknown' did not list its offers (no route)."}
    assert notes_on(found) == [*found.notes.values()]


def test_cluster_is_asked_for_its_offers_only_by_name(installed: dict[str, Any]) -> None:
    class Cluster(Cloud):
        only_by_name = True

    free = Cluster("cluster", Answers((offer("pod", 0.0),)))
    installed |= {"a": _settings(cloud("a", offer("m", 1.0))), "cluster": _settings(free)}
    assert [each.provider for each in sky.offers()] == ["a"]
    assert [each.provider for each in sky.offers(provider=free)] == ["cluster"]


# --- providers with credentials ---


def test_providers_with_credentials_are_first_and_the_others_say_how(installed: dict[str, Any]) -> None:
    class Needy:
        policy = ""

        def __init__(self, key: str) -> None: ...

        def credentials(self) -> CredentialSource:
            raise AssertionError

    class Broken(Cloud):
        def credentials(self) -> CredentialSource:
            raise OSError("the file is not readable")

    installed |= {
        "a": _settings(cloud("a", key="")),
        "b": _settings(cloud("b")),
        "broken": Broken,
        "local": Local,
        "missing": ModuleNotFoundError("No module named 'sdk'", name="sdk"),
        "needy": Needy,
    }
    found = candidate_providers()
    assert [(each.name, each.is_usable) for each in found] == [
        *(("b", True), ("a", False), ("broken", False), ("missing", False), ("needy", False))
    ]
    assert str(no_credentials(found[1:])) == (
        "No provider has credentials, so no machine can be rented. Give those of one:\na: set CLOUD_KEY;\nbroken: "
        "mend its credentials (the file is not readable);\nmissing: run `pip install 'skyward-jupyter[missing]'`;\n"
        "needy: write its settings in a table `[providers.needy]` with `type = 'needy'`."
    )
    assert str(no_credentials(())) == (
        "No provider has credentials, so no machine can be rented. None is installed that needs any."
    )


def test_table_of_the_user_replaces_the_default_settings(installed: dict[str, Any]) -> None:
    installed |= {"a": _settings(cloud("a")), "b": _settings(cloud("b"))}
    mine, yours = cloud("a", region="eu"), cloud("a", region="us", key="")
    found = candidate_providers({"mine": mine, "yours": yours, "here": Local()})
    assert [(each.name, each.config) for each in found] == [("b", Cloud("b")), ("mine", mine), ("yours", yours)]


# --- the catalogue ---


def test_catalogue_is_small_dated_and_of_known_accelerators() -> None:
    rows = [(provider, each) for provider, offers in catalogue().items() for each in offers]
    assert 100 <= len(rows) <= 200
    assert {provider for provider, _ in rows} == {
        *("aws", "gcp", "runpod", "vastai", "verda", "lambda", "hyperstack"),
    }
    for _, each in rows:
        assert date(2024, 1, 1) < date.fromisoformat(each.specific["date"]) < datetime.now(UTC).date()
        assert each.specific["source"]
        assert each.hourly_price("on-demand")
        kind = each.instance_type
        assert kind.accelerator is None or describe(kind.accelerator).model in names()
        assert (kind.accelerator is None) == (kind.accelerator_count == 0)
        spot = each.hourly_price("spot")
        assert spot is None or spot < (each.hourly_price("on-demand") or 0)
    keys = [(provider, each.instance_type, each.region) for provider, each in rows]
    assert len(keys) == len(set(keys))


def test_catalogue_is_filtered_as_offers_are() -> None:
    everything = [each for offers in catalogue().values() for each in offers]
    best = rank([SpecOffers(Spec(accelerator="H100:8"), "any", everything)]).candidates
    assert {one.offer.instance_type.accelerator_count for one in best} == {8}
    assert {describe(one.offer.instance_type.accelerator or "").model for one in best} == {"H100"}


def test_catalogue_is_never_bought(tmp_path: Path) -> None:
    failing = Cloud("aws", Answers(error=OSError("no route")))

    async def ask() -> None:
        with OfferLister(tmp_path, 5.0) as lister:
            await lister.fitting(failing, failing.create_provider, Spec())

    with pytest.raises(OSError, match="no route"):
        asyncio.run(ask())
    with pytest.raises(sky.NoOffersError, match="no route"):
        sky.Compute(replace(Spec(), provider=failing), Spec(provider=failing)).open()
