"""Execution of one job: decode its call, call its function, and send the result."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import partial
from threading import Lock  # tasks may replace the attributes of the module
from types import GeneratorType
from typing import Any, Literal

from skyward.errors import MissingModuleError
from skyward.kept.handles import recording_handles
from skyward.process.clock import clock
from skyward.task.instance import GangInfo, current_gang, current_share
from skyward.wire.failures.failure import Failure, Link, capture_failure
from skyward.wire.kinds.stateless import survey
from skyward.wire.payloads.arguments import arriving, arriving_results
from skyward.wire.payloads.payload import ReadBlob, decode, encode_result
from skyward.wire.payloads.pickler import CallScope, decoding_for
from skyward.wire.protocol.flow import cost
from skyward.wire.protocol.messages import (
    INLINE_LIMIT,
    NO_PARTIAL_RESULT,
    Blob,
    Code,
    Finished,
    KeptRef,
    Output,
    PartialResultPending,
    Paused,
    Payload,
    Submit,
    Yielded,
)
from skyward.worker.events.context import Port, TaskContext, running
from skyward.worker.events.streams import end_task
from skyward.worker.tasks.coroutines import run_coroutine, send_elements
from skyward.worker.tasks.exceptions import as_ordinary_error
from skyward.worker.tasks.guard import Guard, Interrupted, Reason
from skyward.worker.tasks.jobs import InputStream, Job, Stopped
from skyward.worker.tasks.missing_modules import missing_module
from skyward.worker.tasks.plugins import NO_PLUGINS, Plugins

__all__ = ["Functions", "execute", "input_streams"]

_FUNCTIONS = 256


class Functions:
    """Cache of the functions of this process; the least recently used is evicted first.

    A function that no call can change is decoded once. Any other is decoded for every call.
    """

    def __init__(self, fetch: ReadBlob) -> None:
        self._fetch = fetch
        self._functions: OrderedDict[bytes, tuple[Callable[..., Any], CallScope] | None] = OrderedDict()
        self._lock = Lock()

    def get(self, code: Code, scope: CallScope) -> Callable[..., Any]:
        """Return the function of `code`, for the call whose classes go to `scope`.

        Raises:
            MissingModuleError: it needs a module that is not installed here.
        """
        with self._lock:
            is_known = code.digest in self._functions
            if is_known:
                self._functions.move_to_end(code.digest)
            shared = self._functions.get(code.digest)
        if shared is not None and shared[1].is_intact:
            function, cached_scope = shared
            scope.classes |= cached_scope.classes
            return function
        loaded: Callable[..., Any] = load(code.payload, self._fetch)
        if shared is not None or not is_known:
            is_fixed = not scope.has_own and survey(loaded) is not None
            with self._lock:
                self._functions[code.digest] = (loaded, CallScope({**scope.classes})) if is_fixed else None
                if len(self._functions) > _FUNCTIONS:
                    self._functions.popitem(last=False)
        return loaded


def load(payload: Payload, fetch: ReadBlob) -> Any:
    """Return the value of `payload`.

    Raises:
        MissingModuleError: it needs a module that is not installed here.
    """
    try:
        return decode(payload, fetch)
    except ModuleNotFoundError as error:
        raise missing_module(error) from error


def execute(
    job: Job,
    port: Port,
    functions: Functions,
    fetch: ReadBlob,
    node: int,
    guard: Guard,
    plugins: Plugins = NO_PLUGINS,
) -> Finished:
    """Run `job` until it ends, inside the contexts of `plugins`.

    `guard` opens and closes the time in which it may be interrupted. Always returns the last event of the task,
    whatever the task did.
    """
    submit = job.submit
    own = TaskContext(submit.task, node, port, job)
    context = running.set(own)
    share = current_share.set(submit.share)
    gang = current_gang.set(_gang_of(submit))
    scope = CallScope()
    start = clock.perf_counter()
    outcome: Literal["value", "error", "timeout", "cancelled"] = "value"
    raised = reason = ""
    follows_loss = False
    returned: list[Payload] = []

    def call() -> Payload:
        payload = _call(job, port, functions, fetch, scope, guard)
        error, own.error = own.error, None
        if error is not None and submit.collective is not None:
            returned.append(payload)
            raise error  # by a cell, whose result has it: the contexts must not wait for members that it stops
        return payload

    try:
        with decoding_for(scope):
            try:
                payload = guard.run(lambda: plugins.around(job, port, node, call))
                raised, reason = own.raised, own.reason
            except (Interrupted, Stopped) as stop:
                outcome, payload = guard.reason or job.stopped or "cancelled", _left(stop, own, job)
    except BaseException as error:
        follows_loss = submit.collective is not None and _follows_loss(plugins, error)
        if returned:
            payload, raised, reason = returned[0], own.raised, own.reason
        else:
            outcome, payload, raised, reason = _failed(error, job.code.name, port, node, guard)
    finally:
        with contextlib.suppress(BaseException):  # finalizers of user objects may raise
            end_task(submit.task)
        own.ended = True
        current_share.reset(share)
        current_gang.reset(gang)
        running.reset(context)
    return Finished(submit.task, outcome, payload, clock.perf_counter() - start, raised, reason, follows_loss)


def _gang_of(submit: Submit) -> GangInfo | None:
    if submit.gang is None or submit.share is None:
        return None
    return GangInfo(*submit.share, submit.gang.nodes, submit.gang.start)


def _follows_loss(plugins: Plugins, error: BaseException) -> bool:
    try:
        return plugins.follows_loss(error)
    except Exception:  # inspecting a user's exception may raise anything
        return False


def _left(stop: Interrupted | Stopped, own: TaskContext, job: Job) -> Payload:
    """Return the partial result of a stopped task, packed; an empty payload if it is lost."""
    if isinstance(stop, Stopped) or stop.left is None:
        return Payload(b"") if own.leaves else NO_PARTIAL_RESULT
    job.leaving = True
    try:
        own.port.emit(PartialResultPending(own.task))
        return _payload(stop.take(), own.port, "the partial result of the task")
    except BaseException as error:  # user objects, or no memory: the task is stopped all the same
        reason = f"{type(error).__name__}: {error}"
        text = f"Variables assigned by the cell cannot be sent from node {own.node}: {reason}\n"
        own.port.emit(Output(own.task, "stderr", text))
        return Payload(b"")


def _failed(
    error: BaseException, name: str, port: Port, node: int, guard: Guard
) -> tuple[Reason | Literal["error"], Payload, str, str]:
    """Return the outcome, the packed exception, the name of its type, and the first line of its text."""
    try:
        if guard.reason is not None and isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
            return guard.reason, Payload(b""), "", ""
        if isinstance(error, ModuleNotFoundError) and not isinstance(error, MissingModuleError):
            error = missing_module(error, node)
        failure = capture_failure(as_ordinary_error(error, f"{name}()", node), node)
        reason = failure.reason
    except BaseException as raised:  # inspecting a user's exception may raise anything
        failure = _unknown(error, raised, node)
        reason = failure.reason
    return "error", _payload(failure, port, "the exception"), failure.type_name, reason


def _unknown(error: BaseException, raised: BaseException, node: int) -> Failure:
    """Return a substitute for an exception that cannot be captured."""
    name, reason = (type.__getattribute__(type(each), "__name__") for each in (error, raised))
    message = f"(node {node} could not inspect this exception: that raised {reason})"
    return Failure((Link((), f"{name}: {message}", "", None, name, message),), node)


def _call(job: Job, port: Port, functions: Functions, fetch: ReadBlob, scope: CallScope, guard: Guard) -> Payload:
    submit = job.submit
    function = functions.get(job.code, scope)
    args, kwargs = _arguments(job, fetch)
    # Nothing here keeps a reference to the result: an array without other references is not copied (see `ownership`).
    if not submit.stream:
        return _payload(_completed(function(*args, **kwargs), guard), port, f"the result of {job.code.name}()")
    returned = _stream(job, port, function(*args, **kwargs), guard)
    return _payload(returned, port, f"what {job.code.name}() returned")


def _arguments(job: Job, fetch: ReadBlob) -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    token = arriving.set(job.inputs)
    values = arriving_results.set([load(value, fetch) for value in job.submit.values])
    try:
        arguments = load(job.submit.call, fetch)
    finally:
        arriving_results.reset(values)
        arriving.reset(token)
    return arguments


def _completed(value: Any, guard: Guard) -> Any:
    """Return `value`, or the result of the coroutine that it is."""
    return run_coroutine(value, guard) if asyncio.iscoroutine(value) else value


def _stream(job: Job, port: Port, elements: Iterator[Any] | AsyncIterator[Any], guard: Guard) -> Any:
    """Send the elements; return the generator's return value. The generator is closed in any case."""
    name = f"an element of {job.code.name}()"

    def send_or_wait(element: object) -> Callable[[], None] | None:
        payload = _payload(element, port, name)
        if not job.has_credit(cost(payload)):
            return partial(_send, job, port, payload)  # not on the loop's thread, where it would block other tasks
        _send(job, port, payload)
        return None

    if isinstance(elements, AsyncIterator):
        return run_coroutine(send_elements(elements, send_or_wait), guard)
    try:
        while True:
            try:
                element = next(elements)
            except StopIteration as end:
                return end.value
            _send(job, port, _payload(element, port, name))
    except (Interrupted, Stopped):
        if job.submit.grace and isinstance(elements, GeneratorType) and elements.gi_suspended:
            raise _interrupted_at_yield(elements) from None
        raise
    finally:
        if isinstance(elements, Generator):
            elements.close()


def _interrupted_at_yield(elements: Generator[Any, Any, Any]) -> Interrupted:
    """Raise an interrupt where a generator yields, and return the interrupt that ended it.

    Elements that it yields after that are dropped. If it handles the interrupt, its return value is the partial result.
    """
    try:
        elements.throw(Interrupted())
        while True:
            next(elements)
    except Interrupted as stop:
        return stop
    except StopIteration as end:
        ended, returned = Interrupted(), end.value
    ended.left = lambda: returned
    return ended


def _send(job: Job, port: Port, payload: Payload) -> None:
    """Send an element of a stream, once the client has room for it."""
    job.take_credit(cost(payload), lambda credited: port.emit(Paused(job.submit.task, credited)))
    port.emit(Yielded(job.submit.task, (payload,)))


def _payload(value: object, port: Port, name: str) -> Payload:
    """Pack `value`; keep its large parts on the node until the client has fetched them."""
    with recording_handles() as handles:
        data, views = encode_result(value, name)
    kept = tuple(KeptRef(handle.keys, handle.name) for handle in handles.values())
    if not views and len(data) <= INLINE_LIMIT:
        return Payload(data, (), kept)
    del value  # see `_call`
    parts = [memoryview(data), *views]
    large = [view for view in parts if view.nbytes > INLINE_LIMIT]
    if not large:
        return Payload(data, tuple(bytes(view) for view in views), kept)
    keys = iter(port.keep(large))
    placed = [Blob(next(keys), view.nbytes) if view.nbytes > INLINE_LIMIT else bytes(view) for view in parts]
    return Payload(placed[0], tuple(placed[1:]), kept)


def input_streams(job: Job, port: Port, fetch: ReadBlob) -> list[InputStream]:
    """Return the input streams of `job`, still empty."""
    task = job.submit.task
    return [InputStream(task, index, lambda p: load(p, fetch), port.emit) for index in range(job.submit.inputs)]
