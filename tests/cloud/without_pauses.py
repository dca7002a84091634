"""Providers that make no pauses, whose lengths suit real clouds. For test processes, and the clients that they kill."""

import pytest

import skyward as sky
from skyward_providers.cloud import rest
from skyward_providers.hyperstack import provider as hyperstack_provider
from skyward_providers.lambda_cloud import api as lambda_api
from skyward_providers.lambda_cloud import provider as lambda_provider
from tests.fakes import hyperstack, lambda_cloud

__all__ = ["hyperstack_at", "in_a_client", "lambda_at", "source_of", "without_pauses"]

_CALLER = "203.0.113.7/32"


def without_pauses(patch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses and deadlines of both providers."""
    for module in (lambda_provider, hyperstack_provider):
        for name, seconds in (("LOOK_FOR", 20.0), ("LOOK_EVERY", 0.01), ("RELEASED_WITHIN", 5.0)):
            patch.setattr(module, name, seconds)
    patch.setattr(hyperstack_provider, "DELETED_WITHIN", 5.0)
    for name in ("REQUEST_EVERY", "LAUNCH_EVERY"):
        patch.setattr(lambda_api, name, 0.0)
    for name, seconds in (("_FIRST_PAUSE", 0.01), ("_LONGEST_PAUSE", 0.02)):
        patch.setattr(rest, name, seconds)


def lambda_at(url: str) -> sky.Lambda:
    """Return the settings of a fake of Lambda."""
    return sky.Lambda(api_key=lambda_cloud.KEY, endpoint=url, caller_cidr=_CALLER)


def hyperstack_at(url: str) -> sky.Hyperstack:
    """Return the settings of a fake of Hyperstack."""
    return sky.Hyperstack(api_key=hyperstack.KEY, endpoint=url, caller_cidr=_CALLER)


def source_of(settings: str, url: str) -> str:
    """Return Python source of the settings of a fake, for a client that makes no pauses either."""
    return f"__import__({__name__!r}, fromlist=['*']).in_a_client({settings!r}, {url!r})"


def in_a_client(settings: str, url: str) -> object:
    """Return the settings called `settings`, such as "lambda_at", in a process that ends soon."""
    without_pauses(pytest.MonkeyPatch())
    return globals()[settings](url)
