"""The part of joblib's backend that runs on nodes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

__all__ = ["run_batch"]


def run_batch(batch: Callable[[], list[Any]], threads: int | None) -> list[Any]:
    """Run the calls of a batch and return their results.

    Args:
        batch: joblib's calls, which run one after the other.
        threads: maximum number of threads of BLAS and OpenMP in each call; None for their own default.
    """
    limits: AbstractContextManager[object] = nullcontext()
    if threads is not None:
        from threadpoolctl import threadpool_limits

        limits = threadpool_limits(threads)
    with limits:
        return batch()
