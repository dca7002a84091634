"""The part of joblib's backend that runs on nodes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

__all__ = ["BatchRunner"]


class BatchRunner:
    """Function that runs batches of calls, under the name of the function that they call.

    Args:
        name: name of its tasks in messages and views.
        threads: maximum number of threads of BLAS and OpenMP in each call; None for their own default.
    """

    def __init__(self, name: str, threads: int | None) -> None:
        self.threads = threads
        self.__name__ = self.__qualname__ = name

    def __call__(self, batch: Callable[[], list[Any]]) -> list[Any]:
        """Run the calls of joblib's batch, one after the other, and return their results."""
        limits: AbstractContextManager[object] = nullcontext()
        if self.threads is not None:
            from threadpoolctl import threadpool_limits

            limits = threadpool_limits(self.threads)
        with limits:
            return batch()
