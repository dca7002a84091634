"""Choice among offers: filters, hourly prices, order, and failing providers."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyward as sky
from skyward.accelerators import describe, names
from skyward.control.act.machines.offers import FoundOffers, find_offers
from skyward.market import OfferCandidate, SpecOffers, excluded_by, no_offer_fits, rank
from skyward.providers.protocol import InstanceType, Offer, Provider
from skyward.specs import Spec


def machine(name: str = "m", vcpus: float = 8, memory_gb: float = 32, **details: Any) -> InstanceType:
    return InstanceType(name, vcpus, memory_gb, **details)


def offer(name: str = "m", spot: float | None = None, on_demand: float | None = 1.0, **details: Any) -> Offer:
    kind = details.pop("kind", None) or machine(name)
    return Offer(f"offer-{name}", kind, spot, on_demand, **details)


def ranked(spec: Spec, *offers: Offer, **settings: Any) -> list[tuple[str, str]]:
    ranking = rank([SpecOffers(spec, "cloud", offers)], **settings)
    return [(one.offer.instance_type.name, one.market) for one in ranking.candidates]


@dataclass(frozen=True)
class Cloud:
    """Settings of a provider with a fixed catalogue, an error, or no answer."""

    name: str
    catalogue: tuple[Offer, ...] = ()
    error: Exception | None = None
    hangs: bool = False
    asked: list[str] = field(default_factory=list, compare=False)

    def create_provider(self) -> Provider:
        return self  # type: ignore[return-value]  # only its offers are used

    async def offers(self) -> AsyncIterator[Offer]:
        self.asked.append(self.name)
        for each in self.catalogue:
            yield each
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error


def found(*specs: Spec, **settings: Any) -> FoundOffers:
    return asyncio.run(find_offers(specs, settings.pop("selection", "cheapest"), **settings))


# --- filters ---


@pytest.mark.parametrize(
    ("fields", "fits", "does_not"),
    [
        ({"vcpus": 4}, machine(vcpus=4), machine(vcpus=3.9)),
        ({"memory_gb": 16}, machine(memory_gb=64), machine(memory_gb=15)),
        ({"architecture": "arm64"}, machine(architecture="arm64"), machine()),
        (
            {"accelerator": "A100:4"},
            machine(accelerator="NVIDIA A100-SXM4-80GB", accelerator_count=8),
            machine(accelerator="A100-80GB", accelerator_count=2),
        ),
        ({"accelerator": "A100"}, machine(accelerator="A100", accelerator_count=1), machine(accelerator="A100-40GB")),
        ({"accelerator": "A10"}, machine(accelerator="A10"), machine(accelerator="A10G")),
        ({"accelerator": "T4"}, machine(accelerator="nvidia-tesla-t4"), machine()),
        ({"accelerator": "V100-32GB"}, machine(accelerator="V100-32GB"), machine(accelerator="Tesla V100-SXM2-16GB")),
        ({"accelerator": "H100-SXM"}, machine(accelerator="H100 SXM5"), machine(accelerator="H100 PCIe")),
        (
            {"accelerator": "A100:0.25"},
            machine(accelerator="A100", accelerator_count=0.5),
            machine(accelerator="A100", accelerator_count=0.125),
        ),
        (
            {"accelerator": "L40S"},
            machine(accelerator="L40S", accelerator_memory_gb=44.7),
            machine(accelerator="L40S", accelerator_memory_gb=24),
        ),
        (
            {"accelerator": sky.accelerators.Custom("Fast-9", memory="10GB")},
            machine(accelerator="Fast 9 12GB"),
            machine(accelerator="Fast 9 8GB"),
        ),
    ],
)
def test_amounts_of_a_spec_are_minimums(fields: dict[str, Any], fits: InstanceType, does_not: InstanceType) -> None:
    spec = Spec(**fields)
    assert ranked(spec, offer(kind=fits)) == [("m", "on-demand")]
    assert ranked(spec, offer(kind=does_not)) == []


def test_region_is_compared_without_case() -> None:
    spec = Spec(region="EU-West-1")
    assert ranked(spec, offer("near", region="eu-west-1"), offer("far", region="us-east-1")) == [("near", "on-demand")]


def test_unknown_hardware_excludes_nothing() -> None:
    spec = Spec(vcpus=64, memory_gb=512, accelerator="A100:8", region="here")
    assert ranked(spec, offer(kind=machine(vcpus=0, memory_gb=0, accelerator="")))


def test_filter_applies_only_to_fields_that_the_provider_supports() -> None:
    ranking = rank([SpecOffers(Spec(vcpus=64), "local", [offer()], frozenset())])
    assert len(ranking.candidates) == 1


def test_models_of_the_catalogue_are_recognised_in_the_spellings_of_vendors() -> None:
    for name in names():
        words = name.replace("_", " ")
        for text in (name, words.lower(), f"NVIDIA {words}", f"8x {words} 80GB", f"{name.replace('_', '-')}:4"):
            assert describe(text).model == name


@given(st.text(max_size=40))
def test_any_name_of_an_accelerator_is_described(text: str) -> None:
    assert describe(describe(text).model).model is not None


# --- prices ---


def test_prices_are_compared_per_hour() -> None:
    second = offer("second", on_demand=0.001, billing_unit="second")  # 3.60 per hour
    minute = offer("minute", on_demand=0.05, billing_unit="minute")  # 3.00 per hour
    hour = offer("hour", on_demand=3.3)
    assert [name for name, _ in ranked(Spec(), second, minute, hour)] == ["minute", "hour", "second"]
    assert [name for name, _ in ranked(Spec(max_hourly_cost=3.4), second, minute, hour)] == ["minute", "hour"]
    places = [each.source for each in found(Spec(provider=Cloud("cloud", (second, minute, hour)))).offered]
    assert [place.hourly_price for place in places] == pytest.approx([3.0, 3.3, 3.6])


@pytest.mark.parametrize("price", [float("nan"), float("inf"), -1.0])
def test_invalid_price_counts_as_unknown(price: float) -> None:
    assert offer(on_demand=price).hourly_price("on-demand") is None


def test_unknown_price_comes_last_and_fits_no_limit() -> None:
    unknown, dear = offer("unknown", on_demand=None), offer("dear", on_demand=90.0)
    assert ranked(Spec(), unknown, dear) == [("dear", "on-demand"), ("unknown", "on-demand")]
    assert ranked(Spec(max_hourly_cost=100), unknown, dear) == [("dear", "on-demand")]
    assert ranked(Spec(), unknown, dear, priced=True) == [("dear", "on-demand")]
    assert ranked(Spec(allocation="spot"), unknown) == []


def test_limit_applies_to_the_market_that_would_be_used() -> None:
    both = offer(spot=1.0, on_demand=4.0)
    assert ranked(Spec(max_hourly_cost=2), both) == [("m", "spot")]
    assert ranked(Spec(max_hourly_cost=2, allocation="on-demand"), both) == []
    assert ranked(Spec(max_hourly_cost=2, allocation="spot"), both) == [("m", "spot")]


# --- allocation and selection ---


@pytest.mark.parametrize(
    ("allocation", "order"),
    [
        ("spot-if-available", [("a", "on-demand"), ("b", "spot"), ("a", "spot"), ("b", "on-demand")]),
        ("spot", [("b", "spot"), ("a", "spot")]),
        ("on-demand", [("a", "on-demand"), ("b", "on-demand")]),
        ("cheapest", [("a", "on-demand"), ("b", "spot"), ("a", "spot"), ("b", "on-demand")]),
    ],
)
def test_allocation_decides_the_order_of_markets(allocation: Any, order: list[tuple[str, str]]) -> None:
    offers = [offer("a", spot=3.0, on_demand=1.0), offer("b", spot=2.0, on_demand=4.0)]
    assert ranked(Spec(allocation=allocation), *offers) == order


def test_on_demand_is_before_spot_only_if_it_costs_no_more() -> None:
    offers = [offer("free", on_demand=0.0), offer("s", spot=0.35, on_demand=0.7), offer("od", on_demand=0.35)]
    order = [("free", "on-demand"), ("od", "on-demand"), ("s", "spot"), ("s", "on-demand")]
    assert ranked(Spec(), *offers) == order
    dearer = [("free", "on-demand"), ("s", "spot"), ("od", "on-demand"), ("s", "on-demand")]
    assert ranked(Spec(), *offers[:2], offer("od", on_demand=0.36)) == dearer


@pytest.mark.parametrize("allocation", ["spot-if-available", "on-demand"])
def test_machine_without_accelerators_comes_first_where_none_is_asked_for(allocation: Any) -> None:
    gpu = offer("gpu", spot=0.35, on_demand=0.05, kind=machine("gpu", accelerator="RTX 4090", accelerator_count=1))
    unknown, cpu = offer("unknown", on_demand=0.1, kind=machine("unknown", accelerator="")), offer("cpu", on_demand=0.2)
    names = [name for name, _ in ranked(Spec(vcpus=4, allocation=allocation), gpu, unknown, cpu)]
    assert list(dict.fromkeys(names)) == ["unknown", "cpu", "gpu"]
    assert ranked(Spec(accelerator="RTX_4090", allocation=allocation), gpu, cpu)[0] == ("gpu", "on-demand")
    assert ranked(Spec(allocation="cheapest"), gpu, cpu)[0] == ("gpu", "on-demand")


def test_spot_offers_never_crowd_out_the_on_demand_fallback() -> None:
    catalogue = tuple(offer(f"m{number:02}", spot=1.0 + number, on_demand=100.0 + number) for number in range(30))
    markets = [each.source.market for each in found(Spec(provider=Cloud("cloud", catalogue))).offered]
    assert markets == ["spot"] * 8 + ["on-demand"] * 8


def test_fallback_goes_through_regions_and_providers_by_price_and_spot_first() -> None:
    one = Cloud(
        "one",
        (
            offer("m", spot=1.0, on_demand=3.0, region="near"),
            offer("m", spot=1.5, on_demand=2.5, region="far"),
            offer("m", spot=None, on_demand=None, region="unpriced"),
        ),
    )
    two = Cloud("two", (offer("m", spot=1.2, on_demand=2.7, region="x"), offer("small", on_demand=0.1, region="x")))
    specs = [Spec(provider=one, vcpus=4), Spec(provider=two, vcpus=4)]
    order = ["two x", "one near spot", "two x spot", "one far spot", "one far", "two x", "one near", "one unpriced"]
    for _ in range(2):  # as the providers list them, and as they are stored
        tried = [str(each.source).replace(" m ", " ").replace(" small ", " ") for each in found(*specs).offered]
        assert [each.removesuffix(" on-demand") for each in tried] == order
    assert [each.source.provider for each in found(*specs, selection="first").offered] == ["one"] * 5
    assert (one.asked, two.asked) == (["one"], ["two"])


def test_chosen_market_is_requested_from_the_provider() -> None:
    spec = Spec(provider=Cloud("cloud", (offer(spot=1.0, on_demand=2.0),)))
    assert [each.spec.allocation for each in found(spec).offered] == ["spot", "on-demand"]


def test_first_takes_the_first_spec_with_an_offer_and_queries_no_further() -> None:
    none, dear, cheap = Cloud("none"), Cloud("dear", (offer(on_demand=9.0),)), Cloud("cheap", (offer(on_demand=1.0),))
    specs = [Spec(provider=each) for each in (none, dear, cheap)]
    assert [each.source.provider for each in found(*specs, selection="first").offered] == ["dear"]
    assert cheap.asked == []
    assert [each.source.provider for each in found(*specs).offered] == ["cheap", "dear"]


def test_ties_are_broken_by_name() -> None:
    offers = [offer("c"), offer("a"), offer("b", region="x")]
    assert [name for name, _ in ranked(Spec(), *offers)] == ["a", "b", "c"]


# --- failing providers ---


def test_failing_provider_is_left_out_and_named() -> None:
    good = Spec(provider=Cloud("good", (offer(),)))
    bad = Spec(provider=Cloud("bad", (offer(on_demand=0.1),), OSError("401 Unauthorized\nsecret body")))
    for specs in ((bad, good), (good, bad)):
        result = found(*specs)
        assert [each.source.provider for each in result.offered] == ["good"]
        assert result.notes == ("Provider 'bad' is left out, because it did not list its offers: 401 Unauthorized.",)
    assert [each.source.provider for each in found(bad, good, selection="first").offered] == ["good"]


def test_provider_without_an_answer_is_left_out() -> None:
    slow = Spec(provider=Cloud("slow", (offer(on_demand=0.1),), hangs=True))
    result = found(slow, Spec(provider=Cloud("good", (offer(),))), within=0.05)
    assert [each.source.provider for each in result.offered] == ["good"]
    assert result.notes == (
        "Provider 'slow' is left out, because it did not list its offers: it did not list its offers within 0.05 s.",
    )


def test_error_names_each_provider_when_all_fail() -> None:
    specs = [
        Spec(provider=Cloud("a", error=OSError("no route"))),
        Spec(provider=Cloud("b", error=ValueError("bad key"))),
    ]
    with pytest.raises(sky.NoOffersError) as caught:
        found(*specs)
    assert str(caught.value) == (
        "No offer fits the spec: provider 'a' did not list its offers (no route); provider 'b' did not list its offers "
        "(bad key); check the settings of the provider and the network, or name another provider."
    )


def test_error_of_the_only_provider_keeps_its_type() -> None:
    with pytest.raises(sky.SpecError, match="give a port"):
        found(Spec(provider=Cloud("a", error=sky.SpecError("give a port"))))


def test_error_without_a_fit_counts_by_filter_and_names_the_nearest() -> None:
    offers = (
        offer("cpu"),
        offer("t4", kind=machine("t4", accelerator="T4", accelerator_count=1)),
        offer("a100", kind=machine("a100", vcpus=4, accelerator="A100", accelerator_count=1), region="eu"),
        offer("big", on_demand=50.0, kind=machine("big", accelerator="A100", accelerator_count=8)),
    )
    spec = Spec(provider=Cloud("cloud", offers), accelerator="A100", vcpus=8, max_hourly_cost=10)
    with pytest.raises(sky.NoOffersError) as caught:
        found(spec)
    assert str(caught.value) == (
        "No offer fits the spec: of 4 offers from cloud, accelerator excludes 2, vcpus excludes 1, max_hourly_cost "
        "excludes 1; the nearest, big, costs 50 of at most 10 USD per hour (on-demand); ask for less, pay more, or "
        "name another provider."
    )


def test_nearest_by_price_is_the_cheapest() -> None:
    offers = (offer("c6i.large", spot=0.0282, on_demand=0.085), offer("t3.micro", spot=0.0252, on_demand=0.1))
    with pytest.raises(
        sky.NoOffersError, match=r"the nearest, t3\.micro, costs 0\.0252 of at most 0\.01 .*, pay more,"
    ):
        found(Spec(provider=Cloud("cloud", offers), max_hourly_cost=0.01))
    with pytest.raises(sky.NoOffersError, match=r"the nearest, c6i\.large, costs 0\.085 "):
        found(Spec(provider=Cloud("cloud", offers), max_hourly_cost=0.01, allocation="on-demand"))


def test_paying_more_is_suggested_only_where_the_price_excludes_offers() -> None:
    with pytest.raises(sky.NoOffersError, match="; ask for less, or name another provider") as caught:
        found(Spec(provider=Cloud("cloud", (offer(on_demand=0.0),)), vcpus=64))
    assert "pay more" not in str(caught.value)


def test_provider_without_offers_is_named() -> None:
    with pytest.raises(sky.NoOffersError, match="empty has nothing on offer"):
        found(Spec(provider=Cloud("empty")))


# --- properties ---

PRICES = st.none() | st.floats(0, 100) | st.just(float("nan"))
MACHINES = st.builds(
    InstanceType,
    name=st.sampled_from(["a", "b", "c"]),
    vcpus=st.sampled_from([0, 1, 4, 8]),
    memory_gb=st.sampled_from([0, 4, 16]),
    accelerator=st.sampled_from([None, "", "A100", "NVIDIA A100-40GB", "T4", "H100 PCIe"]),
    accelerator_count=st.sampled_from([0, 0.5, 1, 4]),
    architecture=st.sampled_from(["x86_64", "arm64"]),
)
OFFERS = st.lists(
    st.builds(
        Offer,
        id=st.text(max_size=2),
        instance_type=MACHINES,
        spot_price=PRICES,
        on_demand_price=PRICES,
        billing_unit=st.sampled_from(["second", "minute", "hour"]),
        region=st.sampled_from(["", "eu", "us"]),
    ),
    max_size=8,
)
SPECS = st.builds(
    Spec,
    accelerator=st.sampled_from([None, "A100", "A100:4", "H100-SXM", "T4"]),
    vcpus=st.sampled_from([None, 1, 4]),
    memory_gb=st.sampled_from([None, 8]),
    architecture=st.sampled_from([None, "arm64"]),
    region=st.sampled_from([None, "eu"]),
    allocation=st.sampled_from(["spot", "on-demand", "spot-if-available", "cheapest"]),
    max_hourly_cost=st.none() | st.floats(0.01, 1000),
)
ASKED = st.lists(st.builds(SpecOffers, SPECS, st.sampled_from(["p", "q"]), OFFERS), min_size=1, max_size=3)
SELECTIONS = st.sampled_from(["cheapest", "first"])


def price(one: OfferCandidate) -> float:
    return float("inf") if one.hourly_price is None else one.hourly_price


@given(ASKED, SELECTIONS, st.booleans())
def test_every_candidate_meets_every_filter(asked: list[SpecOffers], selection: Any, priced: bool) -> None:
    ranking = rank(asked, selection, priced=priced)
    for one in ranking.candidates:
        spec = asked[one.position].spec
        assert one.offer in asked[one.position].offers
        assert not excluded_by(spec, one.offer)
        kind, wanted = one.offer.instance_type, spec.accelerator
        assert spec.vcpus is None or kind.vcpus == 0 or kind.vcpus >= spec.vcpus
        assert spec.architecture in (None, kind.architecture)
        assert wanted is None or kind.accelerator == "" or describe(kind.accelerator or "none").model == wanted.name
        assert spec.allocation not in ("spot", "on-demand") or one.market == spec.allocation
        assert spec.max_hourly_cost is None or price(one) <= spec.max_hourly_cost
        assert not priced or one.hourly_price is not None
    for left in ranking.excluded:
        assert left.reasons
    assert len(ranking.excluded) <= sum(len(each.offers) for each in asked)
    if not ranking.candidates:
        assert str(no_offer_fits(asked, ranking, {})).startswith("No offer fits the spec: ")


@given(ASKED, SELECTIONS, st.randoms(use_true_random=False))
def test_order_does_not_depend_on_how_offers_are_listed(
    asked: list[SpecOffers], selection: Any, shuffling: random.Random
) -> None:
    shuffled = [replace(each, offers=shuffling.sample(each.offers, len(each.offers))) for each in asked]
    assert repr(rank(shuffled, selection)) == repr(rank(asked, selection))


@given(ASKED)
def test_earlier_specs_win_with_first(asked: list[SpecOffers]) -> None:
    positions = [one.position for one in rank(asked, "first").candidates]
    assert positions == sorted(positions)


def in_order(candidates: Sequence[OfferCandidate]) -> bool:
    return [price(one) for one in candidates] == sorted(price(one) for one in candidates)


@given(ASKED)
def test_candidates_are_in_the_order_of_their_hourly_price(asked: list[SpecOffers]) -> None:
    candidates = rank(asked).candidates
    preferring = [one for one in candidates if asked[one.position].spec.allocation == "spot-if-available"]
    others = [one for one in candidates if asked[one.position].spec.allocation != "spot-if-available"]

    def unwanted(one: OfferCandidate) -> bool:
        spec, kind = asked[one.position].spec, one.offer.instance_type
        return spec.accelerator is None and spec.allocation != "cheapest" and bool(kind.accelerator)

    for some in (preferring, others):
        priced = [one for one in some if one.hourly_price is not None]
        assert [one.hourly_price is None for one in some] == [False] * len(priced) + [True] * (len(some) - len(priced))
        assert [unwanted(one) for one in priced] == sorted(unwanted(one) for one in priced)
    for unwanted_ones in (False, True):
        assert in_order([one for one in others if unwanted(one) is unwanted_ones and one.hourly_price is not None])
        found = [one for one in preferring if unwanted(one) is unwanted_ones and one.hourly_price is not None]
        assert in_order([one for one in found if one.market == "spot"])
        assert in_order([one for one in found if one.market == "on-demand"])
        spots = [price(one) for one in found if one.market == "spot"]
        if spots:
            at = next(place for place, one in enumerate(found) if one.market == "spot")
            assert all(price(one) <= spots[0] for one in found[:at])
            assert all(price(one) > spots[0] for one in found[at:] if one.market == "on-demand")


def test_what_no_machine_has_is_said_in_one_sentence() -> None:
    lacks = {"accelerator": "Clouds have no GPUs; take rain"}
    asked = [SpecOffers(Spec(accelerator="A100", vcpus=64), "cloud", [offer()], lacks=lacks)]
    assert str(no_offer_fits(asked, rank(asked), {})) == "Clouds have no GPUs; take rain."
    both = [*asked, SpecOffers(Spec(accelerator="A100"), "other", [offer()])]
    message = str(no_offer_fits(both, rank(both), {}))
    assert message.startswith("No offer fits the spec: Clouds have no GPUs; take rain; of 1 offer from other, ")
    plain = [SpecOffers(Spec(vcpus=64), "cloud", [offer()], lacks=lacks)]
    assert "vcpus excludes 1" in str(no_offer_fits(plain, rank(plain), {}))
