"""Local modules of the client, imported on a node from the sources that travelled with a cell."""

import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Mapping, Sequence
from threading import Lock  # tasks may replace the attributes of the module
from types import CodeType, FunctionType, ModuleType
from typing import Any, override

from skyward.wire.sources import ModuleSource

__all__ = ["first_variables", "install", "installed_names", "variables_of"]


class SourceFinder(importlib.abc.MetaPathFinder):
    """Finds the modules whose sources were installed. It goes before all others: the client's own version counts."""

    def __init__(self) -> None:
        self.modules: dict[str, ModuleSource] = {}

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        module = self.modules.get(fullname)
        if module is None:
            return None
        loader = SourceLoader(module)
        return importlib.util.spec_from_loader(
            fullname, loader, origin=module.filename or None, is_package=module.is_package
        )


class SourceLoader(importlib.abc.InspectLoader):
    """Runs one module from its source, under the filename that it has on the client."""

    def __init__(self, module: ModuleSource) -> None:
        self._module = module

    @override
    def is_package(self, fullname: str) -> bool:
        return self._module.is_package

    @override
    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._module.source)

    @override
    def get_code(self, fullname: str) -> CodeType:
        return compile(self._module.source, self._module.filename or f"<{fullname}>", "exec", dont_inherit=True)

    @override
    def exec_module(self, module: ModuleType) -> None:
        if self._module.filename:
            module.__file__ = self._module.filename
            text = self.get_source(self._module.name)
            linecache.cache[self._module.filename] = (len(text), None, text.splitlines(True), self._module.filename)
        super().exec_module(module)
        _first[self._module.name] = variables_of(module)


_first: dict[str, dict[str, tuple[Any, int]]] = {}


def first_variables(name: str) -> dict[str, tuple[Any, int]] | None:
    """Return the variables of a local module as its import left them; None if it was not imported."""
    return _first.get(name)


def variables_of(module: ModuleType) -> dict[str, tuple[Any, int]]:
    """Return the data that a module has as globals: by name the object, and how much is in it."""
    return {
        name: (value, len(value) if isinstance(value, (list, dict, set)) else 0)
        for name, value in vars(module).items()
        if not name.startswith("__") and not isinstance(value, (ModuleType, FunctionType, type))
    }


_finder = SourceFinder()
_lock = Lock()


def installed_names() -> frozenset[str]:
    """Return the names of the local modules whose sources have come."""
    return frozenset(_finder.modules)


def install(bundle: Mapping[str, ModuleSource]) -> None:
    """Make the modules of `bundle` importable.

    A module whose source has changed since it was last installed is forgotten, with everything that was imported from
    such sources, so that the next import runs the new version and nothing holds on to the old one.
    """
    with _lock:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        known = _finder.modules
        changed = {name for name, module in bundle.items() if name in known and known[name].digest != module.digest}
        known.update(bundle)
        fresh = {name for name in bundle if _is_foreign(sys.modules.get(name))}
        if changed or fresh:
            for name in known:
                sys.modules.pop(name, None)


def _is_foreign(module: ModuleType | None) -> bool:
    """Whether a module of that name was imported from elsewhere, before its source came."""
    return module is not None and not isinstance(getattr(module, "__loader__", None), SourceLoader)
