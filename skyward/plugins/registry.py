"""The installed plugins, by name."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from skyward.errors import SpecError
from skyward.specs.plugin import Plugin
from skyward.values.validation import closest

__all__ = ["find_plugin", "make_plugin", "plugin_names"]

_GROUP: Final = "skyward.plugins"
_OURS: Final = "skyward-jupyter"


@cache
def _entries() -> Mapping[str, Any]:
    """Return the entry points by name. Those of this distribution come first: nobody else can take their names."""
    found: dict[str, Any] = {}
    for entry in sorted(entry_points(group=_GROUP), key=lambda each: each.dist is None or each.dist.name != _OURS):
        found.setdefault(entry.name, entry)
    return found


def plugin_names() -> tuple[str, ...]:
    """Return the names of the installed plugins."""
    return tuple(sorted(_entries()))


def find_plugin(name: str) -> type[Plugin]:
    """Return the class of the plugin with a name.

    Raises:
        SpecError: there is no such plugin, or its package cannot be imported.
    """
    entry = _entries().get(name)
    if entry is None:
        raise SpecError(f"There is no plugin {name!r}; {closest(name, _entries())}")
    try:
        found = entry.load()
    except ImportError as error:
        raise SpecError(f"Plugin {name!r} cannot be loaded ({error}); install its package again.") from error
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        raise SpecError(f"Plugin {name!r} of {entry.value} is not a subclass of `sky.plugins.Plugin`.")
    return found


def make_plugin(name: str, settings: Mapping[str, Any] | None = None) -> Plugin:
    """Return the plugin with a name, as a file or an option gives it.

    Raises:
        SpecError: there is no such plugin, its package cannot be imported, or its settings are not allowed.
    """
    kind, given = find_plugin(name), settings or {}
    for field in fields(kind):  # type: ignore[arg-type]  # each is a dataclass
        if field.name not in given and field.default is MISSING and field.default_factory is MISSING:
            raise SpecError(
                f"Plugin {name!r} needs {field.name!r}: give it in code, `sky.plugins.{name}({field.name}=...)`, or in "
                f"skyward.toml, `plugins = {{{name} = {{{field.name} = ...}}}}`."
            )
    return kind(**given)
