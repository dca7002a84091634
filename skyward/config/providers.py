"""Settings of a provider, from its `[providers.NAME]` table."""

import re
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING

from skyward.errors import ProviderMissingError, SpecError
from skyward.providers.protocol import find_provider, provider_names
from skyward.values.validation import closest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skyward.config.files import ConfigValue

__all__ = ["make_provider"]


def make_provider(name: str, place: "ConfigValue", table: "Mapping[str, ConfigValue]") -> object:
    """Return the settings that the table describes: of the provider of its `type`, or else of its name.

    Args:
        name: its name.
        place: the table in the file that applies.
        table: its keys, of all files.

    Raises:
        SpecError: `type` is missing and the table is not named like a provider, or a key or a value is not allowed. The
            message has the file and the key, but no value, which may be a secret.
    """
    kind = table.get("type")
    if kind is None and name not in provider_names():
        first = next(iter(table.values()), place)
        raise first.wrong(f"the table needs `type = ...`, the name of a provider; `[providers.{name}]` has none.")
    if kind is None:
        kind = replace(place, value=name)
    try:
        made = find_provider(str(kind.value))
    except ProviderMissingError as error:
        raise kind.wrong(str(error)) from None
    given = {key: found for key, found in table.items() if key != "type"}
    known = [field.name for field in fields(made) if field.init] if is_dataclass(made) else list(given)
    for key, found in given.items():
        if key not in known:
            raise found.wrong(f"{made.__name__} has no field {key!r}; {closest(key, ['type', *known])}")
    try:
        settings: object = made(**{key: found.value for key, found in given.items()})
    except SpecError as error:
        raise _key_in(given, str(error), kind).wrong(str(error)) from None
    except TypeError:
        missing = ", ".join(sorted(set(known) - set(given)))
        raise kind.wrong(f"{made.__name__} needs more settings; the table lacks {missing}.") from None
    return settings


def _key_in(given: "Mapping[str, ConfigValue]", text: str, kind: "ConfigValue") -> "ConfigValue":
    """Return the key that an error message names first, as a whole word; `kind` if it names none."""
    found = {key: match.start() for key in given if (match := re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text))}
    return given[min(found, key=lambda key: found[key])] if found else kind
