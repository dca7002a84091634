"""The backend "skyward" of joblib: batches of calls run as tasks of a pool.

The subclass of joblib's classes is made at the first use of the backend, so this module loads without joblib.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from skyward.errors import NO_POOL, NoPoolError, UsageError
from skyward.functions.decorator import SkyFunction
from skyward.functions.target import current_pool
from skyward.pool.compute import Compute
from skyward.pool.hooks import opened
from skyward.pool.joblib_batches import BatchSender, JoblibBatch

__all__ = ["backend_class"]

_ON_EVERY_NODE = frozenset({"builtins", "joblib", "numpy", "scipy", "sklearn"})
"""Packages whose categories of warnings a node knows."""

_GROWTH = 8
"""Factor by which batches of short calls grow."""

_ALL_WARNINGS = ("default", None, Warning, None, 0)
"""Filter that changes nothing: scikit-learn warns of calls without any."""


@functools.cache
def backend_class() -> type[Any]:
    """Return the class of the backend, a subclass of joblib's.

    Raises:
        UsageError: joblib is too old.
    """
    import joblib
    from joblib.parallel import (
        TASK_ERROR,
        AutoBatchingMixin,
        BatchCompletionCallBack,
        FallbackToBackend,
        ParallelBackendBase,
        SequentialBackend,
    )

    if not hasattr(ParallelBackendBase, "submit"):
        raise UsageError(f"A pool needs joblib 1.5 or newer, but {joblib.__version__} is installed: update joblib.")

    class SkywardBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
        """Backend of joblib over a pool.

        The instance that a user names has settings only: each `Parallel` gets one of its own, so that several may run
        at the same time.
        """

        supports_retrieve_callback = True
        supports_inner_max_num_threads = True
        default_n_jobs = -1

        def __init__(
            self, nesting_level: int | None = None, inner_max_num_threads: int | None = None, pool: Any = None
        ) -> None:
            super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
            if pool is not None and not isinstance(pool, Compute):
                raise UsageError(f'`joblib.parallel_config("skyward", pool=...)` takes a pool, but got {pool!r}.')
            self._given = pool
            self._batches: BatchSender | None = None
            self._n_jobs = 1
            self._pool: Compute | None = None
            self.parallel: Any = None
            self._effective_batch_size: int = self._DEFAULT_EFFECTIVE_BATCH_SIZE

        def effective_n_jobs(self, n_jobs: int | None) -> int:
            """Return the number of batches that run at a time: at least 2, if several may."""
            if n_jobs == 0:
                raise ValueError("n_jobs == 0 in Parallel has no meaning")
            n_jobs = self.default_n_jobs if n_jobs is None else n_jobs
            if n_jobs > 0:
                return n_jobs
            return max(_slots(pool_of(self._given)) + 1 + n_jobs, 2 if n_jobs == -1 else 1)

        def configure(self, n_jobs: int = 1, parallel: Any = None, **_: object) -> int:
            """Prepare for calls of a `Parallel`."""
            if self.parallel is not parallel:
                own = SkywardBackend(self.nesting_level, self.inner_max_num_threads, self._given)
                own.parallel = parallel
                raise FallbackToBackend(own)
            self._n_jobs = self.effective_n_jobs(n_jobs)
            self._pool = pool_of(self._given) if self._n_jobs > 1 else None
            self.reset_batch_stats()
            return self._n_jobs

        def compute_batch_size(self) -> int:
            """Return the size of the next batch, by joblib's rule, but without its limit of doubling it.

            The first batches have one call each, and a round trip to a node takes longer than one to a process.
            """
            before, seconds = self._effective_batch_size, self._smoothed_batch_duration
            size: int = super().compute_batch_size()
            if size > before and seconds:  # another thread may have set them just now
                ideal = 2 * int(before * self.MIN_IDEAL_BATCH_DURATION / seconds)
                self._effective_batch_size = size = min(_GROWTH * before, ideal)
            return size

        def start_call(self) -> None:
            if self._pool is not None:
                slots = _slots(self._pool)
                most = self._n_jobs if self._n_jobs < slots else None
                merges = self.parallel.batch_size == "auto"
                threads = self.inner_max_num_threads
                self._batches = BatchSender(self._pool, most, slots, threads, self._fail, merges=merges)

        def stop_call(self) -> None:
            if self._batches is not None:  # kept: a callback may be submitting a batch, which is dropped
                self._batches.end()

        def terminate(self) -> None:
            self.stop_call()
            self.reset_batch_stats()

        def submit(self, func: Any, callback: Any = None) -> JoblibBatch:
            batches = self._batches
            if batches is None:
                raise RuntimeError("A batch was submitted after its call of joblib had ended.")
            func.items = [(_undecorated(fn), args, named) for fn, args, named in func.items]
            keep_known_warnings(func.items)
            batch = JoblibBatch(func, callback or (lambda _: None))
            batches.submit(batch)
            return batch

        def retrieve_result_callback(self, out: JoblibBatch) -> list[Any]:
            return out.results()

        def abort_everything(self, ensure_ready: bool = True) -> None:
            self.stop_call()
            if ensure_ready:
                self.start_call()

        def _fail(self, error: BaseException) -> None:
            """Register an error as joblib does with an `Exception` of the caller's generator."""
            failed = BatchCompletionCallBack(0, 0, self.parallel)
            self.parallel._register_new_job(failed)
            failed._register_outcome({"result": error, "status": TASK_ERROR})

        def get_nested_backend(self) -> tuple[Any, None]:
            """Return joblib's sequential backend: a slot runs one call at a time."""
            return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None

    return SkywardBackend


def _undecorated(fn: Any) -> Callable[..., Any]:
    """Return the function under `@sky.function`, whose calls would run nothing; any other as it is.

    Raises:
        UsageError: it has settings, which a batch of joblib cannot keep.
    """
    if not isinstance(fn, SkyFunction):
        return fn  # type: ignore[no-any-return]  # joblib's calls have no types
    if fn.timeout is not None or fn.needs or fn.retries.times:
        raise UsageError(
            f"joblib sends calls in batches, which cannot keep the timeout, the retries or the needs of `{fn.__name__}`"
            f": give joblib the function without them, or write `pool.map({fn.__name__}, items)`."
        )
    call = fn()
    return partial(call.fn, *call.args) if call.args else call.fn  # of a method, the argument is its object


def _slots(pool: Compute) -> int:
    """Return the number of slots of a pool at its maximum size."""
    return pool.executor()._max_workers


def pool_of(given: Compute | None) -> Compute:
    """Return the pool that calls are sent to: the given one, the one in scope, or the only open one.

    Raises:
        NoPoolError: there is none, or there are several.
    """
    if given is not None:
        return given
    scope = current_pool.get()
    if isinstance(scope, Compute):
        return scope
    found = [pool for pool in opened if pool.is_open]
    if len(found) == 1:
        return found[0]
    raise NoPoolError(f'{NO_POOL}, or name it: `joblib.parallel_config("skyward", pool=pool)`.')


def keep_known_warnings(items: Iterable[tuple[Any, Sequence[Any], Any]]) -> None:
    """Drop filters of warnings whose category a node may not have.

    Scikit-learn sends the filters of this process with each call, and one whose category is of a package that the node
    lacks would make the call fail. Calls that share a list still do, so it is pickled once for a batch.
    """
    kept: dict[int, list[Any]] = {}
    for wrapper, _, _ in items:
        filters = getattr(wrapper, "warning_filters", None)
        if not filters:
            continue
        if id(filters) not in kept:
            kept[id(filters)] = [each for each in filters if _is_known(each[2])] or [_ALL_WARNINGS]
        wrapper.warning_filters = kept[id(filters)]


def _is_known(category: object) -> bool:
    kinds = category if isinstance(category, tuple) else (category,)
    return all(getattr(kind, "__module__", "").partition(".")[0] in _ON_EVERY_NODE for kind in kinds)
