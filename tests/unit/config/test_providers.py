"""Providers that cannot be ones, refused when the pool is described or opened."""

from typing import Any

import pytest

import skyward as sky

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("provider", [5, float("nan"), object(), ["local"]])
def test_value_that_is_no_provider(provider: Any) -> None:
    with pytest.raises(sky.SpecError, match=r" is no provider; give one such as `sky.Local\(\)`, or its name\.$"):
        sky.Compute(provider=provider)


def test_name_of_a_provider_whose_settings_are_needed() -> None:
    with pytest.raises(sky.SpecError, match=r"^Provider 'ssh' needs settings: write `provider=SSH\(hosts=\.\.\.\)`\.$"):
        sky.Compute(provider="ssh").open()
