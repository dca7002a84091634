"""`pool.executor()`: a pool as an executor of `concurrent.futures`, for code that takes one."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, wait
from functools import partial
from types import TracebackType
from typing import Any

from skyward.control.act.tasks.future import TaskFuture, end_cancelled, take_result, when_done
from skyward.errors import OperatorError, PayloadError
from skyward.functions.decorator import PendingFunction, SkyFunction, function
from skyward.functions.signature import is_generator
from skyward.pool.map import calls_of_map, is_serial, note_items
from skyward.pool.series import SentMap
from skyward.values.validation import number, whole

__all__ = ["PoolExecutor"]

_INTERRUPTIBLE = 0.5
"""Maximum length of one wait in seconds: Python handles a signal that arrives just before a wait only after it."""


type _Started = Callable[[TaskFuture[Any]], None]


class PoolExecutor(Executor):
    """Executor whose calls run on the nodes of a pool, for code that takes a `concurrent.futures.Executor`.

    Its futures are those of `call > pool`: cancelling one stops its task, also one that runs already. Shutting it down
    leaves the pool open. A block that is left by an interrupt stops the tasks.

    Args:
        send: sends calls to the pool, and returns their futures.
        send_map: sends a call for each item, several in one task where they are short, and calls a function with each
            future before its task is sent; a task whose future is done by then is not.
        workers: returns the maximum number of calls that run at the same time.
        timeout: seconds that a call may run if its function has no timeout.

    Example:
        >>> with pool.executor() as executor:
        ...     futures = [executor.submit(pow, base, 2) for base in range(4)]
        ...     print(sum(future.result() for future in concurrent.futures.as_completed(futures)))
        14
    """

    def __init__(
        self,
        send: Callable[[Sequence[PendingFunction[Any]]], list[TaskFuture[Any]]],
        send_map: Callable[
            [SkyFunction[..., Any], Sequence[tuple[Any, ...]], Callable[[TaskFuture[Any]], None]], SentMap
        ],
        workers: Callable[[], int],
        timeout: float,
    ) -> None:
        self._send = send
        self._send_map = send_map
        self._workers = workers
        self._timeout = timeout
        self._lock = threading.Lock()
        self._unfinished: set[TaskFuture[Any]] = set()
        self._is_shut_down = self._cancels = False

    @property
    def _max_workers(self) -> int:
        """Maximum number of calls that run at the same time, under the name that Dask reads."""
        return self._workers()

    def submit[**P, T](self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> TaskFuture[T]:
        """Run a call on one node and return a future of its result.

        If the call cannot be pickled, the future has the error.

        Args:
            fn: a function; one that is decorated with `@sky.function` keeps its settings.

        Raises:
            OperatorError: `fn` is a generator function.
            PoolClosedError: the pool is not open.
            RuntimeError: the executor was shut down.

        Example:
            >>> pool.executor().submit(pow, 2, 8).result()
            256
        """
        call = _callable_on_nodes(fn)
        try:
            return self._start([call(*args, **kwargs)])[0]
        except PayloadError as error:
            failed: TaskFuture[T] = TaskFuture()
            failed.set_exception(error)
            return failed

    def map[T](
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Return an iterator over the results of `fn` with an element of each of the iterables, in their order.

        The iterables are read at once, and all calls sent; with `buffersize`, as results are taken. The first error
        stops the calls that are left, as does closing the iterator. If it is dropped unread, they run.

        Args:
            timeout: seconds from now until the last result; later, the iterator raises `TimeoutError`.
            chunksize: calls per task, which run one after the other. None for one, except that many short calls are
                sent several at a time if the function has no timeout and no retries, and `buffersize` is None.
            buffersize: maximum number of tasks whose results were not taken yet; None for no limit.

        Raises:
            OperatorError: `fn` is a generator function.
            PayloadError: a call cannot be pickled.
            PoolClosedError: the pool is not open.
            RuntimeError: the executor was shut down.
            SpecError: a number is not allowed.

        Example:
            >>> list(pool.executor().map(pow, range(4), [2, 2, 2, 2]))
            [0, 1, 4, 9]
        """
        number(timeout, "timeout", zero=True, optional=True)
        deadline = None if timeout is None else time.monotonic() + timeout
        if buffersize is not None:
            whole(buffersize, "buffersize", least=1)
        call = _callable_on_nodes(fn)
        items: Iterable[tuple[Any, ...]] = zip(*iterables, strict=False)
        if chunksize is None and buffersize is None:
            items = list(items)
            if is_serial(call, len(items), self._workers()):
                self._check_open()
                sent = self._send_map(call, items, self._track_unsent)
                return _Results(sent.results(deadline), sent.stop)
        chunksize = 1 if chunksize is None else chunksize
        given, noted = itertools.tee(items)
        calls = calls_of_map(call, given, chunksize, self._timeout)
        futures = deque(self._start(list(itertools.islice(calls, buffersize))))
        results = self._results(futures, calls, noted, chunksize, deadline, buffered=buffersize is not None)
        return _Results(results, partial(_cancel, futures))

    def _results(
        self,
        futures: deque[TaskFuture[Any]],
        calls: Iterator[PendingFunction[Any]],
        items: Iterator[tuple[Any, ...]],
        chunksize: int,
        deadline: float | None,
        *,
        buffered: bool,
    ) -> Generator[Any]:
        """Yield the results of `futures`, sending one of the calls that are left for each."""
        try:
            for first in itertools.count(0, chunksize):
                if buffered:
                    futures += self._start(list(itertools.islice(calls, 1)))
                if not futures:
                    return
                chunk = list(itertools.islice(items, chunksize))
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    # No reference to the future or the result is kept while the caller has it.
                    results = [_result_or_stop(futures.popleft(), left)]
                except Exception as error:
                    note_items(error, first, chunk)
                    raise
                if chunksize > 1:
                    results = results.pop()
                results.reverse()
                while results:
                    yield results.pop()
        finally:
            _cancel(futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls. The pool stays open. Idempotent.

        Args:
            wait: return once all calls have ended.
            cancel_futures: cancel the calls that have not begun to run.
        """
        with self._lock:
            self._is_shut_down = True
            self._cancels = self._cancels or cancel_futures
            unfinished = tuple(self._unfinished)
        if cancel_futures:
            for future in unfinished:
                if not future.running():
                    future.cancel()
        while wait and unfinished:  # calls of a map may be sent again
            _wait(unfinished)
            with self._lock:
                unfinished = tuple(self._unfinished)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Shut the executor down and wait; after an interrupt, stop the calls too."""
        if kind is not None and not issubclass(kind, Exception):
            with self._lock:
                self._is_shut_down = self._cancels = True
                unfinished = tuple(self._unfinished)
            _cancel(unfinished)
        self.shutdown()

    def _check_open(self) -> None:
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")

    def _start(self, calls: Sequence[PendingFunction[Any]]) -> list[TaskFuture[Any]]:
        self._check_open()
        futures = self._send(calls)  # without the lock: pickling runs code of the user
        for future in futures:
            self._track(future)
        with self._lock:
            is_unwanted = self._cancels  # it was shut down meanwhile
        if is_unwanted:
            _cancel(futures)
        return futures

    def _track(self, future: TaskFuture[Any]) -> None:
        with self._lock:
            self._unfinished.add(future)
        when_done(future, self._ended)

    def _track_unsent(self, future: TaskFuture[Any]) -> None:
        """Track a future of a map; it ends if the calls that have not begun were cancelled."""
        self._track(future)
        with self._lock:
            is_unwanted = self._cancels
        if is_unwanted:
            end_cancelled(future, "was cancelled before it started.", subject=future.name)

    def _ended(self, future: Any) -> None:
        with self._lock:
            self._unfinished.discard(future)


class _Results(Iterator[Any]):
    """Iterator over the results of a map. Closing it stops the calls that are left, as does dropping it half-read.

    A generator alone would not stop them before its first result. One that is dropped unread leaves them running, as
    in the standard library: its caller waits for them at the end of the executor's block.
    """

    def __init__(self, results: Generator[Any], stop: Callable[[], object]) -> None:
        self._results = results
        self._stop = stop

    def __next__(self) -> Any:
        return next(self._results)

    def close(self) -> None:
        """Stop the calls that are left. Idempotent."""
        self._results.close()
        self._stop()


def _cancel(futures: Iterable[TaskFuture[Any]]) -> None:
    for future in futures:
        future.cancel()


def _callable_on_nodes(fn: Callable[..., Any]) -> SkyFunction[..., Any]:
    """Return `fn` as a function whose calls can be sent.

    Raises:
        OperatorError: it is a generator function.
        SpecError: it is not callable.
    """
    call = fn if isinstance(fn, SkyFunction) else function(fn)
    if is_generator(call.fn):
        raise OperatorError(
            f"An executor returns one result per call, and `{call.__name__}` yields: stream it with "
            f"`{call.__name__}(...) >> pool`, or return a list."
        )
    return call


def _result_or_stop(future: TaskFuture[Any], within: float | None) -> Any:
    """Return the result of a call; stop the call if it does not end `within` seconds, or at an interrupt."""
    try:
        return take_result(future, within)
    finally:
        future.cancel()
        del future  # breaks the cycle with the traceback, as Future does


def _wait(futures: Iterable[TaskFuture[Any]]) -> None:
    left: Iterable[Any] = futures
    while left:
        _, left = wait(left, _INTERRUPTIBLE)
