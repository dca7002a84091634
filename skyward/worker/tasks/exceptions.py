"""Replacement of task exceptions that would be misunderstood at the client.

`sys.exit(0)` in a task would end the client's program, a `KeyboardInterrupt` would look like its Ctrl-C, a
`StopIteration` would end the loop that asked for the result, and a `CancelledError` would look like a cancelled task.
The client gets an ordinary error that names the task, with the traceback of the original.
"""

import asyncio
import concurrent.futures
import contextlib

from skyward.errors import (
    BudgetExhaustedError,
    NodeLostError,
    RemoteError,
    TaskCancelledError,
    TaskExitError,
    TaskTimeoutError,
)
from skyward.task.volumes import note_missing
from skyward.wire.failures.failure import capture_failure
from skyward.wire.payloads.payload import dumps
from skyward.wire.protocol.messages import Finished, Payload
from skyward.worker.tasks.missing_modules import note_system_packages

__all__ = ["as_ordinary_error", "failed"]

_MEANINGS: dict[type[BaseException], str] = {
    KeyboardInterrupt: "an interrupt of this program",
    GeneratorExit: "the end of a generator",
    StopIteration: "the end of an iterator",
    StopAsyncIteration: "the end of an iterator",
    asyncio.CancelledError: "a cancellation",
    concurrent.futures.CancelledError: "a cancellation of the task",
    TaskCancelledError: "a cancellation of the task",
    TaskTimeoutError: "a timeout of the task",
    NodeLostError: "the loss of its node",
    BudgetExhaustedError: "a spent budget",
}
"""The meaning of each exception at the client."""


def as_ordinary_error(
    error: BaseException, who: str, node: int, instead: str = "Use `return` to end it early"
) -> BaseException:
    """Return the exception that the client gets for `error`, raised by `who` (`train()`, or a cell) on `node`.

    Most exceptions are returned as they are. A note is added if a missing system package, or the path of a volume, may
    be the cause.

    Args:
        error: the exception.
        who: the function or cell that raised it.
        node: the rank of the node.
        instead: advice in place of `sys.exit()`.
    """
    note_system_packages(error)
    with contextlib.suppress(Exception):  # the text of a user's exception may raise anything
        note_missing(error)
    if isinstance(error, SystemExit):
        message = (
            f"called sys.exit({'' if error.code is None else repr(error.code)}) on node {node}, which ended "
            f"the task without a result. {instead}, or raise an exception that says what is wrong."
        )
        return _replacing(error, TaskExitError(message, error.code, subject=who))
    for kind, meaning in _MEANINGS.items():
        if isinstance(error, kind):
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            message = f"raised {text} on node {node}, which would be mistaken for {meaning} here."
            return _replacing(error, RemoteError(message, type(error).__name__, subject=who))
    if isinstance(error, BaseExceptionGroup):
        members = [as_ordinary_error(member, who, node, instead) for member in error.exceptions]
        if any(new is not old for new, old in zip(members, error.exceptions, strict=True)):
            return _replacing(error, BaseExceptionGroup(error.message, members))
    return error


def _replacing(original: BaseException, error: BaseException) -> BaseException:
    error.__cause__ = original
    for note in getattr(original, "__notes__", ()):
        error.add_note(note)
    return error


def failed(task: int, error: BaseException, node: int | None = None, seconds: float = 0.0) -> Finished:
    """Return the last event of a task that the worker itself could not run, or whose result it could not send.

    Args:
        task: number of the task.
        error: the exception.
        node: the rank of the node.
        seconds: running time of the task.
    """
    failure = capture_failure(error, node)
    return Finished(task, "error", Payload(dumps(failure)), seconds, failure.type_name, failure.reason)
