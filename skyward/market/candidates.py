"""Providers that can be asked without being named: those that are installed and have credentials."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from skyward.errors import CredentialsError, ProviderMissingError, SkywardError
from skyward.market.requests import reason_of
from skyward.providers.protocol import ConfigWithCredentials, ProviderConfig, find_provider, provider_names

__all__ = ["CandidateProvider", "candidate_providers", "no_credentials"]

_PIP = re.compile("`pip install .+`")
"""The fix in the error for a package that a provider lacks."""


@dataclass(frozen=True, slots=True)
class CandidateProvider:
    """A provider that needs credentials.

    Attributes:
        name: its name, or that of its `[providers.NAME]` table, as `--provider` takes it.
        config: its settings; None if there are none.
        found: the place of its credentials; empty if it has none.
        how: how to give them, or how to install what it needs, as an imperative.
    """

    name: str
    config: ProviderConfig | None
    found: str
    how: str

    @property
    def provider(self) -> str:
        """Name of the provider, whatever its table is called."""
        return self.name if self.config is None else self.config.name

    @property
    def is_usable(self) -> bool:
        """True if it has credentials."""
        return self.config is not None and bool(self.found)


def candidate_providers(configured: Mapping[str, object] | None = None) -> tuple[CandidateProvider, ...]:
    """Return the installed providers that need credentials, those that have them first. Makes no request.

    `configured`: settings by name from the user's files; they replace the default settings of their provider.
    """
    given = {name: config for name, config in (configured or {}).items() if isinstance(config, ProviderConfig)}
    replaced = {config.name for config in given.values()}
    found = [_candidate(name, config) for name, config in given.items() if _needs_credentials(type(config))]
    for name in provider_names():
        if name in replaced:
            continue
        try:
            settings = find_provider(name)
        except ProviderMissingError as error:
            fix = _PIP.search(str(error))
            found.append(CandidateProvider(name, None, "", f"run {fix[0]}" if fix else reason_of(error)))
            continue
        if not _needs_credentials(settings):
            continue
        try:
            config = settings()
        except (TypeError, SkywardError):  # it needs settings
            wanted = f"write its settings in a table `[providers.{name}]` with `type = {name!r}`"
            found.append(CandidateProvider(name, None, "", wanted))
        else:
            found.append(_candidate(name, config))
    return tuple(sorted(found, key=lambda each: (not each.is_usable, each.name)))


def _needs_credentials(settings: type) -> bool:
    """Return whether `settings` are a `ConfigWithCredentials`; its policy is not computed."""
    return hasattr(settings, "credentials") and hasattr(settings, "policy")


def _candidate(name: str, config: ProviderConfig) -> CandidateProvider:
    try:
        source = cast("ConfigWithCredentials", config).credentials()
    except Exception as error:  # SDKs raise anything, such as for a file that they cannot read
        return CandidateProvider(name, config, "", f"mend its credentials ({reason_of(error)})")
    return CandidateProvider(name, config, source.found, source.how)


def no_credentials(candidates: Iterable[CandidateProvider]) -> CredentialsError:
    """Return the error for providers of which none has credentials: how to give them to each."""
    ways = ";\n".join(f"{each.name}: {each.how}" for each in candidates)
    known = f" Give those of one:\n{ways}." if ways else " None is installed that needs any."
    return CredentialsError(f"No provider has credentials, so no machine can be rented.{known}")
