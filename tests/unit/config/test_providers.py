"""Invalid providers, refused when the pool is created or opened."""

from typing import Any

import pytest

import skyward as sky

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("provider", [5, float("nan"), object(), ["local", 5]])
def test_value_that_is_not_a_provider_is_refused(provider: Any) -> None:
    with pytest.raises(sky.SpecError, match=r" is not a provider; use one such as `sky.Local\(\)`, or its name\.$"):
        sky.Compute(provider=provider)


def test_empty_list_of_providers_is_refused() -> None:
    with pytest.raises(sky.SpecError, match=r"^provider must be a provider, or several, as in `provider=\[sky"):
        sky.Compute(provider=[])


def test_name_of_a_provider_that_needs_settings_is_refused() -> None:
    with pytest.raises(sky.SpecError, match=r"^Provider 'ssh' needs settings: write `provider=SSH\(hosts=\.\.\.\)`\.$"):
        sky.Compute(provider="ssh").open()
