"""Exceptions of a task that would mean something else at the client, and what is raised there in their place.

`sys.exit(0)` in a task would end the client's program, a `KeyboardInterrupt` would look like its Ctrl-C, a
`StopIteration` would end the loop that asked for the result, and a `CancelledError` would look like a task that was
cancelled. The client gets an ordinary error that names the task, with the traceback of the original.
"""

import asyncio
import concurrent.futures

from skyward.errors import (
    BudgetExhaustedError,
    NodeLostError,
    RemoteError,
    TaskCancelledError,
    TaskExitError,
    TaskTimeoutError,
)
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
"""What the client would take them for."""


def as_ordinary_error(
    error: BaseException, who: str, node: int, instead: str = "Use `return` to end it early"
) -> BaseException:
    """Return what the client gets for `error`, raised by `who` (`train()`, or a cell) on `node`: most often itself.

    It gets a note where system packages that it may be about were asked for and are missing.

    Args:
        error: what was raised.
        who: what raised it.
        node: the rank of the node.
        instead: what to do instead of `sys.exit()`.
    """
    note_system_packages(error)
    if isinstance(error, SystemExit):
        said = (
            f"{who} called sys.exit({'' if error.code is None else repr(error.code)}) on node {node}, which ended "
            f"the task without a result. {instead}, or raise an exception that says what is wrong."
        )
        return _in_place_of(error, TaskExitError(said, error.code))
    for kind, meaning in _MEANINGS.items():
        if isinstance(error, kind):
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            said = f"{who} raised {text} on node {node}, which would be taken for {meaning} here."
            return _in_place_of(error, RemoteError(said, type(error).__name__))
    if isinstance(error, BaseExceptionGroup):
        members = [as_ordinary_error(member, who, node, instead) for member in error.exceptions]
        if any(new is not old for new, old in zip(members, error.exceptions, strict=True)):
            return _in_place_of(error, BaseExceptionGroup(error.message, members))
    return error


def _in_place_of(original: BaseException, error: BaseException) -> BaseException:
    error.__cause__ = original
    for note in getattr(original, "__notes__", ()):
        error.add_note(note)
    return error


def failed(task: int, error: BaseException, node: int | None = None, seconds: float = 0.0) -> Finished:
    """Return the last event of a task that the worker itself could not run or answer for.

    Args:
        seconds: how long the task ran.
    """
    failure = capture_failure(error, node)
    return Finished(task, "error", Payload(dumps(failure)), seconds, failure.type_name)
