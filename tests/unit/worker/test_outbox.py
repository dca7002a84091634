"""Events on their way to the client: all arrive, in order, in few messages, and a writer waits for a slow client."""

import threading
from collections.abc import Iterable
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from skyward.events.metrics import NodeMetrics
from skyward.wire.protocol.messages import (
    BATCH_BYTES,
    NOWHERE,
    Blob,
    Display,
    Event,
    Finished,
    Metrics,
    Output,
    Payload,
    Started,
    Yielded,
)
from skyward.worker.events.backlog import Backlog
from skyward.worker.events.outbox import _STREAMS, LIMIT, Outbox

pytestmark = pytest.mark.unit

LARGE = "x" * (BATCH_BYTES // 3)
END = Payload(b"")


def quiet() -> Outbox:
    """An outbox that somebody listens to, and that wakes nobody."""
    return Outbox(lambda urgent: None, lambda: True, Backlog(0, None))


def pieces(events: Iterable[Event]) -> list[object]:
    """What the events say, whatever was merged: each element of a stream by itself, and text as one."""
    found: list[object] = []
    for event in events:
        match event:
            case Output(task, stream, text):
                last = found[-1] if found else None
                if isinstance(last, Output) and (last.task, last.stream) == (task, stream):
                    found[-1] = Output(task, stream, last.text + text)
                else:
                    found.append(Output(task, stream, text))
            case Yielded(task, items):
                found += [(task, item) for item in items]
            case _:
                found.append(event)
    return found


class Client(RuleBasedStateMachine):
    """Puts events, and takes them as a client does that loses answers and asks again."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = quiet()
        self.put: list[Event] = []
        self.heard: list[Event] = []
        self.sent = 0

    def add(self, event: Event) -> None:
        self.put.append(event)
        self.outbox.put(event, urgent=False, wait=False)

    @rule(
        task=st.integers(1, 2),
        stream=st.sampled_from(["stdout", "stderr"]),
        text=st.text(min_size=1, max_size=3) | st.just(LARGE),
    )
    def output(self, task: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        self.add(Output(task, stream, text))

    @rule(task=st.integers(1, 2), data=st.binary(max_size=3) | st.just(LARGE.encode()))
    def element(self, task: int, data: bytes) -> None:
        self.add(Yielded(task, (Payload(data, (Blob(b"k", 1 << 40),)),)))

    @rule(task=st.integers(1, 2), kind=st.sampled_from(["started", "finished", "display"]))
    def other(self, task: int, kind: str) -> None:
        self.add(
            Started(task) if kind == "started" else Display(task, END) if kind == "display" else
            Finished(task, "value", END, 0.0)
        )  # fmt: skip

    @rule(lost=st.booleans())
    def answer(self, lost: bool) -> None:
        first, events = self.outbox.take()
        assert first == self.sent + 1
        self.sent += len(events)
        if not lost and first <= len(self.heard) + 1:
            assert events[: len(self.heard) + 1 - first] == tuple(self.heard[first - 1 :])[: len(events)]
            self.heard += events[len(self.heard) + 1 - first :]

    @rule()
    def acknowledge(self) -> None:
        self.outbox.acknowledge(len(self.heard))

    @rule()
    def ask_again(self) -> None:
        self.outbox.acknowledge(len(self.heard))
        self.outbox.rewind()
        self.sent = len(self.heard)

    @invariant()
    def what_was_heard_is_what_was_put_so_far(self) -> None:
        heard, put = pieces(self.heard), pieces(self.put)
        if heard and isinstance(heard[-1], Output):  # the rest of the text may be on its way
            last, whole = heard.pop(), put[len(heard)]
            assert isinstance(whole, Output)
            assert whole.text.startswith(last.text)  # type: ignore[attr-defined]  # it is an Output
        assert heard == put[: len(heard)]

    @invariant()
    def each_piece_begins_where_the_one_before_it_ended(self) -> None:
        ends: dict[tuple[int, str], int] = {}
        for event in self.heard:
            if isinstance(event, Output):
                assert event.offset == ends.get((event.task, event.stream), 0)
                ends[event.task, event.stream] = event.offset + len(event.text)

    def teardown(self) -> None:
        self.ask_again()
        while self.outbox.pending:
            self.answer(lost=False)
        self.outbox.acknowledge(len(self.heard))
        assert pieces(self.heard) == pieces(self.put)
        assert (self.outbox.take()[1], self.outbox._bytes) == ((), 0)


TestClient = Client.TestCase
TestClient.settings = settings(max_examples=100, stateful_step_count=30)


@pytest.fixture
def outbox() -> Outbox:
    return quiet()


def put(outbox: Outbox, *events: Event) -> None:
    for event in events:
        outbox.put(event, urgent=False, wait=False)


def test_texts_of_one_stream_become_one_event(outbox: Outbox) -> None:
    put(outbox, *(Output(1, "stdout", str(number)) for number in range(5)))
    put(outbox, Output(1, "stderr", "e"), Output(2, "stderr", "f"), Output(1, "stdout", "g"))
    assert outbox.take() == (
        1,
        (
            Output(1, "stdout", "01234", 0),
            Output(1, "stderr", "e", 0),
            Output(2, "stderr", "f", 0),
            Output(1, "stdout", "g", 5),
        ),
    )


def test_what_was_sent_is_not_added_to(outbox: Outbox) -> None:
    put(outbox, Output(1, "stdout", "a"))
    assert outbox.take() == (1, (Output(1, "stdout", "a", 0),))
    put(outbox, Output(1, "stdout", "b"))
    assert outbox.take() == (2, (Output(1, "stdout", "b", 1),))


def test_a_message_is_no_larger_than_a_batch_unless_one_event_is(outbox: Outbox) -> None:
    put(outbox, *(Output(task, "stdout", LARGE) for task in range(1, 8)))
    put(outbox, Output(9, "stdout", LARGE * 4), Started(9))
    counts = []
    while outbox.pending:
        _, events = outbox.take()
        sizes = [len(event.text) if isinstance(event, Output) else 0 for event in events]
        assert sum(sizes) <= BATCH_BYTES or len(sizes) == 1
        counts.append(len(events))
    assert counts == [2, 2, 2, 1, 1, 1]


def test_the_putting_thread_wakes_whoever_sends() -> None:
    woken: list[bool] = []
    outbox = Outbox(woken.append, lambda: True, Backlog(0, None))
    outbox.put(Started(1), urgent=True, wait=False)
    outbox.put(Started(2), urgent=False, wait=False)
    assert woken == [True, False]


def full(outbox: Outbox) -> threading.Thread:
    """A writer that has to wait, since the client is behind."""
    put(outbox, Output(1, "stdout", "x" * (LIMIT + 1)))
    writer = threading.Thread(
        target=outbox.put, args=(Output(1, "stdout", "y"),), kwargs={"urgent": False, "wait": True}, daemon=True
    )
    writer.start()
    writer.join(0.05)
    assert writer.is_alive()
    return writer


def test_a_writer_waits_until_the_client_has_caught_up(outbox: Outbox) -> None:
    writer = full(outbox)
    outbox.take()
    writer.join(0.05)
    assert writer.is_alive()  # sent is not arrived
    outbox.acknowledge(1)
    writer.join(10)
    assert not writer.is_alive()
    assert outbox.take() == (2, (Output(1, "stdout", "y", LIMIT + 1),))


def test_the_end_of_a_task_waits_for_nobody(outbox: Outbox) -> None:
    put(outbox, Output(1, "stdout", "x" * (LIMIT + 1)))
    outbox.put(Finished(1, "value", END, 0.0), urgent=True, wait=False)
    assert len(outbox.take()[1]) == 1
    assert outbox.take()[1] == (Finished(1, "value", END, 0.0),)


def test_every_waiting_writer_goes_when_the_worker_ends(outbox: Outbox) -> None:
    writer = full(outbox)
    outbox.close()
    writer.join(10)
    assert not writer.is_alive()


def metrics(cpu: float) -> Metrics:
    return Metrics(NodeMetrics("machine", cpu, 2.0))


def test_of_metrics_the_latest_go_along_with_what_is_sent(outbox: Outbox) -> None:
    outbox.put_latest(metrics(0.1))
    outbox.put_latest(metrics(0.2))
    assert not outbox.pending, "they are no reason to send"
    put(outbox, Started(1))
    assert outbox.take() == (1, (Started(1), metrics(0.2)))
    assert outbox.take() == (3, ())


def test_a_heartbeat_takes_metrics_along_and_they_are_acknowledged_like_all_else(outbox: Outbox) -> None:
    outbox.put_latest(metrics(0.1))
    assert outbox.take() == (1, (metrics(0.1),))
    assert outbox.unheard
    outbox.rewind()
    assert outbox.take() == (1, (metrics(0.1),))
    outbox.acknowledge(1)
    assert not outbox.unheard


def test_of_streams_beyond_number_those_that_are_silent_are_forgotten_and_say_so(outbox: Outbox) -> None:
    """What is forgotten has no place any more, rather than a wrong one."""
    put(outbox, Output(1, "stdout", "first"), *(Output(task, "stdout", "x") for task in range(2, _STREAMS + 2)))
    put(outbox, Output(1, "stdout", "late"), Output(3, "stdout", "y"), Output(_STREAMS + 2, "stdout", "new"))
    outputs = [event for event in outbox.take()[1] if isinstance(event, Output)]
    assert outputs[-3:] == [
        Output(1, "stdout", "late", NOWHERE),
        Output(3, "stdout", "y", 1),
        Output(_STREAMS + 2, "stdout", "new", 0),
    ]
