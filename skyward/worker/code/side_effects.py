"""Side effects of a cell beyond its variables: they stay on the node, and the user gets a notice."""

import importlib
import logging
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any

from skyward.wire.objects.library_settings import settings_used_by
from skyward.wire.payloads.sources import ModuleSource
from skyward.worker.code.local_modules import Variables, first_variables, variables_of

__all__ = ["ProcessSnapshot"]

_SETTERS = {
    "numpy": ("seterr", "set_printoptions"),
    "pandas": ("set_option", "options."),
    "matplotlib": ("rcParams", "rc(", "style.use", "set_theme"),
    "warnings": ("simplefilter", "filterwarnings"),
}
"""By name of a library, words that occur in code that changes its settings."""


class ProcessSnapshot:
    """A snapshot of the process around a cell, taken before the cell runs.

    It covers the environment, `sys.path`, loggers, settings of libraries, and the variables of local modules.

    Args:
        source: the source of the cell.
        sources: the local modules sent with it. Only things mentioned in them or in the cell are checked, because
            packages set variables when they are imported.
        namespace: the variables of the cell, with the functions that it may call.
        travelling: titles of the settings that are returned to the notebook anyway.
    """

    def __init__(
        self,
        source: str,
        sources: Mapping[str, ModuleSource],
        namespace: Mapping[str, Any],
        travelling: Collection[str] = (),
    ) -> None:
        functions = [each for each in namespace.values() if isinstance(each, FunctionType)]
        names = [name for each in functions for name in each.__code__.co_names]
        texts = [source, *names, *(module.source.decode("latin-1") for module in sources.values())]

        def mentions(word: str) -> bool:
            return any(word in text for text in texts)

        self._modules = tuple(sources)
        self._environ = dict(os.environ) if mentions("env") else None
        self._path = list(sys.path) if mentions("sys.path") or "path" in names else None
        self._has_new_loggers = mentions("logg")
        self._loggers = _loggers()
        self._libraries = [name for name, words in _SETTERS.items() if mentions(name) and any(map(mentions, words))]
        self._travelling = travelling
        self._settings = self._settings_now(self._libraries)
        self._variables = {name: variables_of(sys.modules[name]) for name in self._modules if name in sys.modules}

    def changed(self) -> list[str]:
        """Return the things that have changed, written as in Python."""
        found = []
        if self._environ is not None:
            names = {*self._environ, *os.environ} - {"COMPUTE_POOL"}  # which follows the nodes that come and go
            found += [
                f"os.environ[{name!r}]" for name in sorted(names) if self._environ.get(name) != os.environ.get(name)
            ]
        if self._path is not None and self._path != sys.path:
            found.append("sys.path")
        before, now = self._loggers, _loggers()
        checked = now if self._has_new_loggers else before.keys() & now.keys()  # packages create loggers of their own
        found += [f"the logger {name!r}" for name in sorted(checked) if now[name] != before.get(name, _UNSET)]
        settings = self._settings_now(())
        found += [f"a setting of {name}" for name, known in self._settings.items() if settings.get(name) != known]
        for name in self._modules:
            first = self._variables.get(name, first_variables(name))
            if first is not None and name in sys.modules:
                found += [f"{name}.{variable}" for variable in _differences(first, variables_of(sys.modules[name]))]
        return found

    def _settings_now(self, wanted: Iterable[str]) -> dict[str, list[Any]]:
        """Return the settings of each library by its name. Libraries in `wanted` are imported first."""
        for name in wanted:
            with suppress(Exception):  # the cell will raise it
                importlib.import_module(name)
        found: dict[str, list[Any]] = {}
        for each in settings_used_by(self._libraries):
            name = each.name.partition(":")[0]
            if each.title not in self._travelling and name in self._libraries:
                found.setdefault(name, []).append(each.get())
        return found


_UNSET = (logging.NOTSET, 0, False, True)


def _loggers() -> dict[str, tuple[Any, ...]]:
    """Return the configuration of each logger and the number of its handlers, by name."""
    known = [logging.root, *logging.root.manager.loggerDict.copy().values()]
    return {
        each.name: (each.level, len(each.handlers), each.disabled, each.propagate)
        for each in known
        if isinstance(each, logging.Logger)
    }


def _differences(before: Variables, now: Variables) -> list[str]:
    found = [name for name in sorted({*before, *now}) if not _is_same(before.get(name), now.get(name))]
    return [name for name in found if name.rpartition(".")[0] not in found]


def _is_same(one: tuple[Any, list[Any]] | None, other: tuple[Any, list[Any]] | None) -> bool:
    return one is not None and other is not None and one[0] is other[0] and one[1] == other[1]
