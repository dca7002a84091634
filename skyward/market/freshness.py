"""Freshness of stored offers: the time for which they hold, and the settings that they belong to."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Final

from skyward.accelerators import from_name, names
from skyward.providers.protocol import ConfigWithCredentials, InstanceType, Offer, ProviderConfig

__all__ = ["DEFAULT_TTL", "lacks_credentials", "offers_ttl", "settings_key"]

DEFAULT_TTL: Final = 86400.0
"""Seconds for which offers hold, unless the settings of their provider state `offers_ttl`."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Part of the default `repr` of an object, which is another one in each process."""


def offers_ttl(config: ProviderConfig) -> float:
    """Return the seconds for which listed offers of a provider hold; 0 if it is asked whenever they are needed."""
    declared = getattr(config, "offers_ttl", DEFAULT_TTL)
    is_number = isinstance(declared, (int, float)) and not isinstance(declared, bool)
    return float(declared) if is_number and declared > 0 and settings_key(config) else 0.0


def settings_key(config: ProviderConfig) -> str:
    """Return a digest of the settings of a provider, the same in every process; empty if they cannot be compared.

    It includes what this version of Skyward knows of accelerators and offers, by which stored ones are filtered.
    """
    if not is_dataclass(config):
        return ""
    text = _text(config)
    if _ADDRESS.search(text):
        return ""
    known = [(name, from_name(name).memory) for name in names()]
    form = [each.name for kind in (Offer, InstanceType) for each in fields(kind)]
    return hashlib.blake2b(f"{config.name} {text} {known} {form}".encode(errors="replace"), digest_size=16).hexdigest()


def _text(value: object) -> str:
    """Return a text that is the same for equal settings. Secrets are included."""
    if is_dataclass(value) and not isinstance(value, type):
        stated = {each.name: getattr(value, each.name) for each in fields(value) if each.compare}
        return f"{type(value).__module__}.{type(value).__qualname__}{_text(stated)}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{_text(key)}: {_text(each)}' for key, each in value.items()))}}}"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_text, value))}]"
    return str.__repr__(value) if isinstance(value, str) else repr(value)


def lacks_credentials(config: ProviderConfig) -> bool:
    """Return whether a provider needs credentials that are not found, so that nothing can be bought from it."""
    if not isinstance(config, ConfigWithCredentials):
        return False
    try:
        return not config.credentials().found
    except Exception:  # SDKs raise anything; the provider says what is wrong when it is asked
        return True
