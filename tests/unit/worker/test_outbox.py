"""The outbox: all events arrive, in order, in few messages, and a writer waits for a slow client."""

import threading
from collections.abc import Iterable
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from skyward.events.metrics import NodeMetrics
from skyward.events.volumes import VolumeState
from skyward.wire.protocol.messages import (
    BATCH_BYTES,
    UNKNOWN_OFFSET,
    Blob,
    Display,
    Finished,
    Metrics,
    Output,
    Payload,
    Started,
    WorkerEvent,
    Yielded,
)
from skyward.wire.protocol.volumes import VolumeStates
from skyward.worker.events.backlog import Backlog
from skyward.worker.events.outbox import _STREAMS, LIMIT, Outbox

pytestmark = pytest.mark.unit

LARGE = "x" * (BATCH_BYTES // 3)
END = Payload(b"")


def quiet() -> Outbox:
    """Return an outbox with a listening client, without wake-ups."""
    return Outbox(lambda urgent: None, lambda: True, Backlog(0, None))


def pieces(events: Iterable[WorkerEvent]) -> list[object]:
    """Normalise events, whatever was merged: each element of a stream by itself, and adjacent text joined."""
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
    """A worker that puts events, and a client that loses answers and asks again."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = quiet()
        self.put: list[WorkerEvent] = []
        self.received: list[WorkerEvent] = []
        self.sent = 0

    def add(self, event: WorkerEvent) -> None:
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
        if not lost and first <= len(self.received) + 1:
            assert events[: len(self.received) + 1 - first] == tuple(self.received[first - 1 :])[: len(events)]
            self.received += events[len(self.received) + 1 - first :]

    @rule()
    def acknowledge(self) -> None:
        self.outbox.acknowledge(len(self.received))

    @rule()
    def ask_again(self) -> None:
        self.outbox.acknowledge(len(self.received))
        self.outbox.rewind()
        self.sent = len(self.received)

    @invariant()
    def received_events_are_a_prefix_of_those_put(self) -> None:
        received, put = pieces(self.received), pieces(self.put)
        if received and isinstance(received[-1], Output):  # the rest of the text may be in transit
            last, whole = received.pop(), put[len(received)]
            assert isinstance(whole, Output)
            assert whole.text.startswith(last.text)  # type: ignore[attr-defined]  # it is an Output
        assert received == put[: len(received)]

    @invariant()
    def each_offset_is_the_end_of_the_text_before(self) -> None:
        ends: dict[tuple[int, str], int] = {}
        for event in self.received:
            if isinstance(event, Output):
                assert event.offset == ends.get((event.task, event.stream), 0)
                ends[event.task, event.stream] = event.offset + len(event.text)

    def teardown(self) -> None:
        self.ask_again()
        while self.outbox.pending:
            self.answer(lost=False)
        self.outbox.acknowledge(len(self.received))
        assert pieces(self.received) == pieces(self.put)
        assert (self.outbox.take()[1], self.outbox._bytes) == ((), 0)


TestClient = Client.TestCase
TestClient.settings = settings(max_examples=100, stateful_step_count=30)


@pytest.fixture
def outbox() -> Outbox:
    return quiet()


def put(outbox: Outbox, *events: WorkerEvent) -> None:
    for event in events:
        outbox.put(event, urgent=False, wait=False)


def test_adjacent_texts_of_one_stream_are_merged(outbox: Outbox) -> None:
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


def test_sent_event_is_not_extended(outbox: Outbox) -> None:
    put(outbox, Output(1, "stdout", "a"))
    assert outbox.take() == (1, (Output(1, "stdout", "a", 0),))
    put(outbox, Output(1, "stdout", "b"))
    assert outbox.take() == (2, (Output(1, "stdout", "b", 1),))


def test_message_exceeds_a_batch_only_for_a_larger_event(outbox: Outbox) -> None:
    put(outbox, *(Output(task, "stdout", LARGE) for task in range(1, 8)))
    put(outbox, Output(9, "stdout", LARGE * 4), Started(9))
    counts = []
    while outbox.pending:
        _, events = outbox.take()
        sizes = [len(event.text) if isinstance(event, Output) else 0 for event in events]
        assert sum(sizes) <= BATCH_BYTES or len(sizes) == 1
        counts.append(len(events))
    assert counts == [2, 2, 2, 1, 1, 1]


def test_put_wakes_the_sender() -> None:
    woken: list[bool] = []
    outbox = Outbox(woken.append, lambda: True, Backlog(0, None))
    outbox.put(Started(1), urgent=True, wait=False)
    outbox.put(Started(2), urgent=False, wait=False)
    assert woken == [True, False]


def full(outbox: Outbox) -> threading.Thread:
    """Start a writer that blocks, because the client is behind."""
    put(outbox, Output(1, "stdout", "x" * (LIMIT + 1)))
    writer = threading.Thread(
        target=outbox.put, args=(Output(1, "stdout", "y"),), kwargs={"urgent": False, "wait": True}, daemon=True
    )
    writer.start()
    writer.join(0.05)
    assert writer.is_alive()
    return writer


def test_writer_waits_until_the_client_has_caught_up(outbox: Outbox) -> None:
    writer = full(outbox)
    outbox.take()
    writer.join(0.05)
    assert writer.is_alive()  # sent, but not acknowledged
    outbox.acknowledge(1)
    writer.join(10)
    assert not writer.is_alive()
    assert outbox.take() == (2, (Output(1, "stdout", "y", LIMIT + 1),))


def test_end_of_a_task_is_queued_without_waiting(outbox: Outbox) -> None:
    put(outbox, Output(1, "stdout", "x" * (LIMIT + 1)))
    outbox.put(Finished(1, "value", END, 0.0), urgent=True, wait=False)
    assert len(outbox.take()[1]) == 1
    assert outbox.take()[1] == (Finished(1, "value", END, 0.0),)


def test_close_releases_waiting_writers(outbox: Outbox) -> None:
    writer = full(outbox)
    outbox.close()
    writer.join(10)
    assert not writer.is_alive()


def metrics(cpu: float) -> Metrics:
    return Metrics(NodeMetrics("machine", cpu, 2.0))


def test_latest_metrics_are_sent_with_other_events(outbox: Outbox) -> None:
    outbox.put_latest(metrics(0.1))
    outbox.put_latest(metrics(0.2))
    assert not outbox.pending, "metrics alone are not sent"
    put(outbox, Started(1))
    assert outbox.take() == (1, (Started(1), metrics(0.2)))
    assert outbox.take() == (3, ())


def test_end_of_a_task_follows_the_states_of_volumes_that_were_told_before(outbox: Outbox) -> None:
    states = VolumeStates((VolumeState("/data", "s3://bucket", "sync", False, "/data", "ready"),))
    finished = Finished(1, "value", END, 0.0)
    outbox.put_latest(VolumeStates(()))
    outbox.put_latest(states)
    outbox.put(finished, urgent=True, wait=False)
    assert outbox.take() == (1, (states, finished))


def test_heartbeat_carries_metrics_which_are_acknowledged(outbox: Outbox) -> None:
    outbox.put_latest(metrics(0.1))
    assert outbox.take() == (1, (metrics(0.1),))
    assert outbox.unacknowledged
    outbox.rewind()
    assert outbox.take() == (1, (metrics(0.1),))
    outbox.acknowledge(1)
    assert not outbox.unacknowledged


def test_lengths_of_silent_streams_are_forgotten(outbox: Outbox) -> None:
    """Further output of a forgotten stream has no offset, rather than a wrong one."""
    put(outbox, Output(1, "stdout", "first"), *(Output(task, "stdout", "x") for task in range(2, _STREAMS + 2)))
    put(outbox, Output(1, "stdout", "late"), Output(3, "stdout", "y"), Output(_STREAMS + 2, "stdout", "new"))
    outputs = [event for event in outbox.take()[1] if isinstance(event, Output)]
    assert outputs[-3:] == [
        Output(1, "stdout", "late", UNKNOWN_OFFSET),
        Output(3, "stdout", "y", 1),
        Output(_STREAMS + 2, "stdout", "new", 0),
    ]
