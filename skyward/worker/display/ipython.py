"""Redirection of IPython's display functions to the cell, for user code that imports them on a node."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from threading import local  # tasks may replace the attributes of the module
from types import ModuleType
from typing import override

from skyward.worker.display import publishing

__all__ = ["redirect_displays"]

_TARGET = "IPython.core.display_functions"
_NAMES = ("DisplayHandle", "clear_output", "display", "publish_display_data", "update_display")


def redirect_displays() -> None:
    """Replace IPython's display functions, now or once IPython is imported. A real IPython shell keeps its own."""
    loaded = sys.modules.get(_TARGET)
    if loaded is not None:
        _replace(loaded)
        facade = sys.modules.get("IPython.display")
        if facade is not None:
            _replace(facade)
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


def _replace(module: ModuleType) -> None:
    shell = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    if shell is not None and shell.initialized():
        return
    for name in _NAMES:
        setattr(module, name, getattr(publishing, name))


class _Watcher(importlib.abc.MetaPathFinder):
    """Import hook that wraps the loader of the module with the display functions, and of no other module."""

    def __init__(self) -> None:
        self._busy = local()

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _TARGET or getattr(self._busy, "now", False):
            return None
        self._busy.now = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy.now = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    @override
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    @override
    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _replace(module)
