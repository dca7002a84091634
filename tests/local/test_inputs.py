"""Large arguments and input streams on real nodes, in any order of arrival."""

from collections.abc import Iterator

import numpy as np
import pytest

import skyward as sky

pytestmark = pytest.mark.local


@sky.function
def first_and_sum(array: "np.ndarray[tuple[int], np.dtype[np.uint8]]", numbers: Iterator[int]) -> tuple[int, int]:
    return int(array[0]), sum(numbers)


@sky.function
def message_of(numbers: Iterator[int]) -> tuple[int, int]:
    total = 0
    try:
        for number in numbers:
            total += number
    except ValueError as error:
        return total, len(str(error))
    raise AssertionError("the stream ended without its error")


@sky.function
def slow_first(array: "np.ndarray[tuple[int], np.dtype[np.uint8]]") -> int:
    import time

    time.sleep(0.02)
    return int(array[0])


def test_elements_wait_for_the_arguments_of_their_task(each_executor: sky.Compute) -> None:
    array = np.full(50_000_000, 5, np.uint8)
    call = first_and_sum(array, iter([1, 2, 3]))
    assert (call >> each_executor) == (5, 6)


def test_error_of_an_input_stream_may_be_large(each_executor: sky.Compute) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise ValueError("x" * 200_000)

    assert (message_of(numbers()) >> each_executor) == (1, 200_000)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_blob_of_a_queued_task_is_not_evicted_for_another(executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.control.act.nodes.node.BLOB_BUDGET", 1_500_000)
    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=4, executor=executor)) as pool:  # type: ignore[arg-type]  # of a parameter
        calls = [slow_first(np.full(1_000_000, number, np.uint8)) for number in range(30)]
        assert [future.result(30) for future in [pool.submit(call) for call in calls]] == list(range(30))
