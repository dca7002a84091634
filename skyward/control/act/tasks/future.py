"""Future of a task's result, and what the library does with one.

Users see the methods of `TaskFuture`; the functions of this module are for the other rooms of the library.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import CancelledError, Future, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from skyward.control.act.tasks import stopping
from skyward.control.act.tasks.stopping import stop_all
from skyward.errors import RemoteError, TaskCancelledError, UsageError
from skyward.formatting import WORK_ENDED
from skyward.kept.handles import Kept
from skyward.process import background
from skyward.process.blocked_threads import Blocked
from skyward.process.forked import refuse_forked
from skyward.process.thread_events import ThreadEvent
from skyward.wire.payloads.payload import Packed, decode
from skyward.wire.protocol.messages import Blob, Payload

__all__ = [
    "EncodedResult",
    "TaskFuture",
    "Undecoded",
    "dependencies_of",
    "depends_on",
    "end_cancelled",
    "handles_in",
    "is_lent",
    "is_only_lent",
    "lend",
    "members_of",
    "on_cancel",
    "release_handles",
    "runs_while",
    "set_members",
    "take_result",
    "unpacked",
    "wait_done",
    "wait_result",
    "when_done",
]


@runtime_checkable
class Undecoded(Protocol):
    """An encoded value on the client: the thread that requests it decodes it."""

    def decode(self) -> Any:
        """Decode and return the value."""


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A result that a node sent, with its blobs, and the handles of kept values inside it."""

    payload: Payload
    blobs: Mapping[bytes, memoryview] = field(default_factory=dict)
    kept: "list[Kept[Any]]" = field(default_factory=list)

    def decode(self) -> Any:
        """Return the value. It shares the memory of the blobs."""

        def fetch(blob: Blob) -> memoryview:
            return self.blobs[blob.key]

        return decode(self.payload, fetch)

    def decode_copy(self) -> Any:
        """Return the value, in memory of its own."""

        def fetch(blob: Blob) -> memoryview:
            return memoryview(bytearray(self.blobs[blob.key]))

        return decode(self.payload, fetch)


@runtime_checkable
class PendingResult(Protocol):
    """A result that is not on the client, and is fetched on request."""

    def fetch_result(self) -> "Future[EncodedResult]":
        """Fetch the result; return a future of it."""


_logger = logging.getLogger(__name__)

_INTERRUPTIBLE = 0.5
"""Maximum length of one wait in seconds: Python handles a signal that arrives just before a wait only after it."""


def handles_in(payload: Payload) -> "list[Kept[Any]]":
    """Return the handles of kept values inside a result."""
    return [Kept.of(ref.keys, ref.name) for ref in payload.kept]


class TaskFuture[T](Future[T]):
    """Future of a task's result: a `concurrent.futures.Future` for threads, which coroutines can `await`.

    Cancelling it stops the work on the node, and so does cancelling a coroutine that awaits it; `asyncio.shield`
    prevents that.

    Attributes:
        name: name of its task in messages: `train()`.
        unsaved: for a cell, the files of volumes that it has written and that could not be uploaded, as a sentence.

    Example:
        with sky.Compute() as pool:
            future = train(0.1) > pool
            print(future.result())
    """

    _is_lendable = True
    """False if other tasks take a value that is not the encoded result."""

    def __init__(self) -> None:
        super().__init__()
        self._decoding = threading.Lock()
        self._decoded = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._stop: Callable[[], None] | None = None
        self._is_running: Callable[[], bool] | None = None
        self._cancelled_why = self._cancelled_subject = ""
        self._is_ending = False
        self._lent = self._asked = False
        self.name = "a task"
        self.unsaved = ""
        self._members: tuple[TaskFuture[Any], ...] | None = None
        self._parts: Callable[[], Iterable[Future[Any]]] = tuple

    def running(self) -> bool:
        """Return whether a node has the task, or any of the tasks of a group or a broadcast."""
        is_running = self._is_running
        return not self.done() and is_running is not None and is_running()

    def set_result(self, result: T) -> None:
        """End with a result."""
        self._forget()
        super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        """End with an error."""
        self._forget()
        self._members = None
        super().set_exception(exception)

    def _forget(self) -> None:
        """Drop references back to this future: the cycle would keep an error, and its traceback, alive."""
        self._is_ending = True  # first: another thread may be cancelling it
        self._stop, self._is_running, self._parts = None, None, tuple

    def result(self, timeout: float | None = None) -> T:
        """Return the result, or raise what the task raised, or `TaskCancelledError`. An interrupt stops the work."""
        __tracebackhide__ = True
        try:
            return wait_result(self, timeout)
        except KeyboardInterrupt:
            if outcome := self._interrupted():
                raise KeyboardInterrupt(outcome) from None
            raise
        finally:
            self = None  # type: ignore[assignment]  # as below

    def _cancelled_error(self) -> TaskCancelledError:
        return TaskCancelledError(self._cancelled_why, subject=self._cancelled_subject)

    def _wait(self, deadline: float | None) -> None:
        """Wait until the work has ended.

        Raises:
            TimeoutError: the deadline has passed.
        """
        refuse_forked()
        self._asked = True
        if not self.done():
            with nullcontext() if deadline is not None else Blocked(self):
                _wait_in_pieces(self, deadline)

    def _interrupted(self) -> str:
        """Stop the work after an interrupted wait. Return the outcome as text; empty if it had ended before."""
        if self.done() or self._stop is None:
            return ""
        with suppress(KeyboardInterrupt):
            stop_all([self])
            wait([self], stopping.GRACE)
        if not self.done():
            return f"{self.name} was asked to stop, and has not confirmed it yet"
        return str(self._cancelled_error()).rstrip(".") if self.cancelled() else WORK_ENDED

    def _give(self, arrived: object, *, own: bool = False) -> T:
        """Return the value of a result, or raise the error of decoding it. `own`: no other task takes the result."""
        __tracebackhide__ = True
        self._decode(arrived, own=own)
        if self._error is not None:
            try:
                raise self._error
            finally:
                self = None  # type: ignore[assignment]  # breaks the cycle with the traceback, as Future does
        value: T = self._value
        return value

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the result in a coroutine; raises as `result` does. Cancelling the coroutine stops the work."""
        refuse_forked()
        self._asked = True
        if not self.done():
            notifier = ThreadEvent()
            ended = notifier.next_notification()
            when_done(self, notifier.notify)
            try:
                yield from ended
            except asyncio.CancelledError:
                self.cancel()
                raise
        arrived = None if self.cancelled() or super().exception(0) is not None else super().result(0)
        if (pending := self._pending_result(arrived)) is not None:
            return self._give((yield from asyncio.wrap_future(pending.fetch_result())), own=True)
        return self.result(0)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Add a callback, called with this future when it is done. Its exceptions on the library's loop are logged."""
        self._asked = True

        def call(ended: Future[T]) -> None:
            try:
                fn(ended)
            except BaseException:
                if not background.on_loop():
                    raise
                # SystemExit or KeyboardInterrupt would end the loop, and with it all pools.
                _logger.exception("a callback of the future of %s raised", self.name)

        super().add_done_callback(call)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the task raised; None if it returned. An interrupt stops the work, as in `result`.

        Raises:
            TaskCancelledError: the task was cancelled.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            self._wait(deadline)
        except KeyboardInterrupt:
            if outcome := self._interrupted():
                raise KeyboardInterrupt(outcome) from None
            raise
        if self.cancelled():
            raise self._cancelled_error()
        error = super().exception(0)
        if error is not None:
            return error
        arrived: object = super().result(0)
        if (pending := self._pending_result(arrived)) is not None:
            coming = pending.fetch_result()
            try:
                self._decode(_bring(coming, deadline), own=True)
            except Exception as lost:
                if not coming.done() or coming.cancelled():
                    raise  # the timeout expired
                return lost
        self._decode(arrived)
        return self._error

    def _pending_result(self, arrived: object) -> PendingResult | None:
        """Return a result that is still to be fetched; None for any other."""
        if isinstance(arrived, EncodedResult) or self._decoded:
            return None
        return arrived if isinstance(arrived, PendingResult) else None

    def _decode(self, arrived: object, *, own: bool = False) -> None:
        """Decode once, on the first thread that requests the value; a failure is stored as `RemoteError`."""
        with self._decoding:
            if self._decoded:
                return
            try:
                if self._lent and not own and isinstance(arrived, EncodedResult):
                    self._value = arrived.decode_copy()
                else:
                    self._value = arrived.decode() if isinstance(arrived, Undecoded) else arrived
            except Exception as error:
                self._error = _undecodable(error)
            self._decoded = True

    def cancel(self) -> bool:
        """Stop the task, on its node too. False if it has ended; the future ends once the node has stopped it."""
        if self.done():
            return self.cancelled()
        if (stop := self._stop) is None:
            return not self._is_ending and super().cancel()
        stop()
        return True


def _undecodable(error: Exception) -> RemoteError:
    failed = RemoteError(
        f"The task returned, but its result cannot be unpickled here: {type(error).__name__}: {error}. "
        "Install the packages it needs on this machine too, or return plain data.",
        type(error).__name__,
    )
    failed.__cause__ = error
    return failed


def unpacked(packed: Packed) -> Any:
    """Return a result that was packed on its own.

    Raises:
        RemoteError: it cannot be unpickled.
    """
    try:
        return packed.unpack()
    except Exception as error:
        raise _undecodable(error) from error


def on_cancel(future: TaskFuture[Any], stop: Callable[[], None]) -> None:
    """Set the function that stops the work, called on cancel."""
    future._stop = stop


def runs_while(future: TaskFuture[Any], is_running: Callable[[], bool]) -> None:
    """Set the function that returns whether a node has the work, called until the work has ended."""
    future._is_running = is_running


def depends_on(future: TaskFuture[Any], parts: Callable[[], Iterable[Future[Any]]]) -> None:
    """Set the function that returns the futures that this one depends on: its members, or the inputs of its task."""
    future._parts = parts


def dependencies_of(future: TaskFuture[Any]) -> Iterable[Future[Any]]:
    """Return the futures that this one depends on."""
    return future._parts()


def set_members(future: TaskFuture[Any], members: "tuple[TaskFuture[Any], ...]") -> None:
    """Set the futures of the calls of a group."""
    future._members = members


def members_of(future: TaskFuture[Any]) -> "tuple[TaskFuture[Any], ...] | None":
    """Return the futures of the calls of a group that has not failed; None for any other future."""
    return future._members


def end_cancelled(future: TaskFuture[Any], why: str, subject: str = "") -> None:
    """End as cancelled, once the work has stopped; `why` and `subject` as for `TaskCancelledError`."""
    future._cancelled_why, future._cancelled_subject = why, subject
    future._forget()
    future._members = None
    if Future.cancel(future):
        future.set_running_or_notify_cancel()


def wait_result[T](future: TaskFuture[T], timeout: float | None = None) -> T:
    """Return or raise as `TaskFuture.result` does, but an interrupt does not stop the work."""
    __tracebackhide__ = True
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        future._wait(deadline)
        arrived: object = Future.result(future, 0)
        if (pending := future._pending_result(arrived)) is not None:
            return future._give(_bring(pending.fetch_result(), deadline), own=True)
    except CancelledError as error:
        if isinstance(error, TaskCancelledError):
            raise
        raise future._cancelled_error() from None
    else:
        return future._give(arrived)
    finally:
        del future  # breaks the cycle with the traceback, as Future does


def take_result[T](future: TaskFuture[T], timeout: float | None = None) -> T:
    """Return or raise as `wait_result` does, and drop the future's own reference to the value.

    Others may still have the future then, such as the library's loop, which has just ended it.
    """
    try:
        return wait_result(future, timeout)
    finally:
        future._value = None
        del future  # breaks the cycle with the traceback, as Future does


async def wait_done(future: TaskFuture[Any]) -> None:
    """Wait in a coroutine until the work has ended, without requesting the result."""
    notifier = ThreadEvent()
    ended = notifier.next_notification()
    when_done(future, notifier.notify)
    await ended


def when_done[T](future: Future[T], callback: Callable[[Future[T]], object]) -> None:
    """Add a callback, called with this future when it is done, without requesting the result of a task."""
    if isinstance(future, TaskFuture):
        Future.add_done_callback(future, callback)
    else:
        future.add_done_callback(callback)


def is_lent(future: TaskFuture[Any]) -> bool:
    """Return whether other tasks take the result."""
    return future._lent


def is_only_lent(future: TaskFuture[Any]) -> bool:
    """Return whether other tasks take the result, and the client has not requested it."""
    return future._lent and not future._asked


def lend(future: TaskFuture[Any]) -> bool:
    """Preserve the encoded result for other tasks, whatever happens to its decoded value.

    Return False if the value was handed out before, so that it may have been changed, or is not the encoded result.
    """
    if not future._is_lendable:
        return False
    with future._decoding:
        future._lent = future._lent or not future._decoded or future._error is not None
        return future._lent


def release_handles(future: TaskFuture[Any]) -> None:
    """Release the handles of kept values in a result that the caller has extracted."""
    if future.done() and not future.cancelled() and Future.exception(future, 0) is None:
        arrived: object = Future.result(future, 0)
        if isinstance(arrived, EncodedResult):
            arrived.kept.clear()


def _wait_in_pieces(future: Future[Any], deadline: float | None) -> None:
    """Wait until a future is done.

    Raises:
        TimeoutError: `deadline` has passed.
    """
    while not future.done():
        left = _INTERRUPTIBLE if deadline is None else min(_INTERRUPTIBLE, deadline - time.monotonic())
        with suppress(TimeoutError, CancelledError):
            Future.exception(future, max(0.0, left))
        if deadline is not None and time.monotonic() >= deadline and not future.done():
            raise TimeoutError


def _bring(coming: Future[EncodedResult], deadline: float | None) -> EncodedResult:
    """Wait for a result that is being fetched, and return it."""
    if background.on_loop():
        coming.cancel()
        raise UsageError(
            "A result that is still on its node cannot be taken in a callback of a future: take it on another thread."
        )
    try:
        _wait_in_pieces(coming, deadline)
        return coming.result(0)
    except BaseException:
        coming.cancel()
        raise
