"""The installed plugins."""

import inspect

import skyward as sky
from docs.generate.markdown import table
from skyward.plugins.registry import find_plugin, plugin_names

__all__ = ["our_plugins", "plugin_table"]


def our_plugins() -> list[str]:
    """Return the names of the plugins of this distribution."""
    names = [name for name in plugin_names() if find_plugin(name).__module__.startswith("skyward.")]
    return [*names, "around"]


def plugin_table() -> str:
    """Return a table of the plugins."""
    rows = []
    for name in our_plugins():
        sentence = (inspect.getdoc(getattr(sky.plugins, name)) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append((f"{{py:obj}}`{name} <skyward.plugins.{name}>`", sentence))
    return table(("plugin", "purpose"), rows)
