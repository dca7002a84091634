"""The part of joblib's backend that runs on nodes."""

import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

__all__ = ["run_batch", "run_calls"]


def run_batch(threads: int | None, batch: Callable[[], list[Any]]) -> list[Any]:
    """Run the calls of joblib's batch, one after the other, and return their results.

    Args:
        threads: maximum number of threads of BLAS and OpenMP in each call; None for their own default.
        batch: the calls.
    """
    limits: AbstractContextManager[object] = nullcontext()
    if threads is not None:
        from threadpoolctl import threadpool_limits

        limits = threadpool_limits(threads)
    with limits:
        return batch()


def run_calls(function: Callable[..., Any], level: int, threads: int | None, calls: bytes) -> list[Any]:
    """Run calls of one function, as `run_batch` does.

    Args:
        function: the function, which is pickled once for all batches.
        level: joblib's level of nesting for calls inside.
        threads: see `run_batch`.
        calls: pickle of the positional and keyword arguments of each call.
    """
    from joblib.parallel import BatchedCalls, SequentialBackend

    items = [(function, args, keywords) for args, keywords in pickle.loads(calls)]
    return run_batch(threads, BatchedCalls(items, (SequentialBackend(nesting_level=level), None)))
