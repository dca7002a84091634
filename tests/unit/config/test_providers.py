"""Invalid providers, refused when the pool is created or opened; and the settings of the default one."""

from typing import Any

import pytest

import skyward as sky
from skyward.cli.pools.opening import make_pool
from skyward.config import load
from skyward.views.settings import settings_of, shown_value
from tests.unit.config.conftest import Write

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


def test_local_provider_of_the_file_is_that_of_pools_that_name_none(project: Write) -> None:
    """Regression: its table was used only where the provider was named."""
    path = project("[providers.local]\nhourly_price = 3.6\n[pools.named]\nnodes = 2\n[pools.other]\nprovider = 'aws'\n")
    priced = sky.Local(hourly_price=3.6)
    assert make_pool("any", {}).spec.provider == make_pool("any", {"provider": "local"}).spec.provider == priced
    assert make_pool("any", {}, outlives=True).spec.provider == sky.Local(hourly_price=3.6, outlives=True)
    assert make_pool("any", {"provider": "local"}, outlives=True).spec.provider == sky.Local(
        hourly_price=3.6, outlives=True
    )
    assert sky.Compute(name="named").spec.provider == priced
    assert sky.Compute(name="other").spec.provider == sky.AWS()
    assert shown_provider("named") == ("local", f"{path.name}:1")
    assert shown_provider("other")[0] == "aws"


def shown_provider(pool: str) -> tuple[str, str]:
    """Return the provider of a pool as `skyward config` shows it, and its source."""
    (found,) = [row for row in settings_of(load(), pool, ["provider"]) if row[0] == "provider"]
    return shown_value(*found[:2]), found[2]


def test_local_provider_without_a_table_is_the_plain_one(project: Write) -> None:
    project("[pools.named]\nnodes = 2\n")
    assert make_pool("any", {}).spec.provider is None
    assert make_pool("any", {}, outlives=True).spec.provider == sky.Local(outlives=True)
    assert shown_provider("named") == ("local", "default")
