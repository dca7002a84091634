"""Run one job: decode its call, call its function, send home what comes of it."""

import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from typing import Any, Literal, Protocol

from skyward.errors import MissingModuleError
from skyward.instance import current_share
from skyward.wire.arguments import arriving
from skyward.wire.failure import capture_failure
from skyward.wire.flow import cost
from skyward.wire.messages import INLINE_LIMIT, Blob, Code, Finished, Payload, Yielded
from skyward.wire.payload import Fetch, decode, encode_result
from skyward.worker.context import Port, TaskContext, running
from skyward.worker.jobs import InputStream, Job, Stopped
from skyward.worker.missing import missing_module

__all__ = ["Functions", "Guard", "Interrupted", "Reason", "execute", "input_streams"]

_FUNCTIONS = 256

type Reason = Literal["cancelled", "timeout"]


class Interrupted(KeyboardInterrupt):
    """The task was told to stop; raised inside the user's code, which sees the `KeyboardInterrupt` it knows."""


class Guard(Protocol):
    """Where a job may be interrupted, and why it was."""

    reason: Reason | None

    def run[T](self, call: Callable[[], T]) -> T:
        """The result of `call`, which may be interrupted."""


class Functions:
    """The functions of this process, decoded once each, the least recently used forgotten first."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._functions: OrderedDict[bytes, Callable[..., Any]] = OrderedDict()

    def get(self, code: Code) -> Callable[..., Any]:
        """The function of `code`.

        Raises:
            MissingModuleError: it needs a module that is not installed here.
        """
        function = self._functions.get(code.digest)
        if function is None:
            function = load(code.payload, self._fetch)
            self._functions[code.digest] = function
            if len(self._functions) > _FUNCTIONS:
                self._functions.popitem(last=False)
        else:
            self._functions.move_to_end(code.digest)
        return function


def load(payload: Payload, fetch: Fetch) -> Any:
    """The value of `payload`.

    Raises:
        MissingModuleError: it needs a module that is not installed here.
    """
    try:
        return decode(payload, fetch)
    except ModuleNotFoundError as error:
        raise missing_module(error) from error


def execute(job: Job, port: Port, functions: Functions, fetch: Fetch, node: int, guard: Guard) -> Finished:
    """Run `job` to its end. `guard` opens and closes the time in which it may be interrupted.

    Always returns the last event of the task, whatever the task did.
    """
    submit = job.submit
    context = running.set(TaskContext(submit.task, node, port))
    share = current_share.set(submit.share)
    start = time.perf_counter()
    outcome: Literal["value", "error", "timeout", "cancelled"] = "value"
    try:
        payload = guard.run(lambda: _call(job, port, functions, fetch))
    except (Interrupted, Stopped):
        outcome, payload = guard.reason or "cancelled", Payload(b"")
    except BaseException as error:
        outcome, payload = _failed(error, port, node, guard)
    finally:
        current_share.reset(share)
        running.reset(context)
    return Finished(submit.task, outcome, payload, time.perf_counter() - start)


def _failed(error: BaseException, port: Port, node: int, guard: Guard) -> tuple[Reason | Literal["error"], Payload]:
    if guard.reason is not None and isinstance(error, KeyboardInterrupt):
        return guard.reason, Payload(b"")
    if isinstance(error, ModuleNotFoundError) and not isinstance(error, MissingModuleError):
        error = missing_module(error, node)
    return "error", _payload(capture_failure(error, node), port)


def _call(job: Job, port: Port, functions: Functions, fetch: Fetch) -> Payload:
    submit = job.submit
    function = functions.get(job.code)
    token = arriving.set(job.inputs)
    try:
        args, kwargs = load(submit.call, fetch)
    finally:
        arriving.reset(token)
    # Nothing here keeps a reference to the result: an array that nobody has is sent without a copy (see `owned`).
    if not submit.stream:
        return _payload(function(*args, **kwargs), port)
    return _payload(_stream(job, port, function(*args, **kwargs)), port)


def _stream(job: Job, port: Port, elements: Iterator[Any]) -> Any:
    """Send the elements; what the generator returned. The generator is closed whatever happens."""
    try:
        while True:
            try:
                element = next(elements)
            except StopIteration as end:
                return end.value
            payload = _payload(element, port)
            job.take_credit(cost(payload))
            port.emit(Yielded(job.submit.task, (payload,)))
    finally:
        if isinstance(elements, Generator):
            elements.close()


def _payload(value: object, port: Port) -> Payload:
    """`value` ready to send; its large parts are kept on the node until the client has fetched them."""
    data, views = encode_result(value)
    if not views and len(data) <= INLINE_LIMIT:
        return Payload(data)
    del value  # see `_call`
    parts = [memoryview(data), *views]
    large = [view for view in parts if view.nbytes > INLINE_LIMIT]
    if not large:
        return Payload(data, tuple(bytes(view) for view in views))
    keys = iter(port.keep(large))
    placed = [Blob(next(keys), view.nbytes) if view.nbytes > INLINE_LIMIT else bytes(view) for view in parts]
    return Payload(placed[0], tuple(placed[1:]))


def input_streams(job: Job, port: Port, fetch: Fetch) -> list[InputStream]:
    """The streams that feed `job`, empty still."""
    task = job.submit.task
    return [InputStream(task, index, lambda p: load(p, fetch), port.emit) for index in range(job.submit.inputs)]
