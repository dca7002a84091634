"""A task on the client: its code and arguments, its future, its output sink and its streams."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import CancelledError, Future, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from skyward.control.act.tasks import stopping
from skyward.control.act.tasks.inputs import TaskInputs
from skyward.control.act.tasks.stopping import stop_all
from skyward.control.act.tasks.streams import Feeder, StreamBuffer
from skyward.control.observe.costs import FREE, SlotPrice
from skyward.control.observe.origin import Origin
from skyward.errors import RemoteError, TaskCancelledError, UsageError
from skyward.formatting import WORK_ENDED, first_line
from skyward.kept.handles import Kept
from skyward.process import background
from skyward.process.blocked_threads import Blocked
from skyward.process.forked import refuse_forked
from skyward.process.thread_events import ThreadEvent
from skyward.specs.placement import ALL, Several
from skyward.specs.retries import NO_RETRIES, Retries
from skyward.values.needs import NOTHING, Needs
from skyward.wire.failures.failure import message_of
from skyward.wire.payloads.code import PreparedCode
from skyward.wire.payloads.payload import Outgoing, decode
from skyward.wire.protocol.messages import Blob, Payload

if TYPE_CHECKING:
    from skyward.control.act.tasks.remote_blobs import RemoteBlob
    from skyward.control.act.tasks.remote_results import RemoteResult  # circular: a result knows the task that made it

__all__ = ["BroadcastWork", "EncodedResult", "Sink", "TaskFuture", "Undecoded", "Work", "handles_in"]


class Sink(Protocol):
    """Receiver of a task's output. Called on the library's loop, in order; must not block."""

    def output(self, node: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Handle text that a node wrote to a standard stream."""

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Handle rich output of a node."""

    def task_ended(self, node: int) -> None:
        """Handle the end of a task on a node: an unfinished line stays unfinished."""


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
        parts: returns the futures that this one depends on: its members, or the inputs of its task.
        members: for a group that has not failed, the futures of its calls.

    Example:
        with sky.Compute() as pool:
            future = train(0.1) > pool
            print(future.result())
    """

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
        self.members: tuple[TaskFuture[Any], ...] | None = None
        self.parts: Callable[[], Iterable[Future[Any]]] = tuple

    def stop_with(self, stop: Callable[[], None]) -> None:
        """Set the function that stops the work, called on cancel."""
        self._stop = stop

    def runs_while(self, is_running: Callable[[], bool]) -> None:
        """Set the function that returns whether a node has the work, called until the work has ended."""
        self._is_running = is_running

    def running(self) -> bool:
        """Return whether a node has the task, or any of the tasks of a group or a broadcast."""
        is_running = self._is_running
        return not self.done() and is_running is not None and is_running()

    def end_cancelled(self, why: str, subject: str = "") -> None:
        """End as cancelled, once the work has stopped; `why` and `subject` as for `TaskCancelledError`."""
        self._cancelled_why, self._cancelled_subject = why, subject
        self._forget()
        self.members = None
        if super().cancel():
            self.set_running_or_notify_cancel()

    def set_result(self, result: T) -> None:
        """End with a result."""
        self._forget()
        super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        """End with an error."""
        self._forget()
        self.members = None
        super().set_exception(exception)

    def _forget(self) -> None:
        """Drop references back to this future: the cycle would keep an error, and its traceback, alive."""
        self._is_ending = True  # first: another thread may be cancelling it
        self._stop, self._is_running, self.parts = None, None, tuple

    def result(self, timeout: float | None = None) -> T:
        """Return the result, or raise what the task raised, or `TaskCancelledError`. An interrupt stops the work."""
        __tracebackhide__ = True
        try:
            return self.take(timeout)
        except KeyboardInterrupt:
            if outcome := self._interrupted():
                raise KeyboardInterrupt(outcome) from None
            raise
        finally:
            self = None  # type: ignore[assignment]  # as below

    def take(self, timeout: float | None = None) -> T:
        """Return or raise as `result` does, but an interrupt does not stop the work."""
        __tracebackhide__ = True
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            self._wait(deadline)
            arrived: object = super().result(0)
            if (pending := self._pending_result(arrived)) is not None:
                return self._give(_bring(pending.fetch_result(), deadline), own=True)
        except CancelledError as error:
            if isinstance(error, TaskCancelledError):
                raise
            raise self._cancelled_error() from None
        except BaseException:
            self = None  # type: ignore[assignment]  # as below
            raise
        return self._give(arrived)

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
            self.when_over(notifier.notify)
            try:
                yield from ended
            except asyncio.CancelledError:
                self.cancel()
                raise
        arrived = None if self.cancelled() or super().exception(0) is not None else super().result(0)
        if (pending := self._pending_result(arrived)) is not None:
            return self._give((yield from asyncio.wrap_future(pending.fetch_result())), own=True)
        return self.result(0)

    async def over(self) -> None:
        """Wait in a coroutine until the work has ended, without requesting the result."""
        notifier = ThreadEvent()
        ended = notifier.next_notification()
        self.when_over(notifier.notify)
        await ended

    def when_over(self, callback: Callable[[Future[T]], object]) -> None:
        """Add a callback, called with this future when it is done, without requesting the result."""
        super().add_done_callback(callback)

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

    @property
    def is_lent(self) -> bool:
        """True if other tasks take the result."""
        return self._lent

    @property
    def only_lent(self) -> bool:
        """True if other tasks take the result, and the client has not requested it."""
        return self._lent and not self._asked

    def lend(self) -> bool:
        """Preserve the encoded result for other tasks, whatever happens to its decoded value.

        Return False if the value was handed out before, so that it may have been changed.
        """
        with self._decoding:
            self._lent = self._lent or not self._decoded or self._error is not None
            return self._lent

    def release_kept(self) -> None:
        """Release the handles in a result that the caller has extracted."""
        if self.done() and not self.cancelled() and super().exception(0) is None:
            arrived = super().result(0)
            if isinstance(arrived, EncodedResult):
                arrived.kept.clear()

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
                self._error = RemoteError(
                    f"The task returned, but its result cannot be unpickled here: {type(error).__name__}: {error}. "
                    "Install the packages it needs on this machine too, or return plain data.",
                    type(error).__name__,
                )
                self._error.__cause__ = error
            self._decoded = True

    def cancel(self) -> bool:
        """Stop the task, on its node too. False if it has ended; the future ends once the node has stopped it."""
        if self.done():
            return self.cancelled()
        if (stop := self._stop) is None:
            return not self._is_ending and super().cancel()
        stop()
        return True


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


@dataclass(slots=True, eq=False)
class Work:
    """A task of a pool.

    Attributes:
        code, call: function and arguments, ready to send.
        future: future of its result.
        sink: receiver of its output.
        timeout: maximum run time in seconds; None for no limit.
        stream: for a generator function, the buffer of its elements.
        feeders: its input streams.
        needs: resources and capabilities that it requires of its node.
        retries: policy of retries after an exception.
        retried: number of times it was requeued.
        retried_after: reason of the latest retry.
        task: its number in the pool.
        nodes: ranks of the nodes it was sent to, in order.
        seconds: run time, once it has ended.
        running: True while a node has it.
        origin: the cell that sent it.
        queued_at, sent_at, ended_at: monotonic times of its creation, its latest dispatch, and its end.
        slot_price: hardware and price of the node it was last sent to.
        yielded: number of elements of its stream that have arrived.
        error: type name of the exception that it raised, or that its result carries.
        reason: first line of the text of that exception.
        group_limit: timeout of its group in seconds, if that expired first.
        stuck: reason why it can never start, once that is certain.
        grace: seconds to end by itself when it is stopped; see `wire.protocol.messages.Submit`.
        is_leaving: True if it was stopped, and the state it left is being packed or transferred.
        bytes_in_transfer: bytes of its result that are being transferred.
        left: the state it left when it was stopped.
        inputs: futures that it waits for before it can be sent.
        broken: error that it ends with, because an input failed or could not be fetched.
        unwanted: reason of its cancellation, because an input was cancelled.
        restores: the lost result that it computes again.
        is_member: True for a member of a broadcast; members share their inputs.
        target: rank of the node that it is pinned to; None for any.
        as_is: True if its blobs are memory of the caller, not a copy.
    """

    code: PreparedCode
    call: Outgoing
    future: TaskFuture[Any]
    sink: Sink
    timeout: float | None = None
    stream: StreamBuffer | None = None
    feeders: tuple[Feeder, ...] = ()
    needs: Needs = NOTHING
    retries: Retries = NO_RETRIES
    retried: int = 0
    retried_after: str = ""
    task: int = 0
    nodes: list[int] = field(default_factory=list)
    seconds: float | None = None
    running: bool = False
    origin: Origin | None = None
    queued_at: float = field(default_factory=time.monotonic)
    sent_at: float | None = None
    ended_at: float | None = None
    slot_price: SlotPrice = FREE
    yielded: int = 0
    error: str = ""
    reason: str = ""
    group_limit: float | None = None
    stuck: str = ""
    grace: float = 0.0
    is_leaving: bool = False
    bytes_in_transfer: int = 0
    left: EncodedResult | None = None
    inputs: TaskInputs | None = None
    broken: BaseException | None = None
    unwanted: str = ""
    restores: "RemoteResult | None" = None
    is_member: bool = False
    target: int | None = None
    as_is: bool = False

    @property
    def blobs(self) -> "Mapping[bytes, memoryview | RemoteBlob]":
        """Blobs that must be on a node before the task can run there."""
        code, call = self.code.outgoing.blobs, self.call.blobs
        if self.inputs is None:
            return {**code, **call} if code and call else code or call
        blobs: dict[bytes, memoryview | RemoteBlob] = {**code, **call}
        for value in self.inputs.arrived:
            blobs |= value.blobs
        return blobs

    @property
    def values(self) -> tuple[Payload, ...]:
        """Results of other tasks that it takes."""
        return () if self.inputs is None else tuple(value.payload for value in self.inputs.arrived)

    @property
    def kept(self) -> "tuple[Kept[Any], ...]":
        """Handles of the kept values that it uses; it keeps them alive."""
        return (*self.code.outgoing.kept, *self.call.kept, *_kept_of(self.inputs))

    def break_with(self, error: BaseException) -> None:
        """Set the error that it ends with: it did not run."""
        self.broken, self.error, self.reason = error, type(error).__name__, first_line(message_of(error))


@dataclass(slots=True, eq=False)
class BroadcastWork:
    """A broadcast of the function `name`: creates the task of each member, and collects the results.

    Attributes:
        make: creates the task of a member.
        future: its result; it gets an error directly if the broadcast cannot have members.
        collect: completes `future` from the members, by rank, once all have ended.
        members: its tasks, by rank.
        inputs: futures that it waits for before it starts.
        where: the nodes that it is sent to.
        of_call: handles of the kept values in its call.
        number: its number in the pool.
        is_cancelled: True once its caller has cancelled it.
    """

    make: Callable[[], Work]
    future: TaskFuture[list[Any]]
    collect: Callable[[dict[int, Work]], None]
    members: dict[int, Work]
    needs: Needs = NOTHING
    name: str = ""
    retries: Retries = NO_RETRIES
    inputs: TaskInputs | None = None
    where: Several = ALL
    of_call: "tuple[Kept[Any], ...]" = ()
    number: int = 0
    is_cancelled: bool = False

    @property
    def kept(self) -> "tuple[Kept[Any], ...]":
        """Handles of the kept values that it uses."""
        return (*self.of_call, *_kept_of(self.inputs))


def _kept_of(inputs: TaskInputs | None) -> "tuple[Kept[Any], ...]":
    return () if inputs is None else tuple(handle for value in inputs.arrived for handle in value.kept)
