"""Local modules of the client, imported on a node from the sources that travelled with a cell."""

import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import EnumType
from threading import Lock  # tasks may replace the attributes of the module
from types import CodeType, FunctionType, ModuleType
from typing import Any, override

from skyward.wire.objects.contents import of_user
from skyward.wire.payloads.sources import ModuleSource
from skyward.worker.cells.fingerprint import Fingerprint

__all__ = ["Forgotten", "Variables", "first_variables", "install", "installed_names", "variables_of"]


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


type Variables = dict[str, tuple[Any, list[Any]]]
"""By name, a variable of a module, or an attribute of a class or function of it: the object, and what is in it."""

_first: dict[str, Variables] = {}


def first_variables(name: str) -> Variables | None:
    """Return the variables of a local module as its import left them; None if it was not imported."""
    return _first.get(name)


def variables_of(module: ModuleType) -> Variables:
    """Return the globals of a module, but for modules, and the attributes of its classes and functions."""
    found: Variables = {}
    insides = Fingerprint()
    for name, value in list(vars(module).items()):
        if not name.startswith("__") and not isinstance(value, ModuleType):
            found[name] = value, insides.of(value)
            for attribute, part in _attributes_of(value, module.__name__).items():
                found[f"{name}.{attribute}"] = part, insides.of(part)
    return found


def _attributes_of(value: object, module: str) -> dict[str, Any]:
    """Return the attributes that code may have set on a function or a class of a module."""
    kind = type(value)
    if kind is FunctionType and value.__module__ == module:
        return dict(vars(value))
    if issubclass(kind, type) and not issubclass(kind, EnumType) and value.__module__ == module:
        return of_user(vars(value))
    return {}


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Local modules that are imported again, if anything imports them, so that their variables are new.

    Attributes:
        changed: those with another source than the one that they were imported from.
        others: those that may have taken something from them.
    """

    changed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


_finder = SourceFinder()
_lock = Lock()


def installed_names() -> frozenset[str]:
    """Return the names of the local modules whose sources have come."""
    return frozenset(_finder.modules)


def install(bundle: Mapping[str, ModuleSource]) -> Forgotten:
    """Make the modules of `bundle` importable.

    A module whose source has changed since it was last installed is forgotten, with everything that was imported from
    such sources, so that the next import runs the new version and nothing holds on to the old one. Returned are those
    that had been imported.
    """
    with _lock:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        known = _finder.modules
        changed = {name for name, module in bundle.items() if name in known and known[name].digest != module.digest}
        known.update(bundle)
        fresh = {name for name in bundle if _is_foreign(sys.modules.get(name))}
        if not changed and not fresh:
            return Forgotten()
        files = [name for name in sorted(known) if known[name].filename and name in sys.modules]
        loaded = [name for name in files if not _is_foreign(sys.modules[name])]
        for name in known:
            sys.modules.pop(name, None)
        return Forgotten(
            tuple(name for name in loaded if name in changed), tuple(name for name in loaded if name not in changed)
        )


def _is_foreign(module: ModuleType | None) -> bool:
    """Whether a module of that name was imported from elsewhere, before its source came."""
    return module is not None and not isinstance(getattr(module, "__loader__", None), SourceLoader)
