"""Registration of the backend "skyward" with joblib, which may be imported later, or never."""

import functools
from types import ModuleType
from typing import Any

from skyward.process.after_import import call_after_import

__all__ = ["register_with_joblib"]


@functools.cache
def register_with_joblib() -> None:
    """Make `joblib.parallel_config("skyward")` find the backend, without importing joblib. Idempotent."""
    call_after_import("joblib.parallel", _register)


def _register(parallel: ModuleType) -> None:
    parallel.register_parallel_backend("skyward", _backend)


def _backend(**settings: Any) -> Any:
    from skyward.pool.joblib_backend import backend_class  # circular: of pools, which register it

    return backend_class()(**settings)
