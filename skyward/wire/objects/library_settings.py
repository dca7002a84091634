"""Process-wide settings of libraries: how NumPy treats floating-point errors, the style of figures.

A cell gets those of the notebook, and the notebook takes over those that the cell has changed. They are sent as
differences from the library's defaults, so that a node need not import the library for nothing.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

__all__ = ["LibrarySettings", "settings_named", "settings_used_by"]


class LibrarySettings:
    """The process-wide settings of a library. A singleton, known by its name.

    Attributes:
        name: the library; and the kind of settings, if it has several.
    """

    def __init__(
        self,
        name: str = "",
        users: Iterable[str] = (),
        read: Callable[[Any], dict[str, Any]] = lambda _: {},
        write: Callable[[Any, dict[str, Any]], None] = lambda *_: None,
    ) -> None:
        self.name = name
        self._module = name.partition(":")[0]
        self._users = frozenset(users)
        self._read = read
        self._write = write

    @property
    def title(self) -> str:
        """Name of the settings for a sentence."""
        library, _, kind = self.name.partition(":")
        return f"the {kind} settings of {library}" if kind else f"the settings of {library}"

    def used_by(self, packages: Collection[str]) -> bool:
        """Return whether code that uses `packages` may use these settings, and they exist."""
        return not self._users.isdisjoint(packages) and self._module in sys.modules

    def get(self) -> dict[str, Any]:
        """Return the settings that differ from the library's defaults."""
        return self._read(sys.modules[self._module]) if self._module in sys.modules else {}

    def put(self, settings: dict[str, Any]) -> None:
        """Apply these settings, and the library's defaults for all others."""
        if self.name and (settings or self._module in sys.modules):
            self._write(importlib.import_module(self._module), settings)


_NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def _numpy_errors(numpy: Any) -> dict[str, Any]:
    return {kind: how for kind, how in numpy.geterr().items() if how != _NUMPY_ERRORS[kind]}


def _set_numpy_errors(numpy: Any, settings: dict[str, Any]) -> None:
    numpy.seterr(**(_NUMPY_ERRORS | settings))


def _numpy_print(numpy: Any) -> dict[str, Any]:
    return dict(numpy.get_printoptions())


def _set_numpy_print(numpy: Any, settings: dict[str, Any]) -> None:
    if settings and settings != numpy.get_printoptions():
        numpy.set_printoptions(**settings)


_OF_THE_PROCESS = frozenset({"backend", "backend_fallback", "interactive", "toolbar", "webagg.port"})
"""Settings of matplotlib that depend on where figures are shown."""


def _figure_style(matplotlib: Any) -> dict[str, Any]:
    defaults = matplotlib.rcParamsDefault
    now = {name: dict.__getitem__(matplotlib.rcParams, name) for name in matplotlib.rcParams}
    return {name: now[name] for name in now.keys() - _OF_THE_PROCESS if now[name] != defaults.get(name)}


def _set_figure_style(matplotlib: Any, settings: dict[str, Any]) -> None:
    wanted = matplotlib.rcParamsDefault | settings
    changed = {*_figure_style(matplotlib), *settings} - _OF_THE_PROCESS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are deprecated
        matplotlib.rcParams.update({name: wanted[name] for name in changed if name in matplotlib.rcParams})


def _pandas_options(pandas: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def look(options: Any, prefix: str) -> None:
        for name in dir(options):
            value = getattr(options, name)
            if type(value) is type(options):
                look(value, f"{prefix}{name}.")
            else:
                found[prefix + name] = value

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some are deprecated
        look(pandas.options, "")
    return found


def _set_pandas_options(pandas: Any, settings: dict[str, Any]) -> None:
    now = _pandas_options(pandas)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, value in settings.items():
            if name in now and now[name] != value:
                pandas.set_option(name, value)


def _warning_filters(module: Any) -> dict[str, Any]:
    return {"filters": list(module.filters)}


def _set_warning_filters(module: Any, settings: dict[str, Any]) -> None:
    if "filters" in settings and module.filters != settings["filters"]:
        module.filters[:] = settings["filters"]
        with module.catch_warnings():
            pass  # leaving the context drops the record of earlier warnings


_SETTINGS = {
    each.name: each
    for each in (
        LibrarySettings("numpy:error", {"numpy", "pandas", "scipy", "sklearn"}, _numpy_errors, _set_numpy_errors),
        LibrarySettings("numpy:print", {"numpy"}, _numpy_print, _set_numpy_print),
        LibrarySettings("matplotlib", {"matplotlib", "seaborn", "pandas"}, _figure_style, _set_figure_style),
        LibrarySettings("pandas", {"pandas"}, _pandas_options, _set_pandas_options),
        LibrarySettings("warnings", {"warnings"}, _warning_filters, _set_warning_filters),
    )
}


def settings_named(name: str) -> LibrarySettings | None:
    """Return the settings with this name, if they exist."""
    return _SETTINGS.get(name)


def settings_used_by(packages: Collection[str]) -> Iterator[LibrarySettings]:
    """Yield the settings that code which uses `packages` may use."""
    return (each for each in _SETTINGS.values() if each.used_by(packages))
