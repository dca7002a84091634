"""Detection of the user's own modules, and how they reach a node that does not have them.

A module is local if its source lies outside the standard library and outside every `site-packages`: the user edits it,
and no `--pip` can install it. Functions and classes of local modules are pickled by value with a task. A notebook cell
sends the sources along instead (`skyward.wire.payloads.sources`), so that its own `import` finds them.
"""

import dis
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from types import CodeType, ModuleType

import cloudpickle

__all__ = ["OUR_PACKAGES", "imported_by", "is_local", "is_local_file", "local_modules", "travelling_by_value"]

OUR_PACKAGES = frozenset({"skyward", "skyward_jupyter", "skyward_kernel", "skyward_providers"})
"""The packages of this distribution, which every node has: they are never sent."""

_INSTALLED = frozenset({"site-packages", "dist-packages"})

_lock = threading.Lock()
_seen: dict[str, int] = {}
_local: dict[str, ModuleType] = {}
_stamp: tuple[int, str, int] = (0, "", 0)
_registered: set[str] = set()
_users = 0


def is_local(module: ModuleType) -> bool:
    """Return whether `module` is local: its source is a file outside the standard library and `site-packages`."""
    name = getattr(module, "__name__", None)
    if not isinstance(name, str) or name in ("__main__", "__mp_main__") or name.partition(".")[0] in OUR_PACKAGES:
        return False
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and is_local_file(file)


def is_local_file(path: str) -> bool:
    """Return whether `path` is a Python source outside the standard library and outside every `site-packages`."""
    if not path.endswith(".py"):
        return False
    full = os.path.abspath(path)
    if not _INSTALLED.isdisjoint(full.split(os.sep)):
        return False
    return not full.startswith(_installed_roots()) and os.path.isfile(full)


def local_modules() -> list[ModuleType]:
    """Return the loaded local modules. Cheap: only modules loaded since the last call are checked."""
    with _lock:
        _refresh()
        return list(_local.values())


@lru_cache(maxsize=4096)
def imported_by(code: CodeType) -> frozenset[str]:
    """Return the modules named by `import` statements of a function, including those in functions it defines."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname == "IMPORT_NAME" and each.argval}
    return frozenset(found).union(*(imported_by(each) for each in code.co_consts if isinstance(each, CodeType)))


@contextmanager
def travelling_by_value() -> Iterator[None]:
    """Have cloudpickle pickle functions and classes of local modules by value inside the context."""
    global _users
    with _lock:
        _refresh()
        _users += 1
        _register()
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _unregister()


def _refresh() -> None:
    """Update the table of local modules from `sys.modules`."""
    global _stamp
    stamp = _stamp_now()
    if stamp == _stamp:
        return
    loaded = dict(sys.modules)
    for name, module in loaded.items():
        if _seen.get(name) != id(module):
            _seen[name] = id(module)
            _local.pop(name, None)
            if isinstance(module, ModuleType) and getattr(module, "__name__", None) == name and is_local(module):
                _local[name] = module
    for name in _seen.keys() - loaded.keys():
        del _seen[name]
        _local.pop(name, None)
    _stamp = stamp


def _stamp_now() -> tuple[int, str, int]:
    """Return a stamp that changes when a module is loaded: the number of modules, and the last one."""
    while True:
        with suppress(RuntimeError, KeyError):  # another thread imports at the same time
            last = next(reversed(sys.modules))
            return len(sys.modules), last, id(sys.modules[last])


def _register() -> None:
    missing = [name for name in _local if name not in _registered]
    if missing:
        before = cloudpickle.list_registry_pickle_by_value()
        for name in missing:
            if name not in before:  # keep what the user registered
                cloudpickle.register_pickle_by_value(_local[name])
                _registered.add(name)


def _unregister() -> None:
    for name in _registered & cloudpickle.list_registry_pickle_by_value():
        cloudpickle.unregister_pickle_by_value(ModuleType(name))
    _registered.clear()


def _has_distributions(folder: str) -> bool:
    """Return whether packages are installed into a folder, as by `pip install --target`."""
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:
        return False


@cache
def _installed_roots() -> tuple[str, ...]:
    """Return the folders of installed code, each with a trailing separator."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    roots = {sysconfig.get_path(name) for name in names}
    roots |= {os.path.join(sys.base_prefix, *os.path.relpath(os.__file__, sys.base_prefix).split(os.sep)[:-1])}
    roots |= {os.path.dirname(os.__file__), site.getusersitepackages(), *site.getsitepackages()}
    roots |= {entry for entry in sys.path if entry and _has_distributions(entry)}
    real = {os.path.realpath(root) for root in roots if root}
    return tuple(os.path.join(root, "") for root in sorted(real | {root for root in roots if root}))
