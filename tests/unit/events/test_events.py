"""The event bus and its streams: delivery, order, and the cost of slow or vanished readers."""

import asyncio
import gc
import logging
import threading
import typing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyward as sky
from skyward import events as ev
from skyward.events.bus import KEPT, EventBus
from skyward.events.stream import EventStream
from skyward.process import background
from tests.waiting import wait_for

pytestmark = pytest.mark.unit


@pytest.fixture
def bus() -> Iterator[EventBus]:
    bus = EventBus("p")
    yield bus
    bus.end()


def stream(
    bus: EventBus, *kinds: type[ev.BaseEvent], replay: bool = False, size: int = 100
) -> EventStream[ev.BaseEvent]:
    return EventStream(bus.subscribe(*(kinds or (ev.BaseEvent,)), replay=replay, size=size), bus.unsubscribe)


def queue(bus: EventBus, *tasks: int) -> None:
    for task in tasks:
        bus.emit(ev.TaskQueued, task, "f")


def numbers(found: "typing.Iterable[ev.BaseEvent]") -> list[int]:
    return [event.task for event in found if isinstance(event, ev.TaskQueued)]


def test_every_kind_of_event_is_public_frozen_and_in_the_union() -> None:
    union = set(typing.get_args(ev.Event.__value__))
    bases = {ev.BaseEvent, ev.NodeEvent, ev.TaskEvent, ev.TaskEnded}
    classes = {kind for name in ev.__all__ if isinstance(kind := getattr(ev, name), type)} - {EventStream}
    assert classes == union | bases
    assert ev.Event is sky.events.Event
    event = ev.TaskQueued("p", 1, 0.0, 1, "f")
    with pytest.raises(AttributeError):
        event.task = 2  # type: ignore[misc]  # the mistake under test
    assert not hasattr(event, "__dict__")


def test_streams_have_events_in_order_and_end_after_the_last(bus: EventBus) -> None:
    first, second = stream(bus), stream(bus)
    queue(bus, 1, 2)
    bus.end()
    bus.emit(ev.PoolStopping)
    assert [event.number for event in first] == [1, 2]
    assert numbers(second) == [1, 2]


def test_filter_takes_classes_and_their_bases(bus: EventBus) -> None:
    ends, nodes = stream(bus, ev.TaskEnded), stream(bus, ev.NodeEvent, ev.PoolStopping)
    queue(bus, 1)
    bus.emit(ev.TaskCompleted, 1, "f", 0, 0.5)
    bus.emit(ev.NodeDraining, 0, 1)
    bus.emit(ev.PoolStopping)
    bus.end()
    assert [type(event) for event in ends] == [ev.TaskCompleted]
    assert [type(event) for event in nodes] == [ev.NodeDraining, ev.PoolStopping]


def test_late_subscriber_gets_new_events_only_unless_it_requests_a_replay(bus: EventBus) -> None:
    queue(bus, 1)
    bus.emit(ev.NodeDraining, 0, 1)
    late, replayed = stream(bus), stream(bus, replay=True)
    queue(bus, 2)
    bus.end()
    assert [event.number for event in late] == [3]
    assert [event.number for event in replayed] == [1, 2, 3]
    assert [event.number for event in stream(bus, ev.TaskEvent, replay=True)] == [1, 3]
    assert list(stream(bus)) == []


def test_burst_of_tasks_does_not_evict_node_events_from_the_replay(bus: EventBus) -> None:
    bus.emit(ev.NodeDraining, 0, 1)
    queue(bus, *range(KEPT + 10))
    bus.end()
    found = list(stream(bus, replay=True, size=KEPT + 10))
    assert isinstance(found[0], ev.NodeDraining)
    assert numbers(found) == list(range(10, KEPT + 10))


@given(st.lists(st.one_of(st.just("emit"), st.just("read")), max_size=60), st.integers(1, 5))
def test_reader_gets_every_event_or_the_number_dropped(steps: list[str], size: int) -> None:
    bus = EventBus("p")
    slow = stream(bus, size=size)
    emitted, known, waiting = 0, 0, 0
    for step in steps:
        if step == "emit":
            emitted += 1
            waiting = min(size, waiting + 1)
            queue(bus, emitted)
        elif waiting:
            event = slow.get(0)
            assert event is not None
            if isinstance(event, ev.EventsDropped):
                known += event.count
                assert event.number == known
                event = slow.get(0)
                assert event is not None
            known += 1
            assert event.number == known
            waiting -= 1
    bus.end()
    for event in slow:
        known += event.count if isinstance(event, ev.EventsDropped) else 1
        assert event.number == known
    assert known == emitted


def test_closed_reader_is_unsubscribed(bus: EventBus) -> None:
    with stream(bus) as left:
        queue(bus, 1)
        for _ in left:
            break
    assert list(left) == []
    dropped = stream(bus)
    del dropped
    gc.collect()
    assert not bus._buffers
    assert not bus._listeners


def test_closing_a_stream_wakes_its_readers(bus: EventBus) -> None:
    waited = stream(bus)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(list, waited)
        waited.close()
        assert reading.result(10) == []


def test_waiting_has_a_timeout(bus: EventBus) -> None:
    with stream(bus) as quiet, pytest.raises(TimeoutError):
        quiet.get(0.01)


def test_async_readers_wait_on_their_own_loop(bus: EventBus) -> None:
    async def read(first: EventStream[ev.BaseEvent]) -> list[int]:
        started.set()
        return [event.number async for event in first]

    async def both() -> list[list[int]]:
        return list(await asyncio.gather(read(stream(bus)), read(stream(bus))))

    started = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(asyncio.run, both())
        assert started.wait(10)
        wait_for(lambda: len(bus._buffers) == 2, "both readers to subscribe")
        queue(bus, 1, 2, 3)
        bus.end()
        assert reading.result(10) == [[1, 2, 3], [1, 2, 3]]


def test_cancelled_async_reader_loses_no_event(bus: EventBus) -> None:
    async def read() -> list[int]:
        waited = stream(bus)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(waited)
        queue(bus, 1)
        bus.end()
        return [event.number async for event in waited]

    assert asyncio.run(read()) == [1]


def test_many_threads_emit_and_subscribe_at_once(bus: EventBus) -> None:
    def emit(thread: int) -> None:
        for _ in range(200):
            queue(bus, thread)

    def subscribe(_: int) -> list[int]:
        with stream(bus, replay=True, size=10_000) as replayed:
            return [replayed.get(10).number for _ in range(500)]  # type: ignore[union-attr]  # it has not ended

    with ThreadPoolExecutor(8) as threads:
        reading = [threads.submit(subscribe, number) for number in range(4)]
        list(threads.map(emit, range(4)))
        assert all(read.result(30) == list(range(1, 501)) for read in reading)


def test_failing_listener_is_unsubscribed_and_logged(bus: EventBus, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: ev.BaseEvent) -> None:
        raise OSError("no space left")

    bus.listen(fail, ev.BaseEvent)
    with caplog.at_level(logging.ERROR), stream(bus) as other:
        queue(bus, 1, 2)
        assert other.get(0) is not None
    assert caplog.text.count("a subscriber to the events of pool 'p' raised") == 1


def test_event_without_subscribers_is_not_built(bus: EventBus) -> None:
    made = []

    class Costly(ev.BaseEvent):
        def __init__(self, *values: object) -> None:
            made.append(values)

    bus.emit(Costly)
    with stream(bus, ev.NodeEvent):
        bus.emit(Costly)
    assert made == []
    assert bus.count(Costly) == 2


def test_waiting_on_the_loop_of_the_library_is_refused(bus: EventBus) -> None:
    waited = stream(bus)
    with pytest.raises(sky.UsageError, match="callback of a future"):
        background.call(waited.get)


def test_invalid_kind_is_refused() -> None:
    pool = sky.Compute(nodes=1)
    with pytest.raises(sky.UsageError, match=r"^<class 'int'> is not an event class; use classes of `sky\.events`"):
        pool.events(int)  # type: ignore[type-var]  # the mistake under test
    pool.close()


def test_closing_a_pool_that_was_never_opened_ends_its_streams() -> None:
    pool = sky.Compute(nodes=1)
    waited = pool.events()
    pool.close()
    assert list(waited) == []


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), -1, True, "3", 1e300])
def test_get_refuses_an_invalid_timeout(timeout: object) -> None:
    with sky.Compute(nodes=1).events() as stream, pytest.raises(sky.SpecError, match="^timeout must be"):
        stream.get(timeout)  # type: ignore[arg-type]  # the mistake under test
