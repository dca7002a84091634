"""A task sees big arrays as they were when it was sent, however late it runs, on real nodes and in a real kernel."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import skyward as sky
from skyward.link.bulk import BulkLane
from skyward.wire.protocol.messages import Blob
from tests.local.kernel import started
from tests.local.tasks import wait_for_file
from tests.waiting import interrupt_when

pytestmark = pytest.mark.local

SIZE = 200_000  # 1.6 MB, which is sent as a blob
ones = np.ones(SIZE)


@pytest.fixture(autouse=True)
def _whole() -> None:
    ones[:] = 1


@sky.function
def total_of_global() -> float:
    return float(ones.sum())


@sky.function
def total_of_default(array: npt.NDArray[np.float64] = ones) -> float:
    return float(array.sum())


@sky.function
def total(array: npt.NDArray[np.float64]) -> float:
    return float(array.sum())


@sky.function
def totals(array: npt.NDArray[np.float64], count: int) -> Iterator[float]:
    for _ in range(count):
        yield float(array.sum())


@pytest.mark.parametrize("kind", ["global", "default", "argument"])
def test_array_changed_before_its_task_starts_arrives_as_it_was(
    one_slot: sky.Compute, tmp_path: Path, kind: str
) -> None:
    def call() -> sky.PendingFunction[float]:
        return {"global": total_of_global(), "default": total_of_default(), "argument": total(ones)}[kind]

    gate = wait_for_file(str(tmp_path / "go")) > one_slot
    alone, group = call() > one_slot, sky.gather(call(), call()) > one_slot
    everywhere = one_slot.start(call(), on="all").future
    one_by_one = sky.gather(call(), call(), stream=True) >> one_slot
    ones[:] = 0
    (tmp_path / "go").touch()
    assert gate.result() is None
    assert alone.result() == SIZE
    assert group.result() == (SIZE, SIZE)
    assert everywhere.result() == [SIZE]
    assert list(one_by_one) == [SIZE, SIZE]


def test_stream_sees_the_array_as_it_was(one_slot: sky.Compute, tmp_path: Path) -> None:
    gate = wait_for_file(str(tmp_path / "go")) > one_slot
    stream = totals(ones, 2) >> one_slot
    ones[:] = 0
    (tmp_path / "go").touch()
    assert gate.result() is None
    assert list(stream) == [SIZE, SIZE]


def test_coroutine_that_continues_changes_nothing_for_the_task(one_slot: sky.Compute, tmp_path: Path) -> None:
    async def ask() -> float:
        gate = wait_for_file(str(tmp_path / "go")) > one_slot
        asking = asyncio.ensure_future(_awaited(total(ones) > one_slot))
        await asyncio.sleep(0)
        ones[:] = 0
        (tmp_path / "go").touch()
        await gate
        return await asking

    assert asyncio.run(ask()) == SIZE


async def _awaited(future: "sky.TaskFuture[float]") -> float:
    return await future


def test_array_in_transfer_when_the_wait_was_interrupted_is_not_reused(
    one_slot: sky.Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner may have changed it: the node drops it."""
    begun, go = threading.Event(), threading.Event()
    original = BulkLane._exchange

    def slowly(lane: BulkLane, verb: bytes, blob: Blob, view: memoryview | None = None) -> memoryview:
        if view is not None and blob.size == ones.nbytes:
            begun.set()
            go.wait(30)
        return original(lane, verb, blob, view)

    ones[:] = 2  # which the node does not have yet
    monkeypatch.setattr(BulkLane, "_exchange", slowly)
    with pytest.raises(KeyboardInterrupt), interrupt_when(begun.is_set, "the transfer to begin"):
        total(ones) >> one_slot
    again = total(ones) > one_slot
    ones[:] = 0
    go.set()
    assert again.result(30) == 2 * SIZE
    ones[:] = 2
    assert total(ones) >> one_slot == 2 * SIZE


def test_background_cell_sees_the_array_as_it_was(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with started() as kernel:
        kernel(f"import os, time\nimport numpy as np\narray = np.ones({SIZE})\nother = np.ones({SIZE})")
        kernel(
            f"%%sky --noblock --no-capture\nimport os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)"
        )
        kernel("handle = get_ipython().run_cell_magic('sky', '--noblock --quiet', 'float(array.sum())')\narray[:] = 0")
        go.touch()
        assert kernel("handle.result()").data[-1] == f"{SIZE}.0"
