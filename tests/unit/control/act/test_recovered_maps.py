"""Results of recovered tasks that ran several calls of a map."""

from typing import Any

import pytest

from skyward.control.act.pool_tasks import PoolTasks
from skyward.control.act.recovered_tasks import RecoveredTask, recover
from skyward.control.act.tasks.future import EncodedResult
from skyward.wire.failures.failure import capture_failure
from skyward.wire.payloads.outcomes import SeriesOutcomes
from skyward.wire.payloads.payload import Packed, encode, encode_result
from skyward.wire.protocol.messages import KnownTask

pytestmark = pytest.mark.unit


def recovered(value: object) -> RecoveredTask:
    """Return a recovered task that returned `value`."""
    runner: Any = object.__new__(PoolTasks)  # an ended task needs none
    task, work = recover(KnownTask(1, "square", False, ()), runner)
    work.future.set_result(EncodedResult(encode(value).payload))
    return task


def test_result_is_the_list_of_the_results_of_the_calls() -> None:
    data, views = encode_result([4])
    assert recovered(SeriesOutcomes([1, Packed(data, tuple(views)), 9])).result() == [1, [4], 9]
    assert recovered([1, 2]).result() == [1, 2]


def test_error_of_a_call_is_raised() -> None:
    failure = capture_failure(ValueError("bad"), 0)
    with pytest.raises(ValueError, match="bad") as caught:
        recovered(SeriesOutcomes([1, failure, 9])).result()
    assert caught.value.__notes__ == ["It was raised by call 1 of the 3 in its task."]


def test_calls_that_did_not_run_are_reported() -> None:
    with pytest.warns(
        RuntimeWarning, match=r"^square\(\) was called 5 times in one task of a map, and the last 3 calls"
    ):
        assert recovered(SeriesOutcomes([1, 4], unrun=3)).result() == [1, 4]
