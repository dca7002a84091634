"""While a value is pickled: functions and classes of local modules travel by value, so that edits are seen."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import cloudpickle

from skyward.wire.modules import local_modules

__all__ = ["travelling_by_value"]

_lock = threading.Lock()
_held: Counter[str] = Counter()


@contextmanager
def travelling_by_value() -> Iterator[None]:
    """Inside, cloudpickle pickles local modules by value; outside, its registry is as its other users left it."""
    modules = local_modules()
    if not modules:
        yield
        return
    with _lock:
        ours = [module for module in modules if _held[module.__name__] or not _registered(module.__name__)]
        for module in ours:
            if not _held[module.__name__]:
                cloudpickle.register_pickle_by_value(module)
            _held[module.__name__] += 1
    try:
        yield
    finally:
        with _lock:
            for module in ours:
                _held[module.__name__] -= 1
                if not _held[module.__name__]:
                    del _held[module.__name__]
                    cloudpickle.unregister_pickle_by_value(module)


def _registered(name: str) -> bool:
    return name in cloudpickle.list_registry_pickle_by_value()
