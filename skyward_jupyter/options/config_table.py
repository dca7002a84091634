"""Output of `%sky config`: every setting with its value and its source."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from skyward.frontends.commands import POOL_LABELS
from skyward.frontends.configuration import USER_FILE
from skyward.frontends.views import default_settings, shown_value, table
from skyward_jupyter.options.settings import SettingWithSource

if TYPE_CHECKING:
    from skyward.frontends.configuration import Config

__all__ = ["config_text"]

OPTION = "given when it was opened"


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
        if path in found or path not in default_settings() or value != default_settings()[path]
    }
    values = {path: SettingWithSource(default_settings()[path], "default") for path in POOL_LABELS}
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
