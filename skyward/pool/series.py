"""Calls of a map that are sent while they are pickled, several in one task where they are short.

The first calls are tasks of their own. As their run times arrive, so many of the next ones form a series, one task,
that it takes a few milliseconds. Calls that a series has not run within its limit, because some took longer than those
before, are sent again as tasks of their own.
"""

import pickle
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from skyward.control.act.pool_tasks import PoolTasks
from skyward.control.act.tasks.future import TaskFuture, end_cancelled, take_result, unpacked
from skyward.control.act.tasks.run import Run, follow
from skyward.control.act.tasks.settle import error_of
from skyward.control.act.tasks.stopping import stop_all
from skyward.control.act.tasks.task import Sink, Work
from skyward.control.observe.origin import current_origin
from skyward.errors import NotPicklableError
from skyward.functions.decorator import PendingFunction, SkyFunction
from skyward.kept.handles import Kept
from skyward.pool.future_arguments import may_hold_futures
from skyward.pool.map import PLAIN, SERIES_LIMIT, Series, note_items
from skyward.process import background
from skyward.wire.failures.failure import Failure
from skyward.wire.payloads.code import PreparedCode, prepare_code
from skyward.wire.payloads.outcomes import SeriesOutcomes
from skyward.wire.payloads.payload import Outgoing, Packed, encode_call, outgoing
from skyward.wire.protocol.messages import INLINE_LIMIT, Payload

__all__ = ["MapSender", "SentMap"]

_TARGET = 0.005
"""Seconds that a series should take."""

_MOST = 128
"""Maximum number of calls in a series."""

_MOST_BYTES = INLINE_LIMIT // 2
"""Maximum bytes of the arguments of a series, and of a call in one."""

_WAVES = (4, 64)
"""Number of tasks that are sent at once: at first, so that run times arrive soon, and at most."""

type _Pickled = tuple[bytes, ...]
"""Arguments of a call: the pickle, and its buffers."""


class _CallFuture(TaskFuture[Any]):
    """Future of a call.

    Args:
        ended: called with the result on the library's loop, before the future is done.
    """

    _is_lendable = False

    def __init__(self, ended: Callable[[Any], object]) -> None:
        super().__init__()
        self._ended = ended

    def set_result(self, result: Any) -> None:
        """End with a result."""
        self._ended(result)
        super().set_result(result)

    def _forget(self) -> None:
        self._ended = lambda _: None  # it refers to the task, and so back to this future
        super()._forget()


class _SeriesFuture(_CallFuture):
    """Future of the outcomes of a series, in which results of the user's stay packed.

    Attributes:
        kept: handles of kept values in the results, which have to live until the caller has these.
    """

    def __init__(self, ended: Callable[[SeriesOutcomes], object]) -> None:
        super().__init__(ended)
        self.kept: list[Kept[Any]] = []

    def set_result(self, result: Any) -> None:
        """End with the outcomes."""
        self.kept = result.kept
        super().set_result(result.decode())


@dataclass(slots=True, eq=False)
class _Part:
    """Consecutive calls that are one task.

    Attributes:
        first: position of the first call in the map.
        count: number of calls.
        future: the result; for a series, the outcomes of the calls that ran.
        rest: the calls of a series that did not run.
    """

    first: int
    count: int
    future: TaskFuture[Any]
    rest: "list[_Part]" = field(default_factory=list)

    def cancel(self) -> bool:
        """Stop the calls; False if they have ended."""
        stopped = [part.future.cancel() for part in (self, *self.rest)]
        return any(stopped)


class MapSender:
    """Sender of the calls of one map.

    Args:
        tasks: the tasks of the pool.
        call: the function, for which `is_serial` holds.
        work: returns a task for a call that must be one of its own.
        sink: receives the output.
        timeout: limit of each call in seconds.
        runs: the runs of the tasks are added to it before any is sent.
        started: called with each future before its task is sent. A task whose future is done by then is not sent.
        waits: see `Compute.start`.

    Attributes:
        is_stopped: True once no more calls are to be sent.
    """

    def __init__(
        self,
        tasks: PoolTasks,
        call: SkyFunction[..., Any],
        work: Callable[[PendingFunction[Any]], Work],
        sink: Sink,
        timeout: float,
        runs: list[Run[Any]],
        started: Callable[[TaskFuture[Any]], object],
        *,
        waits: bool,
    ) -> None:
        self._tasks = tasks
        self._call = call
        self._work = work
        self._sink = sink
        self._timeout = timeout
        self._runs = runs
        self._started = started
        self._waits = waits
        self._origin = current_origin.get()
        self._code: PreparedCode | None = None
        self._series_code: PreparedCode | None = None
        self._seconds: float | None = None
        self._unsent: list[Work] = []
        self._wave = _WAVES[0]
        self._are_alone = False  # True once a call was refused by a series
        self.is_stopped = False

    def send(self, items: Sequence[tuple[Any, ...]]) -> "SentMap":
        """Send a call for each item.

        Raises:
            PayloadError: a call cannot be sent. Others may have been.
        """
        parts: deque[_Part] = deque()
        try:
            self._send_all(items, parts)
        except BaseException:  # of an item that cannot be sent, or an interrupt
            self.is_stopped = True
            stop_all(parts)
            raise
        self._runs = []
        return SentMap(self, parts, items)

    def _send_all(self, items: Sequence[tuple[Any, ...]], parts: deque[_Part]) -> None:
        """Send a call for each item; add its tasks to `parts`."""
        series: list[_Pickled] = []
        nbytes = 0
        for position, item in enumerate(items):
            encoded = self._encoded(item)
            if isinstance(encoded, Outgoing):
                pickled = _pickled(encoded)
                if pickled is not None:
                    series.append(pickled)
                    nbytes += sum(map(len, pickled))
                    if len(series) < self._size() and nbytes < _MOST_BYTES:
                        continue
                    position += 1
            else:
                pickled = None
            if series:
                parts.append(self._part(position - len(series), series))
                series, nbytes = [], 0
            if pickled is None:
                parts.append(self._alone(position, encoded))
        if series:
            parts.append(self._part(len(items) - len(series), series))
        self._flush()

    def _encoded(self, item: tuple[Any, ...]) -> Outgoing | PendingFunction[Any]:
        """Return the encoded arguments; the call, if they hold futures."""
        pending = self._call(*item)
        args = pending.args
        if all(type(arg) in PLAIN for arg in args):
            return outgoing(pickle.dumps((args, {}), protocol=5), ())
        if any(map(may_hold_futures, args)):
            return pending
        try:
            return encode_call(args, {}, self._call.__name__, as_is=self._waits)
        except NotPicklableError:
            return pending  # a future deep inside, or the error that names the argument

    def _size(self) -> int:
        """Return the number of calls for the next task."""
        seconds = self._seconds
        return 1 if seconds is None or self._are_alone else max(1, min(_MOST, int(_TARGET / seconds)))

    def _part(self, first: int, calls: Sequence[_Pickled]) -> _Part:
        """Send calls as one task."""
        if len(calls) == 1:
            return self._alone(first, _unpickled(calls[0]))
        if self._series_code is None:
            self._series_code = prepare_code(Series(self._call.fn, self._call.__name__), as_is=self._waits)
            self._code_alone()  # the library's loop, which may need it, must not pickle
        left = list(calls)
        future = _SeriesFuture(lambda outcomes: self._series_ended(part, left, work, outcomes))
        call = outgoing(pickle.dumps(((calls,), {}), protocol=5), ())
        work = self._made(self._series_code, call, future, self._timeout + SERIES_LIMIT)
        part = _Part(first, len(calls), future)
        self._add(work)
        return part

    def _alone(self, first: int, call: Outgoing | PendingFunction[Any]) -> _Part:
        """Send a call as a task of its own."""
        work = self._work_alone(call) if isinstance(call, Outgoing) else self._work(call)
        self._add(work)
        return _Part(first, 1, work.future)

    def _work_alone(self, call: Outgoing) -> Work:
        future = _CallFuture(lambda _: self._took(work.seconds, 1))
        work = self._made(self._code_alone(), call, future, self._timeout)
        return work

    def _code_alone(self) -> PreparedCode:
        if self._code is None:
            self._code = prepare_code(self._call.fn, as_is=self._waits)
        return self._code

    def _made(self, code: PreparedCode, call: Outgoing, future: TaskFuture[Any], timeout: float) -> Work:
        future.name = f"{code.name}()"
        needs = self._call.needs
        return Work(code, call, future, self._sink, timeout, needs=needs, origin=self._origin, as_is=self._waits)

    def _add(self, work: Work) -> None:
        self._runs.append(self._follow(work))
        self._unsent.append(work)
        if len(self._unsent) >= self._wave:
            self._wave = min(2 * self._wave, _WAVES[1])
            self._flush()

    def _flush(self) -> None:
        works, self._unsent = self._unsent, []
        self._submit(works)

    def _follow(self, work: Work) -> Run[Any]:
        self._started(work.future)
        return follow(self._tasks, work)

    def _submit(self, works: Sequence[Work]) -> None:
        background.call_soon(self._tasks.submit, [work for work in works if not work.future.done()])

    # On the library's loop.

    def _took(self, seconds: float | None, count: int) -> None:
        """Update the estimate of the seconds of a call."""
        if seconds and count:
            each = seconds / count
            self._seconds = each if self._seconds is None else (self._seconds + each) / 2

    def _series_ended(self, part: _Part, calls: list[_Pickled], work: Work, outcomes: SeriesOutcomes) -> None:
        self._took(work.seconds, len(outcomes))
        self._are_alone = self._are_alone or not len(outcomes)
        left = calls[len(outcomes) :]
        calls.clear()
        if not left or self.is_stopped:
            return
        works = [self._work_alone(_unpickled(call)) for call in left]
        first = part.first + len(outcomes)
        for each in works:
            self._follow(each)
        part.rest = [_Part(position, 1, each.future) for position, each in enumerate(works, first)]
        if self.is_stopped:  # whoever stops the map may have missed them
            for each in works:
                end_cancelled(each.future, "The map was stopped.")
        self._submit(works)


def _pickled(call: Outgoing) -> _Pickled | None:
    """Return the parts of a call; None if it must be a task of its own, because it is large or has kept values."""
    payload = call.payload
    if call.blobs or call.kept or not isinstance(payload.data, bytes):
        return None
    parts = (payload.data, *(part for part in payload.buffers if isinstance(part, bytes)))
    return parts if sum(map(len, parts)) < _MOST_BYTES else None


def _unpickled(call: _Pickled) -> Outgoing:
    data, *buffers = call
    return Outgoing(Payload(data, tuple(buffers)))


class SentMap:
    """A map whose calls were sent.

    Attributes:
        futures: futures of its tasks.
    """

    def __init__(self, sender: MapSender, parts: deque[_Part], items: Sequence[tuple[Any, ...]]) -> None:
        self._sender = sender
        self._parts = parts
        self._items = items

    @property
    def futures(self) -> list[TaskFuture[Any]]:
        """Futures of the tasks that were sent so far."""
        return [part.future for part in self._parts]

    def results(self, deadline: float | None = None) -> Generator[Any]:
        """Yield the results in the order of the items. The first error stops the calls, as does closing the iterator.

        Args:
            deadline: time of the monotonic clock after which it raises `TimeoutError`.
        """
        position = 0
        try:
            while self._parts:
                is_series, outcomes, kept = self._next(deadline)
                while outcomes:
                    # No reference to the result is kept while the caller has it.
                    yield self._value(position, outcomes) if is_series else outcomes.pop()
                    position += 1
                kept.clear()
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop what is left. Idempotent. It keeps no reference to a future, whose error refers to the caller."""
        self._sender.is_stopped = True
        parts, self._parts = self._parts, deque()
        if parts:
            stop_all(parts)

    def _next(self, deadline: float | None) -> tuple[bool, list[Any], list[Kept[Any]]]:
        """Return whether the next task is a series, its outcomes, last first, and the handles of kept values in them.

        Calls that it did not run come next.

        Raises:
            TimeoutError: the deadline has passed.
        """
        part = self._parts.popleft()
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            found = take_result(part.future, left)
        except BaseException as error:
            if isinstance(error, Exception) and part.future.done():
                note_items(error, part.first, self._items[part.first : part.first + part.count])
            self._sender.is_stopped = True
            part.cancel()
            del part  # breaks the cycle with the traceback
            raise
        if not isinstance(part.future, _SeriesFuture):
            return False, [found], []
        self._parts.extendleft(reversed(part.rest))
        return True, list(found)[::-1], part.future.kept

    def _value(self, position: int, outcomes: list[object]) -> Any:
        """Return the result that the last of `outcomes` is; raise what its call raised."""
        outcome = outcomes.pop()
        try:
            if isinstance(outcome, Failure):
                raise error_of(outcome)
            return unpacked(outcome) if isinstance(outcome, Packed) else outcome
        except Exception as error:
            note_items(error, position, [self._items[position]])
            raise
