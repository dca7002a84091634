"""Futures awaited and streams read in coroutines, on real nodes: no thread waits, and a cancel stops the task."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from tests.local import tasks
from tests.local.kernel import Kernel, started
from tests.local.test_stopping import stands_still
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def test_future_can_be_awaited(pool: sky.Compute) -> None:
    async def ask() -> tuple[int, tuple[int, str]]:
        return await (tasks.add(1, 2) > pool), await ((tasks.add(3, 4) & tasks.sleep(0.01)) > pool)

    assert asyncio.run(ask()) == (3, (7, "slept"))


def test_calls_and_groups_are_gathered_by_asyncio() -> None:
    async def ask() -> tuple[Any, Any]:
        async with sky.Compute(provider=sky.Local(), nodes=1, console=False):
            sums = await asyncio.gather(tasks.add(1, 2), tasks.add(1, 2))
            return sums, await asyncio.gather(sky.gang(tasks.add(1, 2)), sky.gather(tasks.add(1, 2), tasks.add(3, 4)))

    assert asyncio.run(ask()) == ([3, 3], [(3,), (3, 7)])


def test_many_futures_are_awaited_without_a_thread_each(pool: sky.Compute) -> None:
    async def ask() -> list[int]:
        results = asyncio.gather(*(tasks.add(i, i) > pool for i in range(50)))
        await asyncio.sleep(0)
        threads.append({thread.name for thread in threading.enumerate()})
        return await results

    threads = [{thread.name for thread in threading.enumerate()}]
    assert asyncio.run(ask()) == [2 * i for i in range(50)]
    before, meanwhile = threads
    assert meanwhile <= before


def test_await_raises_the_error_of_the_task(pool: sky.Compute) -> None:
    async def ask() -> None:
        with pytest.raises(ValueError, match="^bad") as caught:
            await (tasks.fail("bad") > pool)
        assert isinstance(caught.value.__cause__, sky.RemoteTraceback)

    asyncio.run(ask())


def test_cancelled_coroutine_stops_its_task(pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"

    async def ask() -> None:
        future = tasks.heartbeat(str(beat), 60) > pool
        asking = asyncio.ensure_future(future)
        await asyncio.to_thread(wait_for, beat.exists, "the task to run")
        assert future.running()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        with pytest.raises(sky.TaskCancelledError):
            await future

    asyncio.run(ask())
    assert stands_still(beat)


def test_stream_is_read_with_async_for(each_executor: sky.Compute) -> None:
    async def read() -> tuple[list[int], list[int]]:
        large = [len(block) async for block in tasks.blocks(3, 2_000_000) >> each_executor]
        return [number async for number in tasks.count(1000) >> each_executor], large

    assert asyncio.run(read()) == (list(range(1000)), [2_000_000] * 3)


def test_future_of_a_stream_is_awaited_and_read(pool: sky.Compute) -> None:
    async def read() -> list[int]:
        return [number async for number in await (tasks.count(3) > pool)]

    assert asyncio.run(read()) == [0, 1, 2]


def test_error_of_a_stream_follows_its_elements(pool: sky.Compute) -> None:
    taken = []

    async def read() -> None:
        async for number in tasks.count_then_fail(3) >> pool:
            taken.append(number)

    with pytest.raises(RuntimeError, match="^the generator broke"):
        asyncio.run(read())
    assert taken == [0, 1, 2]


def test_leaving_a_stream_stops_its_generator(pool: sky.Compute, tmp_path: Path) -> None:
    closed, again = tmp_path / "closed", tmp_path / "again"

    async def read() -> None:
        async with contextlib.aclosing(tasks.forever(str(closed)) >> pool) as stream:
            async for number in stream:
                if number == 3:
                    break
        async for number in tasks.forever(str(again)) >> pool:
            if number == 3:
                break

    asyncio.run(read())
    wait_for(lambda: closed.exists() and again.exists(), "the generators to be closed")


def test_streamed_group_is_read_with_async_for(pool: sky.Compute) -> None:
    async def read() -> list[list[object]]:
        calls = [tasks.sleep(1), tasks.add(1, 1), tasks.add(2, 2)]
        unordered = sky.gather(*calls, stream=True, ordered=False) >> pool
        ordered = sky.gather(*(tasks.add(i, 0) for i in range(20)), stream=True) >> pool
        return [[each async for each in ordered], [each async for each in unordered]]

    assert asyncio.run(read()) == [list(range(20)), [2, 4, "slept"]]


def test_leaving_a_streamed_group_stops_the_others(pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"

    async def read() -> None:
        calls: list[sky.PendingFunction[object]] = [tasks.add(1, 1), tasks.heartbeat(str(beat), 60)]
        async for result in sky.gather(*calls, stream=True) >> pool:
            assert result == 2
            await asyncio.to_thread(wait_for, beat.exists, "the other task to run")
            break

    asyncio.run(read())
    wait_for(lambda: stands_still(beat), "the other task to stop")


def test_first_error_of_a_streamed_group_stops_the_others(pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"

    async def read() -> None:
        calls: list[sky.PendingFunction[object]] = [tasks.heartbeat(str(beat), 60), tasks.fail("bad")]
        async for _ in sky.gather(*calls, stream=True, ordered=False) >> pool:
            pytest.fail("neither returns")

    with pytest.raises(ValueError, match="^bad"):
        asyncio.run(read())
    wait_for(lambda: not beat.exists() or stands_still(beat), "the other task to stop")


def test_running_is_true_while_a_node_has_the_task(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with sky.Compute(nodes=1) as pool:
        first = tasks.wait_for_file(str(go)) > pool
        second = tasks.wait_for_file(str(go)) > pool
        both = (tasks.add(1, 1) & tasks.wait_for_file(str(go))) > pool
        wait_for(first.running, "the first to run")
        assert not second.running()
        assert not both.running()
        go.touch()
        assert (first.result(), second.result(), both.result()) == (None, None, (2, None))
        assert not first.running()


# In a kernel, on its own loop.


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started() as kernel:
        kernel(
            "import skyward as sky, time, pathlib\npool = sky.Compute(nodes=2).open()\n"
            "@sky.function\ndef double(x): return 2 * x\n"
            "@sky.function\ndef count(n):\n    yield from range(n)\n"
            "@sky.function\ndef beat(path):\n"
            "    while True:\n        pathlib.Path(path).write_text(str(time.monotonic()))\n        time.sleep(0.01)\n"
        )
        yield kernel
        kernel("pool.close()")


@pytest.mark.notebooks
def test_cell_awaits_a_future_and_reads_a_stream(kernel: Kernel) -> None:
    assert kernel("await (double(21) > pool)").data == ["42"]
    assert kernel("[x async for x in count(4) >> pool]").data == ["[0, 1, 2, 3]"]
    assert kernel("async for x in count(2) >> pool:\n    print(x)").text() == "0\n1\n"


@pytest.mark.notebooks
def test_interrupt_of_an_awaiting_cell_stops_the_task(kernel: Kernel, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    cell = kernel(f"await (beat({str(beat)!r}) > pool)", interrupt_when=lambda _: beat.exists())
    assert cell.error[0] in ("CancelledError", "KeyboardInterrupt")
    assert kernel("await (double(1) > pool), await (double(2) > pool)").data == ["(2, 4)"], "both nodes are free"
    assert stands_still(beat)
