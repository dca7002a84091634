"""Object stores, from their `[storages.NAME]` tables."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from skyward.errors import SpecError
from skyward.specs.storage import Storage, VariableCredential
from skyward.values.validation import closest

if TYPE_CHECKING:
    from skyward.config.files import ConfigValue

__all__ = ["PRESETS", "make_storage"]

PRESETS: Mapping[str, Callable[..., Storage]] = {
    "s3": Storage.s3,
    "gcs": Storage.gcs,
    "r2": Storage.r2,
    "minio": Storage.minio,
    "wasabi": Storage.wasabi,
    "backblaze": Storage.backblaze,
    "hyperstack": Storage.hyperstack,
}

_SECRETS = frozenset({"access_key", "secret_key", "session_token", "key_id", "app_key"})
"""Keys of a table that may be written as `{env = "NAME"}`."""


def make_storage(name: str, table: "Mapping[str, ConfigValue]") -> Storage:
    """Return the storage that a table describes: by the preset of its `type`, or by the fields of `Storage`.

    Args:
        name: its name.
        table: its keys, of all files.

    Raises:
        SpecError: a key or a value is not allowed. The message has the file and the key, but no value, which may be a
            secret.
    """
    kind = table.get("type")
    given = {key: found for key, found in table.items() if key != "type"}
    if kind is None and "endpoint" not in given:
        first = next(iter(given.values()), None)
        text = f"the table needs `type`, one of {', '.join(PRESETS)}, or an `endpoint`."
        raise first.wrong(text) if first is not None else SpecError(f"storages.{name}: {text}")
    if kind is not None and kind.value not in PRESETS:
        raise kind.wrong(f"there is no such type of storage; {closest(str(kind.value), PRESETS)}")
    make = Storage if kind is None else PRESETS[kind.value]
    parameters = signature(make).parameters
    for key, found in given.items():
        if key not in parameters:
            raise found.wrong(f"a storage has no key {key!r} here; {closest(key, ['type', *parameters])}")
    last = kind if kind is not None else given["endpoint"]
    missing = [key for key, each in parameters.items() if each.default is each.empty and key not in given]
    if missing:
        raise last.wrong(f"the table lacks {', '.join(missing)}.")
    values = {key: _value(key, found) for key, found in given.items()}
    try:
        return make(**values)
    except SpecError as error:
        place = next((found for key, found in given.items() if key in str(error)), last)
        raise place.wrong(str(error)) from None


def _value(key: str, found: "ConfigValue") -> Any:
    """Return a value; a secret may refer to a variable of the environment, which is read when it is used."""
    if key not in _SECRETS or not isinstance(found.value, Mapping):
        return found.value
    if list(found.value) != ["env"]:
        raise found.wrong('it must be a text, or a variable of the environment as in `{env = "NAME"}`.')
    return VariableCredential(found.value["env"])
