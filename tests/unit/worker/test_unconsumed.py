"""Elements that the client has and has not consumed, as the node keeps them for the next client."""

from pathlib import Path

import pytest

from skyward.wire.protocol.flow import WINDOW
from skyward.wire.protocol.messages import Finished, Output, Payload, WorkerEvent, Yielded
from skyward.worker.events import outbox as module
from skyward.worker.events.backlog import Backlog
from skyward.worker.events.outbox import Outbox
from skyward.worker.events.unconsumed import ENDED_LIMIT, Unconsumed

pytestmark = pytest.mark.unit


def elements(task: int, number: int) -> Yielded:
    return Yielded(task, tuple(Payload(b"%d" % each) for each in range(number)))


def end(task: int) -> Finished:
    return Finished(task, "value", Payload(b""), 0.0)


def kept(unconsumed: Unconsumed) -> list[WorkerEvent]:
    return [event for message in unconsumed.messages() for event in message]


def test_consumed_elements_are_forgotten_even_if_their_arrival_is_noted_later() -> None:
    unconsumed = Unconsumed()
    unconsumed.credit(1, 2)
    unconsumed.delivered(elements(1, 5))
    assert kept(unconsumed) == [Yielded(1, elements(1, 5).items[2:])]
    unconsumed.delivered(end(1))
    assert kept(unconsumed) == [Yielded(1, elements(1, 5).items[2:]), end(1)]
    unconsumed.credit(1, 3)
    assert not kept(unconsumed)
    assert not unconsumed.tasks


def test_elements_of_a_stopped_generator_are_forgotten() -> None:
    unconsumed = Unconsumed()
    unconsumed.delivered(elements(1, 5))
    unconsumed.cancel(1)
    unconsumed.delivered(end(1))
    assert kept(unconsumed) == []


def test_first_ended_generators_are_forgotten_beyond_the_limit() -> None:
    unconsumed = Unconsumed()
    for task in range(1, ENDED_LIMIT // WINDOW + 2):
        unconsumed.delivered(elements(task, WINDOW))
        unconsumed.delivered(end(task))
    assert unconsumed.tasks == list(range(2, ENDED_LIMIT // WINDOW + 2))


def test_elements_that_arrived_from_the_disk_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 100)
    outbox = Outbox(lambda _: None, lambda: False, Backlog(1 << 20, tmp_path))
    outbox.put(elements(1, 5), urgent=False, wait=True)
    outbox.put(Output(2, "stdout", "text"), urgent=False, wait=True)
    outbox.put(end(1), urgent=False, wait=True)
    outbox.take()
    outbox.acknowledge(3)
    assert [event for message in outbox.unconsumed() for event in message] == [elements(1, 5), end(1)]
