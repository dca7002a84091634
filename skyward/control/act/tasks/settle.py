"""Settlement of a task's future: exactly once, with a result or one error that says what happened."""

import time
from collections.abc import Callable
from dataclasses import replace

from skyward.control.act.tasks.future import EncodedResult, end_cancelled
from skyward.control.act.tasks.missing_modules import with_fix
from skyward.control.act.tasks.remote_results import RemoteResult
from skyward.control.act.tasks.task import Work
from skyward.control.decide.tasks.messages import Settle, SettleOutcome
from skyward.control.observe.origin import CELL_FUNCTIONS
from skyward.errors import (
    RERUN,
    BudgetExhaustedError,
    KeptLostError,
    NodeLostError,
    NodeStartError,
    NoGroupFitsError,
    PluginError,
    SlotsHeldError,
    TaskCancelledError,
    TaskTimeoutError,
    VolumeError,
)
from skyward.formatting import joined
from skyward.wire.failures.failure import Failure
from skyward.wire.payloads.payload import Outgoing
from skyward.wire.protocol.messages import Payload

__all__ = ["error_of", "final", "note_unsaved", "settle", "unsaved_error"]


def final(work: Work, settled: Settle) -> Settle:
    """Return the end of a task as its caller, the history and the events report it.

    The outcome of a cancelled task depends on the reason; a value that carries an exception is "raised". The reason of
    an exception is the first line of its text.
    """
    if settled.outcome == "value" and work.error:
        return replace(settled, outcome="raised", reason=work.reason)
    if settled.outcome == "error":
        return replace(settled, reason=settled.reason or work.reason)
    if settled.outcome != "cancelled":
        return settled
    if work.stuck:
        return replace(settled, outcome="stuck", reason=work.stuck)
    is_late = work.is_overdue or work.group_limit is not None
    return replace(settled, outcome="timeout") if is_late else settled


def settle(
    work: Work,
    outcome: SettleOutcome | BaseException,
    reason: str = "",
    arrived: EncodedResult | RemoteResult | None = None,
    cause: str = "",
) -> None:
    """End `work`, unless it has ended before. `cause`: what led to it, for a task whose node was lost."""
    if work.future.done():
        return
    try:
        _settle(work, outcome, reason, arrived, cause)
    finally:
        work.call = _NOTHING  # a handle of the task must not keep its arguments or its function's globals alive
        work.code = replace(work.code, outgoing=_NOTHING)


_NOTHING = Outgoing(Payload(b""))


def _settle(
    work: Work,
    outcome: SettleOutcome | BaseException,
    reason: str,
    arrived: EncodedResult | RemoteResult | None,
    cause: str,
) -> None:
    work.running = False
    work.ended_at = time.monotonic()
    for feeder in work.feeders:
        feeder.stop()
    if outcome in ("value", "raised") and work.unsaved and isinstance(arrived, EncodedResult):
        if not _is_cell(work, arrived):
            work.left = arrived
            work.future.set_exception(_unsaved(work, arrived))
            if work.stream is not None:
                work.stream.finish(work.future.result)
            return
        work.future.unsaved = work.unsaved  # the result has the variables of the cell, and perhaps an error of its own
    if outcome in ("value", "raised") and arrived is not None:
        if work.stream is not None and isinstance(arrived, EncodedResult):
            work.stream.finish(arrived.decode)
        work.future.set_result(arrived)
        return
    if outcome in ("cancelled", "timeout", "unfunded") and isinstance(arrived, EncodedResult) and arrived.payload.data:
        work.left = arrived
    if outcome == "cancelled":
        end_cancelled(work.future, f"was cancelled{work.unwanted or _where(work)}.", subject=f"{work.code.name}()")
    else:
        work.future.set_exception(_error(work, outcome, reason, arrived, cause))
    if work.stream is not None:
        work.stream.finish(work.future.result)


def _error(
    work: Work,
    outcome: SettleOutcome | BaseException,
    reason: str,
    arrived: EncodedResult | RemoteResult | None,
    cause: str,
) -> BaseException:
    name = f"{work.code.name}()"
    match outcome:
        case BaseException():
            return outcome
        case "error" if work.broken is not None:
            return work.broken
        case "timeout" if work.group_limit is not None:
            return TaskTimeoutError(
                f"was stopped{_where(work)}, because its group ran past its timeout of {work.group_limit:g} s.",
                subject=name,
                fix="Give the group more time with .with_timeout().",
            )
        case "timeout":
            return TaskTimeoutError(
                f"ran past its timeout of {work.timeout:g} s{_where(work)} and was stopped there.",
                subject=name,
                fix="Give it more with timeout=, or .with_timeout().",
            )
        case "lost":
            times = len(work.nodes)
            tried = "" if times == 1 else f", the last of {times} attempts"
            return NodeLostError(f"did not finish: {reason}{tried}.", cause, subject=name)
        case "unmet":
            return PluginError(f"did not start: {reason}.", subject=name)
        case "unkept":
            names = joined(handle.name for handle in work.kept)
            return KeptLostError(
                f"uses {names}, which was lost with its node: {reason}.",
                subject=name,
                fix=RERUN,
            )
        case "infeasible":
            fix = (
                "Allow more nodes with nodes= and max_nodes= or `%sky scale`, or larger ones."
                if work.is_in_gang
                else ""
            )
            return NoGroupFitsError(f"asks for {reason}.", subject=name, fix=fix)
        case "stuck":
            return SlotsHeldError(f"can never start: {reason}.", subject=name)
        case "abandoned":
            return NodeStartError(reason)
        case "unfunded" if work.nodes:
            return BudgetExhaustedError(f"was stopped{_where(work)}: {reason}.", subject=name)
        case "unfunded":
            return BudgetExhaustedError(f"did not run: {reason}.", subject=name)
        case _:
            failure = arrived.decode() if isinstance(arrived, EncodedResult) else None
            if isinstance(failure, Failure):
                return _with_notes(error_of(failure), work)
            return TaskCancelledError(f"ended without a result{_where(work)}.", subject=name)


def _is_cell(work: Work, arrived: EncodedResult) -> bool:
    """Return whether a result is that of a cell, and not of a function of the user that has the name of ours."""
    if work.code.name not in CELL_FUNCTIONS:
        return False
    from skyward.worker.cells.cell import CellResult  # only clients that run cells need it

    try:
        return isinstance(arrived.decode(), CellResult)
    except Exception:  # raised by a class of the user: it must not end the loop
        return False


def _unsaved(work: Work, arrived: EncodedResult) -> VolumeError:
    returned = "What it returned is in `error.value`."
    return unsaved_error(f"{work.code.name}()", _where(work), work.unsaved, arrived.decode, returned)


def unsaved_error(subject: str, where: str, unsaved: str, value: Callable[[], object], returned: str) -> VolumeError:
    """Return the error of a task, or a cell, that has ended without an error of its own.

    Args:
        subject: the task.
        where: where it has ended, as " on node 0".
        unsaved: the files that could not be uploaded, as a sentence.
        value: returns what the task returned.
        returned: a sentence on where to find that.
    """
    return VolumeError(f"has ended{where}, but {unsaved}.", value, subject=subject, fix=returned)


def note_unsaved(error: BaseException, unsaved: str, where: str = "") -> None:
    """Add a note to the error of a task about the files that could not be uploaded either, once."""
    note = f"Beside this error,{where} {unsaved}."
    if note not in getattr(error, "__notes__", ()):
        BaseException.add_note(error, note)  # its class may have a method of that name


def error_of(failure: Failure) -> BaseException:
    """Return the exception of a failure."""
    try:
        return with_fix(failure.rebuild())
    except BaseException:  # raised by the exception's class: it must not end the loop
        return failure.as_remote_error()


def _with_notes(error: BaseException, work: Work) -> BaseException:
    """Add notes about the attempts of a task with retries, and about files that it could not leave in a volume."""
    if work.unsaved:
        note_unsaved(error, work.unsaved)
    if work.retries.times and work.stream is not None and work.yielded:
        BaseException.add_note(error, "It was not run again: part of its stream had been delivered.")
    elif work.retries.times and work.retried:
        BaseException.add_note(error, f"It was raised in the last of {work.retried + 1} attempts.")
    return error


def _where(work: Work) -> str:
    return f" on node {work.nodes[-1]}" if work.nodes else " before it started"
