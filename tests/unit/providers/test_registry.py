"""Providers are found by their entry points, and an error says how to install what one needs."""

import re
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from skyward import Compute, ProviderMissingError, Spec
from skyward.providers import protocol

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("distribution", "source"),
    [("skyward-jupyter", "skyward-jupyter[mycloud]"), ("mycloud-skyward", "mycloud-skyward")],
)
def test_missing_package_of_a_provider_names_the_distribution_to_install(
    monkeypatch: pytest.MonkeyPatch, distribution: str, source: str
) -> None:
    point = EntryPoint("mycloud", "a_missing_module:MyCloud", "skyward.providers")
    entry = SimpleNamespace(load=point.load, dist=SimpleNamespace(name=distribution))
    monkeypatch.setattr(protocol, "_entries", lambda: {"mycloud": entry})
    missing = "Provider 'mycloud' needs a package that is not installed (a_missing_module)"
    expected = f"{missing}; install it with `pip install '{source}'`"
    with pytest.raises(ProviderMissingError, match=f"^{re.escape(expected)}$"):
        protocol.find_provider("mycloud")


def test_unknown_provider_is_refused_before_the_pool_is_opened() -> None:
    with pytest.raises(ProviderMissingError, match=r"^There is no provider 'loca'; did you mean 'local'\?$"):
        Compute(provider="loca")
    with pytest.raises(ProviderMissingError, match="'loca'"):
        Compute(Spec(provider="local"), Spec(provider="loca"))
