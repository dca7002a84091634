"""The module `__main__` as code of a cell sees it: with the names of that cell.

In a notebook, plain `pickle`, `typing.get_type_hints` and the like find what a cell defines through `__main__`. On a
node several cells may run at once, so each lookup in `__main__` goes to the namespace of the calling cell.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock  # tasks may replace the attributes of the module
from types import ModuleType
from typing import Any

from skyward.task.variables import TaskVar

__all__ = ["as_main"]

_current: TaskVar[dict[str, Any] | None] = TaskVar("skyward_main", default=None)
_active: list[dict[str, Any]] = []
_lock = Lock()


class _Main(ModuleType):
    """Replacement for `__main__` while cells run; unknown names are looked up in the real module."""

    def __init__(self, real: ModuleType) -> None:
        super().__init__("__main__", real.__doc__)
        self._real = real

    def __getattribute__(self, name: str) -> Any:
        if name in ("_real", "__class__"):
            return super().__getattribute__(name)
        namespace = _namespace()
        if namespace is None:
            return getattr(self._real, name)
        if name == "__dict__":
            return namespace
        try:
            return namespace[name]
        except KeyError:
            return getattr(self._real, name)


def _namespace() -> dict[str, Any] | None:
    """Return the namespace of the calling cell; from a thread outside any cell, that of the only running cell."""
    namespace = _current.get()
    if namespace is None and len(_active) == 1:
        return _active[0]
    return namespace


@contextmanager
def as_main(namespace: dict[str, Any]) -> Iterator[None]:
    """Let `__main__` have the names of `namespace` for the code in the block."""
    outer = _current.get()
    with _lock:
        real = sys.modules["__main__"]
        if not isinstance(real, _Main):
            sys.modules["__main__"] = _Main(real)
        _active.append(namespace)
    _current.set(namespace)
    try:
        yield
    finally:
        _current.set(outer)
        with _lock:
            _active[:] = [other for other in _active if other is not namespace]
            if not _active and isinstance(view := sys.modules["__main__"], _Main):
                sys.modules["__main__"] = view._real
