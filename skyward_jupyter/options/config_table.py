"""Output of `%sky config`: every setting with its value and its source."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from skyward.frontends.configuration import USER_FILE, Options, Spec, field_paths
from skyward.frontends.views import table
from skyward_jupyter.options.settings import SettingWithSource
from skyward_kernel.commands.pool_options import POOL_LABELS

if TYPE_CHECKING:
    from skyward.frontends.configuration import Config

__all__ = ["config_text", "shown_value"]

OPTION = "given when it was opened"

_DEFAULTS = field_paths(
    {field.name: getattr(owner, field.name) for owner in (Spec(), Options()) for field in fields(owner)}
)


def config_text(
    settings: Mapping[str, SettingWithSource],
    config: "Config",
    pools: Iterable[str],
    asked: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return the configuration files, the settings of cells, and those of each of `pools`, as text.

    Args:
        settings: settings of cells.
        config: the configuration files.
        pools: names of the pools to show; all settings of the first one, of the others those that differ from the
            default.
        asked: by name, the settings that were requested of existing pools.

    Raises:
        SpecError: a value of a file is wrong.
    """
    parts = [_files(config), _rows("cells", settings)]
    for position, name in enumerate(pools):
        values = _pool(config, name, asked.get(name, {}))
        shown = {path: each for path, each in values.items() if not position or each.source != "default"}
        parts.append(_rows(f"pool {name!r}", shown))
    return "\n\n".join(parts)


def _pool(config: "Config", name: str, asked: Mapping[str, Any]) -> dict[str, SettingWithSource]:
    """Return the settings of a pool, by path, as they are or would be if it were opened now."""
    found = {path: SettingWithSource(each.value, each.where) for path, each in config.pool(name).items()}
    options = {
        path: SettingWithSource(value, OPTION)
        for path, value in asked.items()
        if path in found or path not in _DEFAULTS or value != _DEFAULTS[path]
    }
    values = {path: SettingWithSource(_DEFAULTS[path], "default") for path in POOL_LABELS}
    return {**values, **found, **options}


def _files(config: "Config") -> str:
    read = [str(file.path) for file in reversed(config.files)]
    none = f"There is no skyward.toml here or above, and no {USER_FILE}."
    return "\n".join(f"read: {path}" for path in read) if read else none


def _rows(title: str, values: Mapping[str, SettingWithSource]) -> str:
    rows = [
        (POOL_LABELS.get(path, path), shown_value(path, each.value) or "none", each.source)
        for path, each in values.items()
    ]
    return table((title, "value", "from"), rows)


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
