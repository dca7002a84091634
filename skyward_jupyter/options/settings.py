"""Settings of all cells, from traits, configuration files and defaults, in this order of precedence."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from skyward.errors import SpecError
from skyward.frontends.commands import PLACES, duration, lifetime, place, size
from skyward.frontends.configuration import closest
from skyward_jupyter.cells.capture import CAPTURE_LIMIT
from skyward_kernel.pools import DEFAULT_POOL

if TYPE_CHECKING:
    from skyward.frontends.configuration import Config, ConfigValue
    from skyward.frontends.pools import On

__all__ = ["NAMES", "CellSettings", "SettingWithSource", "settings_from"]


@dataclass(frozen=True, slots=True)
class CellSettings:
    """Settings of all cells. See the traits of `SkyMagics`."""

    pool: str = DEFAULT_POOL
    on: "On" = "one"
    by_node: bool = False
    quiet: bool = False
    retries: int = 0
    timeout: float | None = None
    footer: bool = True
    capture_limit: int = CAPTURE_LIMIT
    show_progress: bool = True
    progress_after: float = 0.5
    interrupt_grace: float = 5.0

    @property
    def of_options(self) -> dict[str, Any]:
        """The defaults of fields of `CellOptions`."""
        return {name: getattr(self, name) for name in ("pool", "on", "by_node", "quiet", "retries", "timeout")}


NAMES = tuple(field.name for field in fields(CellSettings))
"""Names of the settings, which are those of the traits and of the keys of `[cells]`."""


@dataclass(frozen=True, slots=True)
class SettingWithSource:
    """A value and its source: `skyward.toml:7`, `c.SkyMagics.footer`, `default`."""

    value: Any
    source: str


def settings_from(traits: Mapping[str, Any], given: Collection[str], config: "Config") -> dict[str, SettingWithSource]:
    """Return each setting with its source; traits that were set take precedence over files, files over defaults.

    Args:
        traits: the values of the traits.
        given: names of the traits that were set.
        config: the configuration files.

    Raises:
        SpecError: a key of `[cells]` is unknown or has a value that is not allowed.
    """
    found = {name: _read(name, each) for name, each in config.cells().items()}
    settings = {}
    for name in NAMES:
        if name in given:
            settings[name] = SettingWithSource(traits[name], f"c.SkyMagics.{name}")
        elif name in found:
            settings[name] = found[name]
        else:
            settings[name] = SettingWithSource(traits[name], "default")
    if os.environ.get("SKYWARD_PROGRESS") == "off":
        settings["show_progress"] = SettingWithSource(False, "SKYWARD_PROGRESS")
    return settings


def _read(name: str, found: "ConfigValue") -> SettingWithSource:
    """Parse a setting of a file. Strings are parsed like the values of the option."""
    if name not in _READERS:
        raise found.wrong(f"cells have no such setting; {closest(name.replace('-', '_'), NAMES)}")
    takes, read = _READERS[name]
    try:
        return SettingWithSource(read(found.value), found.where)
    except SpecError as error:
        raise found.wrong(str(error)) from None
    except ValueError:
        raise found.wrong(f"{name} takes {takes}, but got {found.value!r}.") from None


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(value)
    return value


def _place(value: object) -> "On":
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(value)
    return place(str(value))


def _retries(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


def _number(read: Callable[[str], float]) -> Callable[[object], float]:
    """Return a parser that accepts numbers as well as the texts that `read` accepts."""

    def number(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError(value)
        return read(str(value))

    return number


_SECONDS = "seconds, or a duration such as '90s' or '1h'"
_READERS: Mapping[str, tuple[str, Callable[[object], Any]]] = {
    "pool": ("the name of a pool", _text),
    "timeout": (_SECONDS, _number(duration)),
    "on": (PLACES, _place),
    "by_node": ("true or false", _flag),
    "quiet": ("true or false", _flag),
    "retries": ("a whole number", _retries),
    "footer": ("true or false", _flag),
    "capture_limit": ("bytes, or a size such as '512MiB'", _number(size)),
    "show_progress": ("true or false", _flag),
    "progress_after": (_SECONDS, _number(lifetime)),
    "interrupt_grace": (_SECONDS, _number(lifetime)),
}
