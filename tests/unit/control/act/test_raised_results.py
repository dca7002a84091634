"""A task whose result carries an exception: its caller gets the result, and everything else counts it as failed."""

from typing import Any

import pytest

from skyward.control.act.tasks.future import EncodedResult, TaskFuture
from skyward.control.act.tasks.history import TaskHistory
from skyward.control.act.tasks.run import Run
from skyward.control.act.tasks.settle import final, settle
from skyward.control.act.tasks.streams import StreamBuffer
from skyward.control.act.tasks.task import Work
from skyward.control.decide.tasks.messages import Settle
from skyward.wire.payloads.code import PreparedCode, prepare_code
from skyward.wire.payloads.payload import dumps, encode_call
from skyward.wire.protocol.messages import Payload

pytestmark = pytest.mark.unit


def cell() -> None:
    """Function of the task."""


CODE: PreparedCode = prepare_code(cell)


def ended(error: str, stream: StreamBuffer | None = None, text: str = "") -> tuple[Work, Settle]:
    """Return a task that has returned 42 and the name of an exception, with its final outcome."""
    sink: Any = None
    work = Work(CODE, encode_call((), {}, "cell"), TaskFuture(), sink, stream=stream, task=7, nodes=[1])
    work.error, work.reason, work.seconds = error, text, 0.5
    end = final(work, Settle(7, "value"))
    settle(work, end.outcome, end.reason, EncodedResult(Payload(dumps(42))))
    return work, end


@pytest.mark.parametrize(
    ("error", "text", "outcome", "state", "reason"),
    [
        ("", "", "value", "done", ""),
        ("ZeroDivisionError", "division by zero", "raised", "failed", "ZeroDivisionError: division by zero"),
        ("StopIteration", "", "raised", "failed", "StopIteration"),
    ],
)
def test_caller_gets_the_result_and_history_the_failure(
    error: str, text: str, outcome: str, state: str, reason: str
) -> None:
    work, end = ended(error, text=text)
    assert end.reason == text, "the event has the type of the exception in another field"
    assert end.outcome == outcome
    assert work.future.result() == 42
    record = TaskHistory({}, lambda _: None)
    record.ended(work, end.outcome, end.reason)
    (view,) = record.tasks(10)
    assert (view.state, view.reason, view.node) == (state, reason, 1)
    run = Run(work.future, lambda: [work], None)
    assert (run.state, run.failed, run.size) == (state, int(state == "failed"), 1)


def test_stream_returns_the_result_after_its_elements() -> None:
    stream = StreamBuffer()
    work, _ = ended("ZeroDivisionError", stream)
    with pytest.raises(StopIteration) as end:
        stream.take()
    assert end.value.value == 42
    assert Run(work.future, lambda: [work], stream).failed == 1


def test_timeout_stays_a_timeout_after_a_later_exception() -> None:
    work, _ = ended("ZeroDivisionError")
    assert final(work, Settle(7, "timeout")).outcome == "timeout"
