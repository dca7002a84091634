"""What a node keeps while nobody listens: all of it on the disk, in order; beyond its limit, how it began and ended."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from skyward.wire.protocol.messages import NOWHERE, Display, Event, Finished, Output, Payload, Started, Yielded
from skyward.worker.events import outbox as rooms
from skyward.worker.events.backlog import LAST, Backlog
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
    """An outbox, and whether somebody listens to it."""

    def __init__(self, directory: Path, limit: int = 1 << 30) -> None:
        self.listened = False
        self.backlog = Backlog(limit, directory)
        self.outbox = Outbox(lambda urgent: None, lambda: self.listened, self.backlog)

    def put(self, *events: Event) -> None:
        for event in events:
            self.outbox.put(event, urgent=False, wait=True)

    def hear(self) -> list[Event]:
        """All there is, as a client takes it."""
        self.listened = True
        return list(self._batches())

    def _batches(self) -> Iterator[Event]:
        self.outbox.acknowledge(self.outbox.first - 1)
        self.outbox.rewind()
        heard = self.outbox.first
        while self.outbox.pending:
            first, events = self.outbox.take()
            assert first == heard, "there is a gap, or something twice"
            heard += len(events)
            yield from events
            self.outbox.acknowledge(heard - 1)
        assert (self.outbox._bytes, self.outbox._in_memory, self.outbox.unheard) == (0, 0, False)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def lines(task: int, count: int) -> list[Output]:
    return [Output(task, "stdout", f"{task} {number:05}\n") for number in range(count)]


def test_a_writer_that_nobody_listens_to_does_not_wait_and_nothing_is_lost(node: Node, tmp_path: Path) -> None:
    random = Random(0)
    said: list[Event] = []
    for number in range(3000):
        task = random.randint(1, 3)
        element, end = Yielded(task, (Payload(b"x" * 30),)), Finished(number, "value", END, 0)
        said.append(random.choice((Output(task, "stdout", f"{number}\n"), element, end)))
    node.put(*said)
    assert node.outbox._in_memory <= MEMORY + 200
    assert not list(tmp_path.iterdir()), "the file has a name"
    assert set(node.outbox.ended) == {event.task for event in said if isinstance(event, Finished)}
    heard = node.hear()
    assert pieces(heard) == pieces(said)
    ends: dict[int, int] = {}
    for event in heard:
        if isinstance(event, Output):
            assert event.offset == ends.get(event.task, 0)
            ends[event.task] = event.offset + len(event.text)


def test_one_that_comes_back_hears_what_it_has_not_acknowledged_again_and_no_more(node: Node) -> None:
    node.put(*lines(1, 100))
    first, early = node.outbox.take()
    node.put(*lines(1, 400))
    node.outbox.acknowledge(first)  # of several
    node.outbox.rewind()
    assert node.outbox.first == first + 1
    assert node.outbox.take() == (first + 1, early[1:])


def test_once_a_client_listens_again_writers_wait_until_it_has_caught_up(node: Node) -> None:
    node.put(*lines(1, 1000))
    node.listened = True
    node.outbox.close()  # so that this writer goes on
    node.put(*lines(2, 100))
    assert pieces(node.hear())[-1] == Output(2, "stdout", "".join(line.text for line in lines(2, 100)))


def test_room_is_given_back_once_all_is_heard(node: Node) -> None:
    for _ in range(2):
        node.put(*lines(1, 1000))
        assert node.backlog._file is not None
        assert node.backlog._file.size > 5000
        node.hear()
        assert node.backlog._file.size == 0
        node.listened = False


def test_beyond_the_limit_the_first_and_the_last_of_it_is_kept_and_a_line_says_what_is_missing(tmp_path: Path) -> None:
    node = Node(tmp_path, limit=50_000)
    noisy = lines(1, 100_000)
    node.put(Yielded(2, (END,)), *noisy, Output(2, "stderr", "a word\n"), Started(2), Yielded(1, (END,)))
    node.put(Finished(1, "value", END, 0.0), Display(2, END), Display(2, Payload(b"last")))
    heard = node.hear()
    whole = "".join(line.text for line in noisy)
    texts = [event for event in heard if isinstance(event, Output) and event.task == 1]
    (mark,) = [event for event in texts if event.offset == NOWHERE]
    before, after = texts[: texts.index(mark)], texts[texts.index(mark) + 1 :]
    begun, ended = ("".join(event.text for event in part) for part in (before, after))
    missing = len(whole) - len(begun) - len(ended)
    assert mark.text == (
        f"\n[Skyward left out {missing:,} characters here, which came while nobody listened: "
        "there was no more room on the node.]\n"
    )
    assert whole.startswith(begun)
    assert len(begun) > 5_000
    assert whole.endswith(ended)
    assert len(ended) >= LAST
    assert after[0].offset == len(begun) + missing
    assert heard.index(after[-1]) < heard.index(Finished(1, "value", END, 0.0)), "its end came before its last words"
    assert Output(2, "stderr", "a word\n", 0) in heard, "one that printed little has lost something"
    assert [event for event in heard if isinstance(event, Yielded)] == [Yielded(2, (END,)), Yielded(1, (END,))]
    assert [event for event in heard if isinstance(event, Display)] == [Display(2, Payload(b"last"))]
    assert any(isinstance(event, Output) and " left out 1 display here" in event.text for event in heard)


def test_a_full_disk_costs_output_only(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        results = [Yielded(1, (Payload(bytes(100)),)) for _ in range(50)]
        node.put(*lines(1, 50_000), *results)
    heard = node.hear()
    assert sum(len(event.items) for event in heard if isinstance(event, Yielded)) == 50
    assert any(isinstance(event, Output) and "left out" in event.text for event in heard)
    node.listened = False
    node.put(*lines(2, 1000))
    assert node.backlog.size, "the disk, which has room again, is not used"
    assert pieces(node.hear()) == pieces([Output(2, "stdout", "".join(line.text for line in lines(2, 1000)))])
