"""Calls that wait for a module of another package, which may be imported later or never."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

__all__ = ["call_after_import"]


def call_after_import(name: str, call: Callable[[ModuleType], object]) -> None:
    """Call `call` with the module `name`: now if it is loaded, else each time that it has been imported."""
    if name in sys.modules:
        call(import_module(name))  # waits for another thread that is importing it
    else:
        sys.meta_path.insert(0, _Finder(name, call))


class _Finder:
    """Import hook that adds a call to the loader of one module.

    It is never removed: another thread that reads `sys.meta_path` meanwhile would skip a finder.
    """

    def __init__(self, name: str, call: Callable[[ModuleType], object]) -> None:
        self._name = name
        self._call = call

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if module.__name__ == fullname:  # an archive has one loader for all its modules
                self._call(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # its class stays what others look for
        return spec
