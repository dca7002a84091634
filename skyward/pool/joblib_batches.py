"""Batches of joblib's calls on their way to a pool, and back."""

import operator
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from skyward.control.act.tasks.future import TaskFuture
from skyward.control.act.tasks.stopping import stop_all
from skyward.errors import TaskTimeoutError
from skyward.functions.decorator import PendingFunction
from skyward.plugins.nodes.joblib_batch import run_batch, run_calls
from skyward.pool.compute import Compute, send
from skyward.pool.map import PLAIN
from skyward.values import limits
from skyward.wire.kinds.stateless import survey
from skyward.wire.payloads.code import PreparedCode, prepare_code
from skyward.wire.payloads.modules import travelling_by_value

if TYPE_CHECKING:
    from skyward.control.act.tasks.run import Run

__all__ = ["BatchSender", "JoblibBatch"]

_RUNNERS = 16
"""Maximum number of functions of one call of `joblib.Parallel` that are kept in pickled form."""

_SHORT = 0.002
"""Maximum seconds of the calls of a short task, as estimated."""

_ROUND_TRIP = 0.02
"""Seconds after which short batches no longer wait for others to end."""


@dataclass(frozen=True, slots=True, eq=False)
class _Runner:
    """A function that runs calls on a node.

    Attributes:
        fn: the function.
        code: its pickle.
        parts: the objects that the called function referred to when it was pickled; None if calls can change them.
    """

    fn: Callable[..., list[Any]]
    code: PreparedCode
    parts: tuple[object, ...] | None = None


class JoblibBatch:
    """A batch of calls.

    Attributes:
        calls: joblib's calls: functions, each with its arguments.
        done: joblib's callback, called with this object when the batch has ended.
        called: the function of the first call.
        is_plain: True if all calls are of this function, with arguments that any pickler writes alike.
        runner: runs the calls on a node. For a plain batch it includes their function, as it was when the batch was
            submitted.
    """

    runner: _Runner

    def __init__(self, calls: Any, done: Callable[["JoblibBatch"], object]) -> None:
        self.calls = calls
        self.done = done
        self.called = called = calls.items[0][0]
        self.is_plain = all(
            fn is called and _are_plain(args) and _are_plain(named.values()) for fn, args, named in calls.items
        )
        self._task: _Task | None = None
        self._first = 0

    def sent(self, task: "_Task", first: int) -> None:
        """Set the task that runs the batch, and the position of its first result there."""
        self._task, self._first = task, first

    def results(self) -> list[Any]:
        """Return the results of the calls, which have ended, or raise what one of them raised."""
        assert self._task is not None, "the batch was not sent"
        try:
            results, expected = self._task.future.result(), self._task.calls
            if len(results) != expected:
                raise RuntimeError(f"A task of {expected} calls of joblib returned {len(results)} results.")
            return results[self._first : self._first + len(self.calls)]
        except TaskTimeoutError as error:
            error.add_note("Calls of joblib get more time with `sky.Compute(default_compute_timeout=...)`.")
            raise


def _are_plain(args: Iterable[object]) -> bool:
    return PLAIN.issuperset(map(type, args))


class _Task:
    """Batches that are one task.

    Attributes:
        is_short: True if they were expected to take little time.
        run: the task; None if it could not be sent.
        future: its result.
    """

    def __init__(self, batches: list[JoblibBatch], is_short: bool) -> None:
        self.batches = batches
        self.is_short = is_short
        self.run: Run[list[Any]] | None = None
        self.future: TaskFuture[list[Any]] = TaskFuture()

    @property
    def calls(self) -> int:
        """Number of calls."""
        return sum(len(batch.calls) for batch in self.batches)

    @property
    def seconds_per_call(self) -> float | None:
        """Mean run time of the calls; None if the task did not run to its end."""
        elapsed = None if self.run is None else self.run.elapsed
        return None if elapsed is None else elapsed / self.calls


_NOTHING = _Task([], is_short=False)


class BatchSender:
    """Sender of the batches of one call of `joblib.Parallel`.

    Callbacks of joblib read the caller's generator and pickle further batches, so they run on a thread of their own,
    in order, and never on the library's loop.

    A round trip takes longer than a batch of short calls. So only half of the slots get such batches at a time, and
    those that come meanwhile are sent as one task, at the latest when a round trip would be over.

    Args:
        pool: the pool that runs them.
        most: maximum number of tasks with the pool at a time; None if its slots are the limit.
        slots: number of slots of the pool.
        threads: maximum number of threads of BLAS and OpenMP in each call; None for their own default.
        fail: lets the call of `joblib.Parallel` fail with an error that a callback raised.
        merges: True if several batches may be one task.
    """

    def __init__(
        self,
        pool: Compute,
        most: int | None,
        slots: int,
        threads: int | None,
        fail: Callable[[BaseException], object],
        *,
        merges: bool,
    ) -> None:
        self._pool = pool
        self._most = most
        self._most_short = max(1, slots // 2)
        self._threads = threads
        self._fail = fail
        self._merges = merges
        self._runners: dict[int, _Runner] = {}
        self._whole: _Runner | None = None
        self._lock = threading.Lock()
        self._waiting: deque[JoblibBatch] = deque()
        self._sent: set[_Task] = set()
        self._seconds: float | None = None
        self._is_held = self._is_over = False
        self._ended: SimpleQueue[_Task | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._call_back, name="skyward-joblib", daemon=True)
        self._thread.start()

    def submit(self, batch: JoblibBatch) -> None:
        """Send a batch, now or once another one has ended. If it cannot be sent, it ends with the error.

        The function is pickled now, since the caller's generator may change what it refers to before its next call.
        """
        try:
            batch.runner = self._runner_of(batch)
        except Exception as error:
            task = _Task([batch], is_short=False)
            task.future.set_exception(error)
            batch.sent(task, 0)
            self._ended.put(task)
            return
        with self._lock:
            self._waiting.append(batch)
        self._send_waiting()
        if self._is_held and threading.current_thread() is not self._thread:
            self._ended.put(_NOTHING)  # so that it waits for a round trip only

    def end(self) -> None:
        """Stop what is left, and end the thread of the callbacks. Idempotent."""
        with self._lock:
            self._is_over = True
            self._waiting.clear()
            sent = tuple(self._sent)
        stop_all([task.future for task in sent])
        self._ended.put(None)

    def _send_waiting(self, *, hurry: bool = False) -> None:
        while (task := self._next(hurry=hurry)) is not None:
            self._send(task)

    def _next(self, *, hurry: bool) -> _Task | None:
        """Return the next task; None if nothing waits, or there are enough tasks."""
        with self._lock:
            self._is_held = False
            if not self._waiting or self._is_over or (self._most is not None and len(self._sent) >= self._most):
                return None
            first = self._waiting[0]
            calls = len(first.calls)
            is_short = self._merges and self._is_short(calls)
            self._is_held = is_short and sum(task.is_short for task in self._sent) >= self._most_short
            if self._is_held and not hurry:
                return None
            task = _Task([self._waiting.popleft()], is_short)
            while is_short and first.is_plain and self._waiting:
                batch = self._waiting[0]
                calls += len(batch.calls)
                if not (batch.runner is first.runner and self._is_short(calls)):
                    break
                task.batches.append(self._waiting.popleft())
            self._sent.add(task)
            return task

    def _is_short(self, calls: int) -> bool:
        return self._seconds is not None and calls * self._seconds < _SHORT

    def _runner_of(self, batch: JoblibBatch) -> _Runner:
        """Return the runner of a batch; of a plain one, with its function as it is now."""
        called = batch.called
        name = getattr(called, "__name__", type(called).__name__)
        if not batch.is_plain:
            self._whole = self._whole or _prepared(partial(run_batch, self._threads), name)
            return self._whole
        with travelling_by_value():
            parts = survey(called)
        known = self._runners.get(id(called))
        if known is not None and _are_same(known.parts, parts):
            return known
        made = _prepared(partial(run_calls, called, batch.calls._backend.nesting_level, self._threads), name, parts)
        if parts is not None and (known is not None or len(self._runners) < _RUNNERS):
            self._runners[id(called)] = made
        return made

    def _send(self, task: _Task) -> None:
        try:
            runner = task.batches[0].runner
            task.run = send(self._pool, self._call_of(task), {id(runner.fn): runner.code})
            task.future = task.run.future
        except Exception as error:
            task.future.set_exception(error)
        first = 0
        for batch in task.batches:
            batch.sent(task, first)
            first += len(batch.calls)
        task.future.add_done_callback(lambda _: self._ended.put(task))
        with self._lock:
            is_late = self._is_over
        if is_late:
            task.future.cancel()

    def _call_of(self, task: _Task) -> PendingFunction[list[Any]]:
        first = task.batches[0]
        argument: object = first.calls
        if first.is_plain:
            calls = [call for batch in task.batches for _, *call in batch.calls.items]
            argument = pickle.dumps(calls, protocol=5)
        limit = min(self._pool.options.default_compute_timeout * task.calls, limits.SECONDS)
        return PendingFunction(first.runner.fn, (argument,), timeout=limit)

    def _call_back(self) -> None:
        """Tell joblib of each batch that has ended, and send those that wait."""
        while True:
            hurry = False
            try:
                task = self._ended.get(timeout=_ROUND_TRIP if self._is_held else None)
            except Empty:
                task, hurry = _NOTHING, True
            if task is None:
                return
            try:
                self._task_ended(task, hurry=hurry)
            except BaseException as error:  # `sys.exit()` in the caller's generator, for example: joblib would hang
                if not self._is_over:
                    self._fail(error)

    def _task_ended(self, task: _Task, *, hurry: bool) -> None:
        with self._lock:
            self._sent.discard(task)
            self._seconds = task.seconds_per_call or self._seconds
        self._send_waiting(hurry=hurry)  # first: the callbacks may read a slow generator
        for batch in task.batches:
            batch.done(batch)


def _prepared(fn: partial[list[Any]], name: str, parts: tuple[object, ...] | None = None) -> _Runner:
    return _Runner(fn, replace(prepare_code(fn), name=name), parts)


def _are_same(before: tuple[object, ...] | None, now: tuple[object, ...] | None) -> bool:
    if before is None or now is None:
        return False
    return len(before) == len(now) and all(map(operator.is_, before, now))
