"""Settings of pools: each with its value and its source, as text."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyward.config import Config

__all__ = ["default_settings", "plain_value", "settings_of", "shown_value"]


@cache
def default_settings() -> Mapping[str, Any]:
    """Return the settings of a pool that sets none, by path."""
    from skyward.specs import Options, Spec
    from skyward.specs.paths import field_paths

    return field_paths(
        {field.name: getattr(owner, field.name) for owner in (Spec(), Options()) for field in fields(owner)}
    )


def settings_of(config: "Config", pool: str, paths: Iterable[str]) -> list[tuple[str, Any, str]]:
    """Return the path, the value and the source of each setting of a pool that would be opened now.

    Args:
        config: the user's files.
        pool: name of the pool.
        paths: the settings to show, besides those of the files.

    Raises:
        SpecError: a value of a file is wrong.
    """
    found = {path: (each.value, each.where) for path, each in config.pool(pool).items()}
    values = {path: (default_settings()[path], "default") for path in paths} | found
    if found.keys().isdisjoint(("provider", "groups", "accelerator")) and "local" in config.providers:
        values["provider"] = config.provider("local"), config.provider_table("local")
    return [(path, value, source) for path, (value, source) in values.items()]


def plain_value(path: str, value: Any) -> Any:
    """Return a setting of a pool as JSON has it. Environment variables are their names only, as in `shown_value`."""
    from skyward.specs import Nodes

    match value:
        case frozenset():
            return sorted(map(str, value))
        case tuple() | list():
            return [shown_value(path, each) for each in value]
        case Nodes() if str(value).isdecimal():
            return int(str(value))
        case Mapping():
            return dict(value) if path == "resources" else [*value]
        case bool() | int() | float():
            return value
        case None if path != "provider":
            return None
        case _:
            return shown_value(path, value)


def shown_value(path: str, value: Any) -> str:
    """Format a setting of a pool. Environment variables are shown by name only: a value may be a secret."""
    if path == "image.env" or isinstance(value, Mapping):
        return ",".join(value)
    if path == "provider":
        several = value if isinstance(value, (tuple, list)) else (value,)
        return ",".join("local" if each is None else str(getattr(each, "name", each)) for each in several)
    if isinstance(value, (tuple, frozenset)):
        return ",".join(map(str, sorted(value, key=str) if isinstance(value, frozenset) else value))
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)
