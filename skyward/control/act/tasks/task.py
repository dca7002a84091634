"""One task at the client: what is sent, and where what comes back goes."""

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
from skyward.control.act.tasks.inputs import Inputs
from skyward.control.act.tasks.stopping import stop_all
from skyward.control.act.tasks.streams import Feeder, StreamBuffer
from skyward.control.observe.costs import FREE, Terms
from skyward.control.observe.origin import Origin
from skyward.errors import RemoteError, TaskCancelledError, UsageError
from skyward.kept.handles import Kept
from skyward.process import background
from skyward.process.blocked_threads import Blocked
from skyward.process.forked import refuse_forked
from skyward.process.thread_events import ThreadEvent
from skyward.specs.placement import ALL, Several
from skyward.specs.retries import NO_RETRIES, Retries
from skyward.values.needs import NOTHING, Needs
from skyward.wire.payloads.code import PreparedCode
from skyward.wire.payloads.payload import Outgoing, decode
from skyward.wire.protocol.messages import Blob, Payload

if TYPE_CHECKING:
    from skyward.control.act.tasks.remote_blobs import RemoteBlob
    from skyward.control.act.tasks.remote_results import RemoteResult  # circular: a result knows the task that made it

__all__ = ["Arrived", "BroadcastWork", "Sink", "TaskFuture", "Undecoded", "Work", "handles_in"]


class Sink(Protocol):
    """Takes what a task prints and displays. Called on the library's loop, in order; must not block."""

    def output(self, node: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        """A node wrote to a standard stream."""

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """A node displayed something rich."""

    def task_ended(self, node: int) -> None:
        """A task that ran on a node has ended, so a line that it began is not ended any more."""


@runtime_checkable
class Undecoded(Protocol):
    """A value that is here but not decoded: that is left to the thread that wants it."""

    def decode(self) -> Any:
        """The value."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """What a node sent, with its blobs, and the handles of kept values that are part of it."""

    payload: Payload
    blobs: Mapping[bytes, memoryview] = field(default_factory=dict)
    kept: "list[Kept[Any]]" = field(default_factory=list)

    def decode(self) -> Any:
        """The value. It stands on the memory of the blobs."""

        def fetch(blob: Blob) -> memoryview:
            return self.blobs[blob.key]

        return decode(self.payload, fetch)

    def decode_copy(self) -> Any:
        """The value, on memory of its own."""

        def fetch(blob: Blob) -> memoryview:
            return memoryview(bytearray(self.blobs[blob.key]))

        return decode(self.payload, fetch)


@runtime_checkable
class Away(Protocol):
    """A result that is not here, and comes when it is asked for."""

    def coming(self) -> "Future[Arrived]":
        """A future of it."""


_logger = logging.getLogger(__name__)

_INTERRUPTIBLE = 0.5
"""Seconds of one wait: Python does not act on a signal that comes just before a wait until that ends."""


def handles_in(payload: Payload) -> "list[Kept[Any]]":
    """Return the handles that are part of a result."""
    return [Kept.of(ref.keys, ref.name) for ref in payload.kept]


class TaskFuture[T](Future[T]):
    """The result of a task to come: for threads as any `concurrent.futures.Future`, and to `await` in a coroutine.

    Cancelling it stops the work on the node, and so does cancelling a coroutine that awaits it; `asyncio.shield` leaves
    the work alone.

    Attributes:
        name: of its task, for sentences: `train()`.
        parts: returns the futures that this one needs: of several tasks, or of what its task waits for.
        members: for a group that has not failed, the futures of its calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self._decoding = threading.Lock()
        self._decoded = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._stop: Callable[[], None] | None = None
        self._is_running: Callable[[], bool] | None = None
        self._cancelled_why = ""
        self._is_ending = False
        self._lent = self._asked = False
        self.name = "a task"
        self.members: tuple[TaskFuture[Any], ...] | None = None
        self.parts: Callable[[], Iterable[Future[Any]]] = tuple

    def stop_with(self, stop: Callable[[], None]) -> None:
        """Have `stop` called when the caller cancels."""
        self._stop = stop

    def runs_while(self, is_running: Callable[[], bool]) -> None:
        """Have `is_running` say whether a node has the work, until that has ended."""
        self._is_running = is_running

    def running(self) -> bool:
        """Whether a node has the task, or any of the tasks of a group or a broadcast."""
        is_running = self._is_running
        return not self.done() and is_running is not None and is_running()

    def end_cancelled(self, why: str) -> None:
        """The work has stopped: end as cancelled."""
        self._cancelled_why = why
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
        """Drop what refers back to this future, so that an error, and all that its traceback keeps, is not kept."""
        self._is_ending = True  # first: another thread may be cancelling it
        self._stop, self._is_running, self.parts = None, None, tuple

    def result(self, timeout: float | None = None) -> T:
        """The result; raises what the task raised, or `TaskCancelledError`. An interrupt of the wait stops the work."""
        __tracebackhide__ = True
        try:
            return self.take(timeout)
        except KeyboardInterrupt:
            if how := self._interrupted():
                raise KeyboardInterrupt(how) from None
            raise
        finally:
            self = None  # type: ignore[assignment]  # as below

    def take(self, timeout: float | None = None) -> T:
        """The same as `result`, but an interrupt leaves the work alone."""
        __tracebackhide__ = True
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            self._wait(deadline)
            arrived: object = super().result(0)
            if (away := self._away(arrived)) is not None:
                return self._give(_bring(away.coming(), deadline), own=True)
        except CancelledError as error:
            if isinstance(error, TaskCancelledError):
                raise
            raise TaskCancelledError(self._cancelled_why) from None
        except BaseException:
            self = None  # type: ignore[assignment]  # as below
            raise
        return self._give(arrived)

    def _wait(self, deadline: float | None) -> None:
        """Wait until it has ended.

        Raises:
            TimeoutError: it has not by then.
        """
        refuse_forked()
        self._asked = True
        if not self.done():
            with nullcontext() if deadline is not None else Blocked(self):
                _wait_in_pieces(self, deadline)

    def _interrupted(self) -> str:
        """Stop the work, as the wait for it was interrupted; how that went, empty where there was nothing to stop."""
        if self.done() or self._stop is None:
            return ""
        with suppress(KeyboardInterrupt):
            stop_all([self])
            wait([self], stopping.GRACE)
        if not self.done():
            return f"{self.name} was asked to stop, and has not confirmed it yet"
        return self._cancelled_why.rstrip(".") if self.cancelled() else "the work had ended"

    def _give(self, arrived: object, *, own: bool = False) -> T:
        """The value of what has come, or the error that keeps it from being one. `own`: no other task takes it."""
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
        """The result, in a coroutine; raises what `result` raises. Cancelling the coroutine stops the work."""
        refuse_forked()
        self._asked = True
        if not self.done():
            bell = ThreadEvent()
            ended = bell.rung()
            self.when_over(bell.ring)
            try:
                yield from ended
            except asyncio.CancelledError:
                self.cancel()
                raise
        arrived = None if self.cancelled() or super().exception(0) is not None else super().result(0)
        if (away := self._away(arrived)) is not None:
            return self._give((yield from asyncio.wrap_future(away.coming())), own=True)
        return self.result(0)

    async def over(self) -> None:
        """Wait in a coroutine until it has ended, without asking for what came of it."""
        bell = ThreadEvent()
        ended = bell.rung()
        self.when_over(bell.ring)
        await ended

    def when_over(self, callback: Callable[[Future[T]], object]) -> None:
        """Have `callback` called when it has ended, with it, without asking for what came of it."""
        super().add_done_callback(callback)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Have `fn` called when it has ended, with it. What it raises on the library's thread is logged."""
        self._asked = True

        def call(ended: Future[T]) -> None:
            try:
                fn(ended)
            except BaseException:
                if not background.on_loop():
                    raise
                # An exit or an interrupt would end the loop, and with it all pools.
                _logger.exception("a callback of the future of %s raised", self.name)

        super().add_done_callback(call)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the task raised; None if it returned. An interrupt of the wait stops the work, as that of `result`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            self._wait(deadline)
        except KeyboardInterrupt:
            if how := self._interrupted():
                raise KeyboardInterrupt(how) from None
            raise
        error = super().exception(0)
        if error is not None:
            return error
        arrived: object = super().result(0)
        if (away := self._away(arrived)) is not None:
            coming = away.coming()
            try:
                self._decode(_bring(coming, deadline), own=True)
            except Exception as lost:
                if not coming.done() or coming.cancelled():
                    raise  # it has not come in time
                return lost
        self._decode(arrived)
        return self._error

    def _away(self, arrived: object) -> Away | None:
        """What has come, where that is elsewhere and still wanted here."""
        if isinstance(arrived, Arrived) or self._decoded:
            return None
        return arrived if isinstance(arrived, Away) else None

    @property
    def is_lent(self) -> bool:
        """Whether other tasks take the result."""
        return self._lent

    @property
    def only_lent(self) -> bool:
        """Whether other tasks take the result, and nobody here has asked for it."""
        return self._lent and not self._asked

    def lend(self) -> bool:
        """Have the result stay as it came, for tasks that take it, whatever becomes of its value here.

        False where the value has been taken out before, which may have changed it.
        """
        with self._decoding:
            self._lent = self._lent or not self._decoded or self._error is not None
            return self._lent

    def release_kept(self) -> None:
        """Let go of the handles in a result that the caller has taken out of it."""
        if self.done() and not self.cancelled() and super().exception(0) is None:
            arrived = super().result(0)
            if isinstance(arrived, Arrived):
                arrived.kept.clear()

    def _decode(self, arrived: object, *, own: bool = False) -> None:
        """Decode once, on the first thread that asks; a value that cannot be rebuilt here is an error of its own."""
        with self._decoding:
            if self._decoded:
                return
            try:
                if self._lent and not own and isinstance(arrived, Arrived):
                    self._value = arrived.decode_copy()
                else:
                    self._value = arrived.decode() if isinstance(arrived, Undecoded) else arrived
            except Exception as error:
                self._error = RemoteError(
                    f"The task returned, but its result cannot be rebuilt here: {type(error).__name__}: {error}. "
                    "Install what it needs here too, or return plain data.",
                    type(error).__name__,
                )
                self._error.__cause__ = error
            self._decoded = True

    def cancel(self) -> bool:
        """Stop the task, on its node too. True unless it is over; the future ends when the node has stopped."""
        if self.done():
            return self.cancelled()
        if (stop := self._stop) is None:
            return not self._is_ending and super().cancel()
        stop()
        return True


def _wait_in_pieces(future: Future[Any], deadline: float | None) -> None:
    """Wait until a future is done.

    Raises:
        TimeoutError: it is not, at `deadline`.
    """
    while not future.done():
        left = _INTERRUPTIBLE if deadline is None else min(_INTERRUPTIBLE, deadline - time.monotonic())
        with suppress(TimeoutError, CancelledError):
            Future.exception(future, max(0.0, left))
        if deadline is not None and time.monotonic() >= deadline and not future.done():
            raise TimeoutError


def _bring(coming: Future[Arrived], deadline: float | None) -> Arrived:
    """What is coming."""
    if background.on_loop():
        coming.cancel()
        raise UsageError(
            "A result that is still on its node cannot be taken in a callback of another future: wait for it."
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
        future: set when the task is over.
        sink: takes its output.
        stream: for a generator function, where its elements go.
        feeders: its input streams.
        needs: what it asks of its node.
        retries: how often it runs again when it raises, and after what.
        retried: how often it was queued again so far.
        retried_after: why, the last time.
        nodes: ranks it was sent to, in order.
        seconds: how long it ran, once it is over.
        origin: the cell that sent it.
        queued_at, sent_at, ended_at: when it was made, when it was sent to a node last, and when it was over.
        terms: what that node is and costs.
        yielded: how many elements of its stream have arrived.
        error: name of the type of what it raised, or of the exception that its result carries, once it has.
        group_limit: seconds that its group had, once they were over before the task was.
        stuck: why it can never start, once that is certain.
        grace: seconds that it has to end by itself when it is to stop; see `wire.messages.Submit`.
        is_leaving: whether it was stopped, and what it leaves is being packed on its node, or is on its way.
        coming: bytes of what came of it that are on their way here.
        left: what it left, once it was stopped.
        inputs: what it waits for before it can be sent.
        broken: the error that it ends with because one of these failed, or could not be had.
        unwanted: why it is cancelled, because one of these was.
        restores: the result that it makes again, which was lost.
        is_member: whether it is one of a broadcast, which has the same inputs for all.
        target: rank of the node that it is for; None for any.
        as_is: whether what goes along is memory of the caller, and no copy of it.
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
    terms: Terms = FREE
    yielded: int = 0
    error: str = ""
    group_limit: float | None = None
    stuck: str = ""
    grace: float = 0.0
    is_leaving: bool = False
    coming: int = 0
    left: Arrived | None = None
    inputs: Inputs | None = None
    broken: BaseException | None = None
    unwanted: str = ""
    restores: "RemoteResult | None" = None
    is_member: bool = False
    target: int | None = None
    as_is: bool = False

    @property
    def blobs(self) -> "Mapping[bytes, memoryview | RemoteBlob]":
        """The blobs that must be on a node before the task can run there."""
        code, call = self.code.outgoing.blobs, self.call.blobs
        if self.inputs is None:
            return {**code, **call} if code and call else code or call
        blobs: dict[bytes, memoryview | RemoteBlob] = {**code, **call}
        for value in self.inputs.arrived:
            blobs |= value.blobs
        return blobs

    @property
    def values(self) -> tuple[Payload, ...]:
        """The results of other tasks that it takes."""
        return () if self.inputs is None else tuple(value.payload for value in self.inputs.arrived)

    @property
    def kept(self) -> "tuple[Kept[Any], ...]":
        """Handles of the kept values that it uses, which it keeps alive."""
        return (*self.code.outgoing.kept, *self.call.kept, *_kept_of(self.inputs))


@dataclass(slots=True, eq=False)
class BroadcastWork:
    """A broadcast of a function of this `name`: makes the work of each member, and collects them.

    Attributes:
        done: called with the members, by rank, once all have ended.
        refused: called with the error that keeps it from having any.
        withdrawn: called with why it was cancelled before it had any.
        inputs: what it waits for before it begins.
        where: the nodes that it is for.
        of_call: handles of the kept values that are part of its call.
        is_cancelled: whether its caller wants it no more.
    """

    make: Callable[[], Work]
    done: Callable[[dict[int, Work]], None]
    refused: Callable[[BaseException], None]
    withdrawn: Callable[[str], None]
    members: dict[int, Work]
    needs: Needs = NOTHING
    name: str = ""
    retries: Retries = NO_RETRIES
    inputs: Inputs | None = None
    where: Several = ALL
    of_call: "tuple[Kept[Any], ...]" = ()
    number: int = 0
    is_cancelled: bool = False

    @property
    def kept(self) -> "tuple[Kept[Any], ...]":
        """Handles of the kept values that it uses."""
        return (*self.of_call, *_kept_of(self.inputs))


def _kept_of(inputs: Inputs | None) -> "tuple[Kept[Any], ...]":
    return () if inputs is None else tuple(handle for value in inputs.arrived for handle in value.kept)
