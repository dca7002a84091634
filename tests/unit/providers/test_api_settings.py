"""Checks that the settings of several clouds share."""

import re
from dataclasses import fields
from typing import Any

import pytest

import skyward as sky

pytestmark = pytest.mark.unit

URLS: list[tuple[Any, str]] = [
    *((cloud, "endpoint") for cloud in (sky.RunPod, sky.Lambda, sky.Verda, sky.VastAI, sky.Hyperstack, sky.GCP)),
    (sky.AWS, "caller_address_url"),
    (sky.Fargate, "caller_address_url"),
    (sky.Fargate, "spot_prices_url"),
]
OF_EACH_CLOUD = pytest.mark.parametrize(
    ("cloud", "field"), URLS, ids=[f"{each.__name__}-{name}" for each, name in URLS]
)


@OF_EACH_CLOUD
@pytest.mark.parametrize(
    "value", ["nonsense", "", "host:443", "ftp://host", "https://", "https:host", "http://host:port", "http://a b", 7]
)
def test_field_that_is_no_url_is_refused(cloud: Any, field: str, value: object) -> None:
    said = f"{field} must be a URL, such as {field}='https://api.example.com', but got {value!r}."
    with pytest.raises(sky.SpecError, match=f"^{re.escape(said)}$"):
        cloud(**{field: value})


@OF_EACH_CLOUD
@pytest.mark.parametrize("value", ["https://host", "http://127.0.0.1:8080/v1", "http://[::1]:80", "HTTPS://host/a?b=c"])
def test_url_is_kept(cloud: Any, field: str, value: str) -> None:
    assert getattr(cloud(**{field: value}), field) == value


def test_every_field_with_a_url_is_checked() -> None:
    clouds = [getattr(sky, name) for name in sky.__all__]
    settings = [each for each in clouds if isinstance(each, type) and hasattr(each, "create_provider")]
    named = [(each, field.name) for each in settings for field in fields(each)]
    urls = {(each.__name__, name) for each, name in named if name == "endpoint" or name.endswith("_url")}
    assert urls == {(each.__name__, name) for each, name in URLS}
