"""The clouds that can be used without being named: those with credentials."""

from collections.abc import Mapping
from typing import Any

from skyward.config import load
from skyward.config.pools import default_provider
from skyward.market.candidates import CandidateProvider, candidate_providers, no_credentials
from skyward.providers.protocol import ProviderConfig, acts_on
from skyward.specs.paths import compute_fields

__all__ = ["implicit_clouds", "is_implicit", "known_clouds", "pool_fields", "usable_clouds"]


def known_clouds() -> tuple[CandidateProvider, ...]:
    """Return the installed providers that need credentials, with the settings of the user's files."""
    settings = load()
    return candidate_providers({name: settings.provider(name) for name in settings.providers})


def implicit_clouds() -> tuple[ProviderConfig, ...]:
    """Return the settings of the clouds that are used without being named.

    A cluster, whose pods or jobs seem free, would otherwise be cheaper than every cloud.
    """
    return tuple(config for config in usable_clouds() if is_implicit(config))


def is_implicit(config: ProviderConfig | None) -> bool:
    """Return whether a cloud is used without being named, once it has credentials."""
    return getattr(config, "only_by_name", False) is not True


def _has_accelerators(config: ProviderConfig | None) -> bool:
    return config is None or "accelerator" not in acts_on(config).lacks


def usable_clouds() -> tuple[ProviderConfig, ...]:
    """Return the settings of the clouds that have credentials."""
    return tuple(each.config for each in known_clouds() if each.is_usable and each.config is not None)


def pool_fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords for `Compute` of a notebook's pool, from its requested properties by path.

    With accelerators and without a provider, the pool takes the cheapest offer of all clouds with credentials: it must
    not run on this machine by mistake. Without both, its nodes are local ones, with the settings of
    `[providers.local]`.

    Raises:
        CredentialsError: no cloud has credentials. The message says how to give them.
    """
    fields = compute_fields(asked)
    if "groups" in fields or fields.get("provider") is not None:
        return fields
    if fields.get("accelerator") is None:
        return {**fields, **default_provider(load())}
    fields["provider"] = tuple(config for config in implicit_clouds() if _has_accelerators(config))
    if not fields["provider"]:
        known = (each for each in known_clouds() if is_implicit(each.config) and _has_accelerators(each.config))
        raise no_credentials(known)
    return fields
