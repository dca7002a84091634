"""What a cell changes beside its variables: it stays on the node, which is said."""

import logging
import os
import sys
from collections.abc import Iterable
from typing import Any

from skyward.worker.imports import first_variables, variables_of

__all__ = ["Surroundings"]


class Surroundings:
    """The environment, the path of modules, loggers, and the variables of local modules, as they are before a cell.

    Args:
        source: the cell. What it does not mention is not looked at: packages set variables when they are imported.
        modules: names of the local modules.
    """

    def __init__(self, source: str, modules: Iterable[str]) -> None:
        self._modules = tuple(modules)
        self._environ = dict(os.environ) if "env" in source else None
        self._path = list(sys.path) if "sys.path" in source else None
        self._loggers = _loggers() if "logg" in source else None
        self._variables = {name: variables_of(sys.modules[name]) for name in self._modules if name in sys.modules}

    def changed(self) -> list[str]:
        """What is not as it was, as one writes it in Python."""
        found = []
        if self._environ is not None:
            names = {*self._environ, *os.environ}
            found += [
                f"os.environ[{name!r}]" for name in sorted(names) if self._environ.get(name) != os.environ.get(name)
            ]
        if self._path is not None and self._path != sys.path:
            found.append("sys.path")
        if self._loggers is not None:
            now = _loggers()
            found += [f"the logger {name!r}" for name in sorted(now) if now[name] != self._loggers.get(name, _UNSET)]
        for name in self._modules:
            before = self._variables.get(name, first_variables(name))
            if before is not None and name in sys.modules:
                found += [f"{name}.{variable}" for variable in _differences(before, variables_of(sys.modules[name]))]
        return found


_UNSET = (logging.NOTSET, 0)


def _loggers() -> dict[str, tuple[int, int]]:
    """By the name of each logger, its level and how many handlers it has."""
    known = [logging.root, *logging.root.manager.loggerDict.values()]
    return {each.name: (each.level, len(each.handlers)) for each in known if isinstance(each, logging.Logger)}


def _differences(before: dict[str, tuple[Any, int]], now: dict[str, tuple[Any, int]]) -> list[str]:
    return [name for name in sorted({*before, *now}) if not _is_same(before.get(name), now.get(name))]


def _is_same(one: tuple[Any, int] | None, other: tuple[Any, int] | None) -> bool:
    return one is not None and other is not None and one[0] is other[0] and one[1] == other[1]
