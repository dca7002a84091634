"""Backlog of events without a listening client: in order on disk; past its limit, begin and end of the output."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from skyward.wire.protocol.messages import (
    UNKNOWN_OFFSET,
    Display,
    Finished,
    Output,
    Payload,
    Started,
    WorkerEvent,
    Yielded,
)
from skyward.worker.events import outbox as rooms
from skyward.worker.events.backlog import TAIL, Backlog
from skyward.worker.events.outbox import Outbox
from tests.unit.worker.test_outbox import pieces

pytestmark = pytest.mark.unit

MEMORY = 1000
END = Payload(b"")


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "LIMIT", MEMORY)
    monkeypatch.setattr(rooms, "BATCH_BYTES", MEMORY // 4)
    monkeypatch.setattr(rooms, "_PIECE", MEMORY // 16)


class Node:
    """An outbox whose client listens, or not."""

    def __init__(self, directory: Path, limit: int = 1 << 30) -> None:
        self.listened = False
        self.backlog = Backlog(limit, directory)
        self.outbox = Outbox(lambda urgent: None, lambda: self.listened, self.backlog)

    def put(self, *events: WorkerEvent) -> None:
        for event in events:
            self.outbox.put(event, urgent=False, wait=True)

    def receive(self) -> list[WorkerEvent]:
        """Return all events, as a client receives them."""
        self.listened = True
        return list(self._batches())

    def _batches(self) -> Iterator[WorkerEvent]:
        self.outbox.acknowledge(self.outbox.first - 1)
        self.outbox.rewind()
        received = self.outbox.first
        while self.outbox.pending:
            first, events = self.outbox.take()
            assert first == received, "events are missing or repeated"
            received += len(events)
            yield from events
            self.outbox.acknowledge(received - 1)
        assert (self.outbox._bytes, self.outbox._in_memory, self.outbox.unacknowledged) == (0, 0, False)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def lines(task: int, count: int) -> list[Output]:
    return [Output(task, "stdout", f"{task} {number:05}\n") for number in range(count)]


def test_writer_without_listening_client_neither_blocks_nor_loses_events(node: Node, tmp_path: Path) -> None:
    random = Random(0)
    queued: list[WorkerEvent] = []
    for number in range(3000):
        task = random.randint(1, 3)
        element, end = Yielded(task, (Payload(b"x" * 30),)), Finished(number, "value", END, 0)
        queued.append(random.choice((Output(task, "stdout", f"{number}\n"), element, end)))
    node.put(*queued)
    assert node.outbox._in_memory <= MEMORY + 200
    assert not list(tmp_path.iterdir()), "the file has a name"
    assert set(node.outbox.ended) == {event.task for event in queued if isinstance(event, Finished)}
    received = node.receive()
    assert pieces(received) == pieces(queued)
    ends: dict[int, int] = {}
    for event in received:
        if isinstance(event, Output):
            assert event.offset == ends.get(event.task, 0)
            ends[event.task] = event.offset + len(event.text)


def test_returning_client_receives_unacknowledged_events_again(node: Node) -> None:
    node.put(*lines(1, 100))
    first, early = node.outbox.take()
    node.put(*lines(1, 400))
    node.outbox.acknowledge(first)  # of several
    node.outbox.rewind()
    assert node.outbox.first == first + 1
    assert node.outbox.take() == (first + 1, early[1:])


def test_writers_wait_for_client_that_listens_again(node: Node) -> None:
    node.put(*lines(1, 1000))
    node.listened = True
    node.outbox.close()  # so that this writer does not block
    node.put(*lines(2, 100))
    assert pieces(node.receive())[-1] == Output(2, "stdout", "".join(line.text for line in lines(2, 100)))


def test_file_is_truncated_once_all_events_are_acknowledged(node: Node) -> None:
    for _ in range(2):
        node.put(*lines(1, 1000))
        assert node.backlog._file is not None
        assert node.backlog._file.size > 5000
        node.receive()
        assert node.backlog._file.size == 0
        node.listened = False


def test_output_past_the_limit_keeps_begin_and_end_and_reports_omission(tmp_path: Path) -> None:
    node = Node(tmp_path, limit=50_000)
    noisy = lines(1, 100_000)
    node.put(Yielded(2, (END,)), *noisy, Output(2, "stderr", "a word\n"), Started(2), Yielded(1, (END,)))
    node.put(Finished(1, "value", END, 0.0), Display(2, END), Display(2, Payload(b"last")))
    received = node.receive()
    whole = "".join(line.text for line in noisy)
    texts = [event for event in received if isinstance(event, Output) and event.task == 1]
    (mark,) = [event for event in texts if event.offset == UNKNOWN_OFFSET]
    before, after = texts[: texts.index(mark)], texts[texts.index(mark) + 1 :]
    begun, ended = ("".join(event.text for event in part) for part in (before, after))
    missing = len(whole) - len(begun) - len(ended)
    assert mark.text == (
        f"\n[Skyward left out {missing:,} characters here: no client was listening, "
        "and the node's output buffer was full.]\n"
    )
    assert whole.startswith(begun)
    assert len(begun) > 5_000
    assert whole.endswith(ended)
    assert len(ended) >= TAIL
    assert after[0].offset == len(begun) + missing
    assert received.index(after[-1]) < received.index(Finished(1, "value", END, 0.0)), (
        "the task's end was sent before its last output"
    )
    assert Output(2, "stderr", "a word\n", 0) in received, "output of a quiet task was lost"
    assert [event for event in received if isinstance(event, Yielded)] == [Yielded(2, (END,)), Yielded(1, (END,))]
    assert [event for event in received if isinstance(event, Display)] == [Display(2, Payload(b"last"))]
    assert any(isinstance(event, Output) and " left out 1 display here" in event.text for event in received)


def test_full_disk_loses_output_only(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        results = [Yielded(1, (Payload(bytes(100)),)) for _ in range(50)]
        node.put(*lines(1, 50_000), *results)
    received = node.receive()
    assert sum(len(event.items) for event in received if isinstance(event, Yielded)) == 50
    assert any(isinstance(event, Output) and "left out" in event.text for event in received)
    node.listened = False
    node.put(*lines(2, 1000))
    assert node.backlog.size, "the disk has room again and is not used"
    assert pieces(node.receive()) == pieces([Output(2, "stdout", "".join(line.text for line in lines(2, 1000)))])
