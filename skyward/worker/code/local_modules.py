"""Local modules of the client, imported on a node from the sources that were sent with a cell."""

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

from skyward.wire.objects.attributes import of_user
from skyward.wire.payloads.sources import ModuleSource
from skyward.worker.code.fingerprint import Fingerprint

__all__ = ["ReimportedModules", "Variables", "first_variables", "install", "installed_names", "variables_of"]


class SourceFinder(importlib.abc.MetaPathFinder):
    """Finds modules whose sources were installed. First in `sys.meta_path`: the client's version takes precedence."""

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
    """Executes one module from its source, with the filename that it has on the client."""

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
"""By name, a variable of a module, or an attribute of one of its classes or functions: the object, its fingerprint."""

_first: dict[str, Variables] = {}


def first_variables(name: str) -> Variables | None:
    """Return the variables of a local module right after its import; None if it was not imported."""
    return _first.get(name)


def variables_of(module: ModuleType) -> Variables:
    """Return the globals of a module, except modules, and the attributes of its classes and functions."""
    found: Variables = {}
    fingerprint = Fingerprint()
    for name, value in list(vars(module).items()):
        if not name.startswith("__") and not isinstance(value, ModuleType):
            found[name] = value, fingerprint.of(value)
            for attribute, part in _attributes_of(value, module.__name__).items():
                found[f"{name}.{attribute}"] = part, fingerprint.of(part)
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
class ReimportedModules:
    """Local modules dropped from `sys.modules`, so that the next import runs them again with fresh variables.

    Attributes:
        changed: modules whose source differs from the one that was imported.
        others: unchanged modules, which may have imported names from the changed ones.
    """

    changed: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


_finder = SourceFinder()
_lock = Lock()


def installed_names() -> frozenset[str]:
    """Return the names of the local modules whose sources were installed."""
    return frozenset(_finder.modules)


def install(bundle: Mapping[str, ModuleSource]) -> ReimportedModules:
    """Make the modules of `bundle` importable.

    A module whose source has changed since it was last installed is removed from `sys.modules`, together with all
    modules imported from installed sources: the next import runs the new version, and nothing refers to the old one.

    Returns:
        The removed modules that had been imported.
    """
    with _lock:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        known = _finder.modules
        changed = {name for name, module in bundle.items() if name in known and known[name].digest != module.digest}
        known.update(bundle)
        fresh = {name for name in bundle if _is_foreign(sys.modules.get(name))}
        if not changed and not fresh:
            return ReimportedModules()
        files = [name for name in sorted(known) if known[name].filename and name in sys.modules]
        loaded = [name for name in files if not _is_foreign(sys.modules[name])]
        for name in known:
            sys.modules.pop(name, None)
        return ReimportedModules(
            tuple(name for name in loaded if name in changed), tuple(name for name in loaded if name not in changed)
        )


def _is_foreign(module: ModuleType | None) -> bool:
    """Return whether a module was imported from elsewhere, before its source was installed."""
    return module is not None and not isinstance(getattr(module, "__loader__", None), SourceLoader)
