"""`sky.GCP`: validation, names, and the texts of the price list."""

from typing import Any

import pytest

import skyward as sky
from skyward.providers.protocol import acts_on, not_acted_on
from skyward_providers.gcp.naming import described, description, label, machine_name, pool_tag, rule_names
from skyward_providers.gcp.prices import PriceList

E2 = {"name": "e2-standard-2", "guestCpus": 2, "memoryMb": 8192}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"project": ""}, "project must not be empty."),
        ({"network": None}, "network must be"),
        ({"regions": "us-central1"}, "regions must be a list"),
        ({"zones": ["europe-west4-a"]}, "zones has 'europe-west4-a', which is in none of regions=['us-central1']"),
        ({"image": "ubuntu"}, "image must be like 'projects/ubuntu-os-cloud/global/images/family/"),
        ({"disk_gb": 0}, "disk_gb must be"),
        ({"max_run_duration": 10}, "max_run_duration must be"),
        ({"max_run_duration": 121 * 86400}, "max_run_duration must be at most 10368000 seconds, which are 120 days."),
        ({"caller_cidr": "here"}, "caller_cidr must have IPv4 addresses, such as '203.0.113.7/32', but got 'here'."),
        ({"caller_cidr": "2001:db8::1/128"}, "caller_cidr must have IPv4 addresses"),
        ({"project": "../other"}, "project must have names like 'us-central1', but got '../other'."),
        ({"request_timeout": 0}, "request_timeout must be"),
    ],
)
def test_bad_settings_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(sky.SpecError) as raised:
        sky.GCP(**given)
    assert message in str(raised.value)


def test_every_field_of_a_spec_has_an_effect() -> None:
    spec = sky.Spec(volumes=[sky.Volume("bucket", "/data")], disk_gb=10, accelerator="L4", region="us-central1")
    assert not_acted_on(spec, acts_on(sky.GCP())) == ()


@pytest.mark.parametrize("pool", ["a", "Notebook_7-0f9a8b7c6d", "x" * 51, "_-_", "9lives"])
def test_names_and_labels_are_as_google_takes_them(pool: str) -> None:
    import re

    name = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
    for each in (pool_tag(pool), machine_name(pool, f"{pool}-12", 9999), *rule_names(pool, "default")):
        assert name.fullmatch(each)
    assert re.fullmatch(r"[a-z0-9_-]{1,63}", label(pool))


def test_pools_that_differ_in_case_have_other_names_and_labels() -> None:
    assert label("Pool") != label("pool") == "pool"
    assert pool_tag("Pool") != pool_tag("pool")
    assert machine_name("pool", "pool-1", 0) != machine_name("pool", "pool-2", 0)


def test_descriptions_tell_the_owner_and_the_pool() -> None:
    written = description({"skyward-owner": "Me", "skyward-pool": "Pool_1", "skyward-request": "x"})
    assert described({"description": written}) == ("Me", "Pool_1")
    assert described({"description": f"{written} "}) == described({}) == ("", "")


def sku(text: str, price: float, *, usage: str = "OnDemand", unit: str = "h", **more: Any) -> dict[str, Any]:
    money = {"currencyCode": "USD", "units": str(int(price)), "nanos": round(price % 1 * 1e9)}
    expression = {"usageUnit": unit, "tieredRates": [{"startUsageAmount": 0, "unitPrice": money}]}
    priced = {"description": text, "category": {"usageType": usage}, "serviceRegions": ["us-central1"]}
    return {**priced, "pricingInfo": [{"pricingExpression": expression}], **more}


CORE = sku("E2 Instance Core running in Americas", 0.25)
RAM = sku("E2 Instance Ram running in Americas", 0.5, unit="GiBy.h")


def test_price_is_the_sum_of_cores_and_memory() -> None:
    assert PriceList([CORE, RAM]).of("us-central1", "on-demand", E2) == 2 * 0.25 + 8 * 0.5
    assert PriceList([CORE, RAM]).of("us-central1", "spot", E2) is None
    assert PriceList([CORE, RAM]).of("europe-west4", "on-demand", E2) is None
    assert PriceList([CORE, RAM]).of("us-central1", "on-demand", E2, ("nvidia-tesla-t4", 1)) is None


@pytest.mark.parametrize("text", ["Preemptible E2 Instance Core", "Spot Preemptible E2 Instance Core"])
def test_both_spellings_of_spot_prices_are_known(text: str) -> None:
    spot = sku(f"{text} running in Americas", 0.1, usage="Preemptible")
    ram = sku("Spot Preemptible E2 Instance Ram running in Americas", 0, usage="Preemptible", unit="GiBy.h")
    assert PriceList([spot, ram]).of("us-central1", "spot", E2) == pytest.approx(0.2)


@pytest.mark.parametrize(
    "other",
    [
        sku("E2 Instance Core running in Americas", 0.3),  # the same text, another price
        sku("E2 Instance Core running in Americas", 0.25, unit="min"),
        sku("E2 Instance Core running in Americas", 0.25, pricingInfo=[]),
    ],
)
def test_price_that_is_not_certain_is_unknown(other: dict[str, Any]) -> None:
    assert PriceList([CORE, RAM, other]).of("us-central1", "on-demand", E2) is None


@pytest.mark.parametrize(
    "text",
    [
        "E2 Custom Instance Core running in Americas",
        "E2 Sole Tenancy Instance Core running in Americas",
        "DWS Defined Duration E2 Instance Core running in Americas",
        "Commitment v1: E2 Cpu in Americas for 1 Year",
        "Spot Preemptible E2 Instance Core",
    ],
)
def test_other_skus_price_nothing(text: str) -> None:
    assert PriceList([CORE, RAM, sku(text, 9)]).of("us-central1", "on-demand", E2) == 4.5
