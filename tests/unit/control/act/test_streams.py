"""Streams on the client, in both directions: order, ends, errors, and at most one window in transit."""

import asyncio
import contextlib
import gc
import itertools
import math
import pickle
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward.control.act.tasks.streams import Feeder, RemoteIterator, StreamBuffer, feeder
from skyward.wire.failures.failure import Failure
from skyward.wire.payloads.payload import Outgoing, decode, encode, outgoing
from skyward.wire.protocol.flow import WINDOW, cost
from skyward.wire.protocol.messages import Blob, Payload

pytestmark = pytest.mark.unit

SMALL = 16 * 1024
"""Bytes that cost one unit of credit, in addition to that of the element."""


class Wires:
    """A buffer, and its messages to the node."""

    def __init__(self) -> None:
        self.buffer = StreamBuffer()
        self.granted: list[int] = []
        self.stops = 0
        self.dropped: list[bytes] = []
        self.slow = False
        self.fetches: list[Future[memoryview]] = []
        self.buffer.connect(self.granted.append, self.fetch, self.dropped.extend, self.stop)

    def fetch(self, blob: Blob) -> Future[memoryview]:
        data = encode(blob.key).payload.data
        assert isinstance(data, bytes)  # too small for a blob
        self.fetches.append(fetch := Future[memoryview]())
        if not self.slow:
            fetch.set_result(memoryview(data))
        return fetch

    def stop(self) -> None:
        self.stops += 1

    def arrive(self, *values: object) -> None:
        self.buffer.arrive(tuple(encode(value).payload for value in values))


@pytest.fixture
def wires() -> Wires:
    return Wires()


# Elements that arrive.


def test_elements_arrive_in_order_and_the_end_has_the_return_value(wires: Wires) -> None:
    wires.arrive(1, 2)
    wires.arrive(3)
    wires.buffer.finish(lambda: "returned")
    stream = RemoteIterator(wires.buffer)
    assert [next(stream), next(stream), next(stream)] == [1, 2, 3]
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value == "returned"
    with pytest.raises(StopIteration) as end:
        next(stream)
    assert end.value.value is None


def test_error_is_raised_once_after_all_elements(wires: Wires) -> None:
    def fail() -> None:
        raise LookupError("there")

    wires.arrive(1)
    wires.buffer.finish(fail)
    stream = RemoteIterator(wires.buffer)
    assert next(stream) == 1
    with pytest.raises(LookupError, match="^there$"):
        next(stream)
    assert list(stream) == []


def test_take_waits_for_an_element_and_for_the_end(wires: Wires) -> None:
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(wires.buffer.take)
        wires.arrive("x")
        assert taken.result(10) == "x"
        rest = threads.submit(lambda: list(RemoteIterator(wires.buffer)))
        wires.buffer.finish(lambda: None)
        assert rest.result(10) == []


def test_only_the_first_end_counts(wires: Wires) -> None:
    wires.buffer.finish(lambda: "first")
    wires.buffer.finish(lambda: "second")
    wires.arrive("too late")
    with pytest.raises(StopIteration) as end:
        wires.buffer.take()
    assert end.value.value == "first"


def test_large_elements_are_fetched_from_the_node(wires: Wires) -> None:
    wires.buffer.arrive((Payload(Blob(b"content", 1 << 20)),))
    assert wires.buffer.take() == b"content"


# In a coroutine.


def test_coroutine_takes_elements_as_they_arrive(wires: Wires) -> None:
    async def read() -> list[object]:
        loop = asyncio.get_running_loop()
        later = iter([lambda: wires.arrive(1), lambda: wires.arrive(2, 3), lambda: wires.buffer.finish(lambda: "end")])
        taken = []
        loop.run_in_executor(None, next(later))
        async for element in RemoteIterator(wires.buffer):
            taken.append(element)
            if element != 2:
                loop.run_in_executor(None, next(later))
        return taken

    assert asyncio.run(read()) == [1, 2, 3]


def test_coroutine_gets_the_error_and_then_the_end_of_the_stream(wires: Wires) -> None:
    def fail() -> None:
        raise LookupError("there")

    async def read() -> list[object]:
        stream = RemoteIterator(wires.buffer)
        with pytest.raises(LookupError, match="^there$"):
            await anext(stream)
        return [element async for element in stream]

    wires.buffer.finish(fail)
    assert asyncio.run(read()) == []


def test_cancelled_coroutine_has_taken_no_element(wires: Wires) -> None:
    async def read() -> None:
        stream = RemoteIterator(wires.buffer)
        taking = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        wires.arrive("kept")
        assert await anext(stream) == "kept"

    asyncio.run(read())


def test_large_element_is_fetched_once_without_blocking_other_coroutines(wires: Wires) -> None:
    wires.slow = True
    wires.buffer.arrive((Payload(Blob(b"content", 1 << 20)),))

    async def read() -> None:
        stream = RemoteIterator(wires.buffer)
        taking = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)  # the coroutine runs until it waits
        assert not taking.done()
        (fetch,) = wires.fetches
        fetch.set_result(memoryview(pickle.dumps("content")))
        assert await taking == "content"
        assert wires.dropped == [b"content"]

    asyncio.run(read())
    assert len(wires.fetches) == 1


def test_element_fetched_for_a_cancelled_coroutine_goes_to_the_next_taker(wires: Wires) -> None:
    wires.slow = True
    wires.buffer.arrive((Payload(Blob(b"content", 1 << 20)),))

    async def read() -> None:
        taking = asyncio.ensure_future(wires.buffer.take_soon())
        await asyncio.sleep(0)  # the coroutine runs until it waits
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        wires.slow = False
        assert await wires.buffer.take_soon() == b"content"

    asyncio.run(read())


def test_threads_and_coroutines_share_a_stream(wires: Wires) -> None:
    async def read() -> list[object]:
        return [element async for element in RemoteIterator(wires.buffer)]

    with ThreadPoolExecutor(2) as threads:
        readers = [threads.submit(lambda: list(RemoteIterator(wires.buffer))), threads.submit(asyncio.run, read())]
        for number in range(500):
            wires.arrive(number)
        wires.buffer.finish(lambda: None)
        parts = [reader.result(10) for reader in readers]
    assert sorted(itertools.chain(*parts)) == list(range(500))
    assert parts == [sorted(part) for part in parts]


def test_aclosing_stops_the_task(wires: Wires) -> None:
    async def read() -> None:
        wires.arrive(1)
        async with contextlib.aclosing(RemoteIterator(wires.buffer)) as stream:
            assert await anext(stream) == 1

    asyncio.run(read())
    assert wires.stops == 1


def test_closing_stops_the_task_once_and_drops_what_arrives(wires: Wires) -> None:
    wires.arrive(1, 2)
    with RemoteIterator(wires.buffer) as stream:
        assert next(stream) == 1
    stream.close()
    wires.arrive(3)
    wires.buffer.finish(lambda: "value")
    assert list(stream) == []
    assert wires.stops == 1


def test_ended_stream_is_not_stopped(wires: Wires) -> None:
    wires.buffer.finish(lambda: None)
    RemoteIterator(wires.buffer).close()
    assert wires.stops == 0


def test_dropped_iterator_stops_its_task(wires: Wires) -> None:
    stream = RemoteIterator(wires.buffer)
    assert stream is not None
    del stream
    gc.collect()
    assert wires.stops == 1


def test_generator_is_paused_from_its_report_until_it_gets_credit(
    wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wires.buffer, "_credit_at", math.inf)
    wires.arrive(1, 2)
    assert not wires.buffer.paused()
    wires.buffer.pause(WINDOW)
    assert wires.buffer.paused()
    wires.buffer.take()
    assert wires.buffer.paused(), "one element costs too little for credit at once"
    wires.buffer.take()
    wires.arrive(3)
    assert wires.granted == [2]
    assert not wires.buffer.paused()
    wires.buffer.pause(WINDOW)  # sent before the credit arrived
    assert not wires.buffer.paused()
    wires.buffer.pause(WINDOW + 2)
    assert wires.buffer.paused()
    wires.buffer.close()
    assert not wires.buffer.paused()


def test_pause_is_unknown_for_a_stream_with_credit_of_another_process() -> None:
    buffer = StreamBuffer(granted=None)
    assert buffer.paused() is False
    buffer.arrive((encode(1).payload,))
    buffer.pause(WINDOW)
    assert buffer.paused() is None


def test_reader_is_the_last_taking_thread_and_none_once_it_is_gone(wires: Wires) -> None:
    wires.arrive(1, 2)
    assert wires.buffer.reader is None, "the thread that started the stream is not its reader"
    thread = threading.Thread(target=wires.buffer.take)
    thread.start()
    thread.join()
    del thread
    gc.collect()
    assert wires.buffer.reader is None
    wires.buffer.take()
    assert wires.buffer.reader is threading.current_thread()


def test_feeder_knows_the_streams_that_its_source_will_read(wires: Wires) -> None:
    stream, other = RemoteIterator(wires.buffer), RemoteIterator(StreamBuffer())
    other.buffer.finish(lambda: None)
    for source in (
        stream,
        map(abs, stream),
        zip(stream, [1], strict=False),
        (x for x in stream),
        iter(map(str, stream)),
    ):
        assert feeder(source).reads() == {wires.buffer}
    assert feeder(zip(stream, map(abs, other), strict=False)).reads() == {wires.buffer, other.buffer}
    assert feeder(iter([1, 2])).reads() == set()


@given(st.lists(st.sampled_from([0, SMALL, 100 * SMALL, 2 * WINDOW * SMALL]), max_size=60), st.randoms())
@settings(max_examples=60)
def test_at_most_one_window_is_in_transit_and_nothing_gets_stuck(sizes: list[int], random: Any) -> None:
    """The simulated node sends as `Job.take_credit` allows."""
    wires = Wires()
    payloads = [Payload(Blob(bytes([number]), size)) for number, size in enumerate(sizes)]
    left, room, under_way = deque(payloads), WINDOW, 0
    taken: list[bytes] = []
    while len(taken) < len(payloads):
        can_send = bool(left) and (room >= cost(left[0]) or room >= WINDOW)
        if can_send and (random.random() < 0.8 or not under_way):
            payload = left.popleft()
            room -= cost(payload)
            under_way += 1
            wires.buffer.arrive((payload,))
        else:
            assert under_way, "the client has taken everything, and the node has no credit"
            taken.append(wires.buffer.take())
            under_way -= 1
        room += sum(wires.granted)
        wires.granted.clear()
        assert 0 <= room <= WINDOW
    assert taken == [payload.data.key for payload in payloads if isinstance(payload.data, Blob)]
    assert room == WINDOW


# Iterators that feed a task.


class Taker:
    """Consumer of a feeder's elements, as the pool is."""

    def __init__(self, source: Iterator[Any]) -> None:
        self.feeder: Feeder = feeder(source)
        self.ready = threading.Condition()
        self.values: list[Any] = []
        self.over = False
        self.failure: Any = None
        self.feeder.start(self._take)

    def _take(self) -> None:
        items, over, failure = self.feeder.take()
        with self.ready:
            self.values += [_value(item) for item in items]
            self.over, self.failure = over, failure and _value(failure)
            self.ready.notify_all()

    def wait(self, *, count: int | None = None) -> None:
        """Wait until the feeder has ended, or has read `count` elements."""
        with self.ready:
            assert self.ready.wait_for(lambda: self.over or len(self.values) == count, 10)

    def end(self) -> None:
        self.feeder.stop()
        thread = self.feeder._thread
        assert thread is not None
        thread.join(10)
        assert not thread.is_alive()


def _value(sent: Outgoing) -> Any:
    return decode(sent.payload, lambda blob: sent.blobs[blob.key])


def test_elements_are_sent_in_order_until_the_end() -> None:
    values = [1, 2.5, "x", True, None, [1], {"a": (2,)}, bytes(200_000)]
    taker = Taker(iter(values))
    taker.wait()
    assert taker.values == values
    assert [type(value) for value in taker.values] == [type(value) for value in values]
    assert taker.failure is None
    taker.end()


def test_elements_are_sent_with_their_content_at_reading() -> None:
    def reuse() -> Iterator[pickle.PickleBuffer]:
        buffer = bytearray(200_000)
        for number in range(3):
            buffer[0] = number
            yield pickle.PickleBuffer(buffer)

    sent: list[Outgoing] = []
    over = threading.Event()

    def take() -> None:
        items, last, _ = reading.take()
        sent.extend(items)
        if last:
            over.set()

    reading = feeder(reuse())
    reading.start(take)
    assert over.wait(10)
    reading.stop()
    assert [_value(item)[0] for item in sent] == [0, 1, 2]


def test_feeder_reads_no_more_than_the_granted_credit() -> None:
    read = []

    def source() -> Iterator[int]:
        for number in itertools.count():
            read.append(number)
            yield number

    taker = Taker(source())
    taker.wait(count=WINDOW)
    taker.feeder.grant(10)
    taker.wait(count=WINDOW + 10)
    assert taker.values == list(range(WINDOW + 10))
    taker.end()
    assert len(read) <= WINDOW + 11  # one element is read and waits for credit


def test_element_larger_than_the_window_is_sent_alone() -> None:
    large = outgoing(bytes(2 * WINDOW * SMALL), ()).payload
    assert cost(large) == WINDOW
    taker = Taker(iter([0, bytes(2 * WINDOW * SMALL), 2]))
    taker.wait(count=1)
    taker.feeder.grant(1)
    taker.wait(count=2)
    taker.feeder.grant(WINDOW)
    taker.wait()
    assert [type(value) for value in taker.values] == [int, bytes, int]
    taker.end()


def test_error_of_the_iterator_comes_after_its_elements() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise LookupError("no more")

    taker = Taker(source())
    taker.wait()
    assert taker.values == [1]
    assert isinstance(taker.failure, Failure)
    error = taker.failure.rebuild()
    assert (type(error), error.args) == (LookupError, ("no more",))
    taker.end()


def test_unpicklable_element_ends_the_stream_and_is_named() -> None:
    taker = Taker(iter([1, threading.Lock(), 3]))
    taker.wait()
    assert taker.values == [1]
    assert "an element of the input stream cannot be sent to a node" in str(taker.failure.rebuild())
    taker.end()


def test_stopped_feeder_reads_no_further() -> None:
    taker = Taker(iter(range(2 * WINDOW)))
    taker.wait(count=WINDOW)
    taker.end()
    taker.feeder.grant(WINDOW)
    assert (len(taker.values), taker.over) == (WINDOW, False)


def test_feeder_reads_with_one_thread_however_often_it_is_started() -> None:
    taker = Taker(iter([1]))
    thread = taker.feeder._thread
    taker.feeder.start(lambda: None)  # the task is sent to another node
    assert taker.feeder._thread is thread
    taker.wait()
    taker.end()


def test_node_drops_each_large_element_once_taken_or_discarded(wires: Wires) -> None:
    blobs = [Payload(Blob(b"%d" % number, 1_000_000)) for number in range(4)]
    wires.buffer.arrive((blobs[0], blobs[1]))
    assert wires.buffer.take() == b"0"
    assert wires.dropped == [b"0"]
    wires.buffer.arrive((blobs[2],))
    wires.buffer.close()
    wires.buffer.arrive((blobs[3],))
    assert wires.dropped == [b"0", b"1", b"2", b"3"]
    wires.buffer.close()
    assert (wires.dropped, wires.stops) == ([b"0", b"1", b"2", b"3"], 1)


def test_elements_left_at_the_end_are_dropped_on_close(wires: Wires) -> None:
    wires.buffer.arrive((Payload(b"", (Blob(b"a", 100_000), b"inline", Blob(b"b", 100_000))),))
    wires.buffer.finish(lambda: None)
    wires.buffer.close()
    assert (wires.dropped, wires.stops) == ([b"a", b"b"], 0)
