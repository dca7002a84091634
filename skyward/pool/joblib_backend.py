"""The backend "skyward" of joblib: batches of calls run as tasks of a pool.

The subclass of joblib's classes is made at the first use of the backend, so this module loads without joblib.
"""

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from skyward.control.act.tasks.future import TaskFuture
from skyward.control.act.tasks.stopping import stop_all
from skyward.errors import NO_POOL, NoPoolError, TaskTimeoutError, UsageError
from skyward.functions.decorator import PendingFunction, SkyFunction, function
from skyward.functions.target import current_pool
from skyward.plugins.nodes.joblib_batch import BatchRunner
from skyward.pool.compute import Compute
from skyward.pool.hooks import opened

__all__ = ["backend_class"]

_ON_EVERY_NODE = frozenset({"builtins", "joblib", "numpy", "scipy", "sklearn"})
"""Packages whose categories of warnings a node knows."""

_ALL_WARNINGS = ("default", None, Warning, None, 0)
"""Filter that changes nothing: scikit-learn warns of calls without any."""


class _Batch:
    """A batch on its way to the pool, as joblib sees it.

    Attributes:
        calls: joblib's calls: functions, each with its arguments.
        done: joblib's callback, called with this object when the batch has ended.
        future: the result; None until the batch is sent.
    """

    def __init__(self, calls: Any, done: Callable[["_Batch"], object]) -> None:
        self.calls = calls
        self.done = done
        self.future: TaskFuture[list[Any]] | None = None


class _Batches:
    """The batches of one call of `joblib.Parallel`.

    Callbacks of joblib read the caller's generator and pickle further batches, so they run on a thread of their own,
    in order, and never on the library's loop.

    Args:
        pool: the pool that runs them.
        most: maximum number of batches with the pool at a time; None if its slots are the limit.
        threads: maximum number of threads of BLAS and OpenMP in each call; None for their own default.
    """

    def __init__(self, pool: Compute, most: int | None, threads: int | None) -> None:
        self._pool = pool
        self._most = most
        self._threads = threads
        self._run: SkyFunction[..., list[Any]] | None = None
        self._lock = threading.Lock()
        self._waiting: deque[_Batch] = deque()
        self._sent: set[_Batch] = set()
        self._is_over = False
        self._callbacks = ThreadPoolExecutor(1, thread_name_prefix="skyward-joblib")

    def submit(self, batch: _Batch) -> None:
        """Send a batch, now or once another one has ended. If it cannot be sent, it ends with the error.

        Joblib would wait forever for a batch whose submission raises on the thread of the callbacks.
        """
        with self._lock:
            if self._most is not None and len(self._sent) >= self._most:
                self._waiting.append(batch)
                return
            self._sent.add(batch)
        self._send(batch)

    def _send(self, batch: _Batch) -> None:
        try:
            batch.future = self._pool.submit(self._call_of(batch))
        except Exception as error:
            batch.future = TaskFuture()
            batch.future.set_exception(error)
        batch.future.add_done_callback(lambda _: self._call_back(batch))
        with self._lock:
            is_late = self._is_over
        if is_late:
            batch.future.cancel()

    def _call_of(self, batch: _Batch) -> PendingFunction[list[Any]]:
        if self._run is None:  # one object for all tasks, which is pickled once
            called = batch.calls.items[0][0]
            name = getattr(called, "__name__", type(called).__name__)
            self._run = function(BatchRunner(name, self._threads))
        limit = self._pool.options.default_compute_timeout * len(batch.calls)
        return self._run(batch.calls).with_timeout(limit)

    def _call_back(self, batch: _Batch) -> None:
        with suppress(RuntimeError):  # the call of joblib is over: the batch was aborted
            self._callbacks.submit(self._ended, batch)

    def _ended(self, batch: _Batch) -> None:
        with self._lock:
            self._sent.discard(batch)
            following = self._waiting.popleft() if self._waiting and not self._is_over else None
            if following is not None:
                self._sent.add(following)
        if following is not None:
            self._send(following)
        batch.done(batch)

    def end(self) -> None:
        """Stop what is left, and end the thread of the callbacks. Idempotent."""
        with self._lock:
            self._is_over = True
            self._waiting.clear()
            sent = tuple(self._sent)
        stop_all([batch.future for batch in sent if batch.future is not None])
        self._callbacks.shutdown(wait=False)


@functools.cache
def backend_class() -> type[Any]:
    """Return the class of the backend, a subclass of joblib's.

    Raises:
        UsageError: joblib is too old.
    """
    import joblib
    from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

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
            self._batches: _Batches | None = None
            self._n_jobs = 1
            self._pool: Compute | None = None
            self.parallel: Any = None

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

        def start_call(self) -> None:
            if self._pool is not None:
                most = self._n_jobs if self._n_jobs < _slots(self._pool) else None
                self._batches = _Batches(self._pool, most, self.inner_max_num_threads)

        def stop_call(self) -> None:
            if self._batches is not None:
                self._batches.end()
                self._batches = None

        def terminate(self) -> None:
            self.stop_call()
            self.reset_batch_stats()

        def submit(self, func: Any, callback: Any = None) -> _Batch:
            batches = self._batches
            if batches is None:
                raise RuntimeError("A batch was submitted after its call of joblib had ended.")
            keep_known_warnings(func.items)
            batch = _Batch(func, callback or (lambda _: None))
            batches.submit(batch)
            return batch

        def retrieve_result_callback(self, out: _Batch) -> Any:
            if out.future is None:
                raise RuntimeError("A batch has ended that was not sent.")
            try:
                return out.future.result()
            except TaskTimeoutError as error:
                error.add_note("Calls of joblib get more time with `sky.Compute(default_compute_timeout=...)`.")
                raise

        def abort_everything(self, ensure_ready: bool = True) -> None:
            self.stop_call()
            if ensure_ready:
                self.start_call()

        def get_nested_backend(self) -> tuple[Any, None]:
            """Return joblib's sequential backend: a slot runs one call at a time."""
            return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None

    return SkywardBackend


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
