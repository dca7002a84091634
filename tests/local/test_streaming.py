"""Streams out, in, and in both directions, on real nodes."""

import asyncio
import itertools
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local


def test_elements_arrive_in_order(each_executor: sky.Compute) -> None:
    assert list(tasks.count(10_000) >> each_executor) == list(range(10_000))


def test_generator_that_raises_delivers_its_elements_first(each_executor: sky.Compute) -> None:
    got = []
    with pytest.raises(RuntimeError, match="^the generator broke$"):
        for number in tasks.count_then_fail(1000) >> each_executor:
            got.append(number)
    assert got == list(range(1000))


def test_break_stops_the_generator(each_executor: sky.Compute, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    for number in tasks.forever(str(closed)) >> each_executor:
        if number == 10:
            break
    wait_for(closed.exists, "the generator's finally block to run")


def test_close_stops_the_generator(pool: sky.Compute, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    stream = pool.start(tasks.forever(str(closed))).items()
    assert next(stream) == 0
    stream.close()
    stream.close()
    assert list(stream) == []
    wait_for(closed.exists, "the generator's finally block to run")


def test_slow_consumer_throttles_the_generator(pool: sky.Compute, tmp_path: Path) -> None:
    """The node stops at its window: far fewer elements arrive than it could have made."""
    made = tmp_path / "made"

    @sky.function
    def busy() -> Iterator[int]:
        for number in range(1_000_000):
            if number % 1000 == 0:
                with made.open("a") as file:
                    file.write(f"{number}\n")  # written at once, so that a reader sees complete lines
            yield number

    stream = pool.start(busy()).items()
    next(stream)
    assert tasks.add(1, 1) >> pool == 2
    assert int(made.read_text().split()[-1]) <= 8192
    stream.close()


def test_large_elements_arrive_in_order(each_executor: sky.Compute) -> None:
    sizes = [(block[0], len(block)) for block in tasks.blocks(40, 1_000_000) >> each_executor]
    assert sizes == [(index, 1_000_000) for index in range(40)]


def test_iterator_passed_by_position_is_streamed(each_executor: sky.Compute) -> None:
    assert tasks.total(iter(range(10_000))) >> each_executor == sum(range(10_000))


def test_iterator_passed_by_keyword_is_streamed(each_executor: sky.Compute) -> None:
    assert tasks.total(scale=2, numbers=iter(range(100))) >> each_executor == 2 * sum(range(100))


def test_large_elements_of_an_input_stream_arrive_in_order(pool: sky.Compute) -> None:
    @sky.function
    def sizes(chunks: Iterator[bytes]) -> list[int]:
        return [len(chunk) for chunk in chunks]

    assert sizes(bytes(500_000) for _ in range(30)) >> pool == [500_000] * 30


def test_endless_input_is_read_no_further_than_needed(pool: sky.Compute) -> None:
    taken = itertools.count()
    assert tasks.first((next(taken) for _ in itertools.count()), 5) >> pool == [0, 1, 2, 3, 4]
    assert next(taken) < 10_000


def test_input_that_raises_raises_in_the_task_and_at_the_client(each_executor: sky.Compute) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise LookupError("no more data")

    with pytest.raises(LookupError, match="no more data"):
        tasks.total(broken()) >> each_executor


def test_inputs_and_outputs_stream_concurrently(each_executor: sky.Compute) -> None:
    assert list(tasks.doubled(iter(range(5000))) >> each_executor) == list(range(0, 10_000, 2))


def test_elements_do_not_wait_for_the_next_input(each_executor: sky.Compute) -> None:
    """A conversation: each input depends on the output before it."""
    replies: list[int] = [1]
    ready = threading.Semaphore(1)

    def inputs() -> Iterator[int]:
        for _ in range(50):
            ready.acquire()
            yield replies[-1] % 1000

    for reply in tasks.doubled(inputs()) >> each_executor:
        replies.append(reply)
        ready.release()
    assert len(replies) == 51
    assert replies[:4] == [1, 2, 4, 8]


def test_gather_returns_streams(pool: sky.Compute) -> None:
    one, two = sky.gather(tasks.count(3), tasks.count(4)) >> pool
    assert (list(one), list(two)) == ([0, 1, 2], [0, 1, 2, 3])


def test_future_of_a_group_has_streams(pool: sky.Compute) -> None:
    many = 100_000  # more than the window, so that it ends only when it is read
    future: Any = sky.gather(tasks.count(many), tasks.add(1, 2), tasks.count(2)) > pool
    one, two, three = future.result(30)
    assert (sum(1 for _ in one), two, list(three)) == (many, 3, [0, 1])
    first, second = (sky.gather(tasks.count(2), tasks.count(3)) > pool).result(30)
    assert (list(first), list(second)) == ([0, 1], [0, 1, 2])


@pytest.mark.parametrize("ordered", [True, False])
def test_streamed_group_yields_streams(pool: sky.Compute, ordered: bool) -> None:
    group = sky.gather(tasks.count(3), tasks.count(4), stream=True, ordered=ordered) >> pool
    assert [list(stream) for stream in group] == [[0, 1, 2], [0, 1, 2, 3]]
    one, two = list(sky.gather(tasks.count(5), tasks.count(6), stream=True, ordered=ordered) >> pool)
    assert (list(one), list(two)) == (list(range(5)), list(range(6))), "the streams ended with the group"

    async def ask() -> list[int]:
        streams: Any = sky.gather(tasks.count(2), tasks.count(3), stream=True, ordered=ordered) >> pool
        return [number async for stream in streams async for number in stream]

    assert asyncio.run(ask()) == [0, 1, 0, 1, 2]


def test_failing_group_stops_its_streams(pool: sky.Compute, tmp_path: Path) -> None:
    future = sky.gather(tasks.count(10_000_000), tasks.fail("bad")) > pool
    with pytest.raises(ValueError, match="^bad"):
        future.result(30)
    wait_for(lambda: not pool.snapshot().running, "the stream to be stopped")


def test_future_of_a_stream_yields_its_elements(pool: sky.Compute) -> None:
    assert list((tasks.count(3) > pool).result(30)) == [0, 1, 2]


def test_return_value_of_a_generator_ends_the_stream(pool: sky.Compute) -> None:
    @sky.function
    def numbered() -> Generator[int, None, str]:
        yield 1
        return "the end"

    def relay() -> Iterator[int]:
        stream: Any = numbered() >> pool
        ended.append((yield from stream))

    ended: list[object] = []
    assert list(relay()) == [1]
    assert ended == ["the end"]


def test_stream_fails_with_its_node_after_the_received_elements(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with sky.Compute(nodes=1) as pool:
        got = []
        with pytest.raises(sky.NodeLostError, match=r"^yield_then_die\(\) did not finish: node 0 died: .*SIGKILL\.$"):
            for number in tasks.yield_then_die(5, str(go)) >> pool:
                got.append(number)
                if number == 4:
                    go.touch()
        assert got == [0, 1, 2, 3, 4]


def test_broadcast_generator_gives_one_stream_of_ranks_and_elements(pool: sky.Compute) -> None:
    elements = list(tasks.count(3) @ pool)
    assert sorted(elements) == [(rank, number) for rank in range(2) for number in range(3)]
    assert [number for rank, number in elements if rank == 1] == [0, 1, 2]


def test_elements_of_one_node_do_not_wait_for_those_of_others(pool: sky.Compute, tmp_path: Path) -> None:
    """Node 1 yields nothing before node 0's elements were read."""
    go = tmp_path / "go"

    @sky.function
    def in_turn() -> Iterator[str]:
        if sky.instance_info().node:
            while not go.exists():
                time.sleep(0.01)
        yield "first"

    with in_turn() @ pool as stream:
        assert next(stream) == (0, "first")
        go.touch()
        assert next(stream) == (1, "first")
        assert next(stream, "end") == "end"


def test_lost_node_of_a_broadcast_stream_is_an_error_though_it_is_replaced(tmp_path: Path) -> None:
    @sky.function
    def yield_and_die() -> Iterator[int]:
        yield os.getpid()
        dies = sky.instance_info().node == 1
        while not (tmp_path / ("arrived" if dies else "replaced")).exists():
            time.sleep(0.01)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        yield 0

    with sky.Compute(nodes=2) as pool:
        stream = yield_and_die() @ pool
        found = dict([next(stream), next(stream)])
        (tmp_path / "arrived").touch()
        wait_for(lambda: pool.start(tasks.pid(), on=1).future.result(60) != found[1], "a new node 1")
        (tmp_path / "replaced").touch()
        rest: list[tuple[int, int]] = []
        with pytest.raises(sky.NodeLostError, match="node 1 died"):
            rest.extend(stream)
    assert rest == [(0, 0)]


def test_closed_broadcast_stream_has_ended(pool: sky.Compute) -> None:
    stream = tasks.count(10**9) @ pool
    next(stream)
    stream.close()
    assert next(stream, "end") == "end"


def test_error_of_one_node_follows_all_elements_of_a_broadcast(pool: sky.Compute) -> None:
    @sky.function
    def half() -> Iterator[int]:
        yield 1
        if sky.instance_info().node == 1:
            raise ValueError("only half")
        yield 2

    found: list[tuple[int, int]] = []
    with pytest.raises(ValueError, match="only half"):
        found.extend(half() @ pool)
    assert sorted(found) == [(0, 1), (0, 2), (1, 1)]


def test_broadcast_stream_in_a_coroutine(pool: sky.Compute) -> None:
    async def read() -> list[tuple[int, int]]:
        return [element async for element in tasks.count(100) @ pool]

    assert sorted(asyncio.run(read())) == [(rank, number) for rank in range(2) for number in range(100)]


def test_dropped_broadcast_stream_stops_its_generators(pool: sky.Compute) -> None:
    stream = tasks.count(10**9) @ pool
    next(stream)
    del stream
    assert tasks.add(1, 1) @ pool == [2, 2]
