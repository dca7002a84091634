"""Answers to the client from several threads. The engine's loop exists, but does not run."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from skyward.kept.keep import current_store
from skyward.wire.protocol.messages import (
    Batch,
    Code,
    Commands,
    Exchange,
    Finished,
    NodeReport,
    Payload,
    Started,
    Submit,
)
from skyward.worker.events.backlog import Backlog
from skyward.worker.runtime.agent import Agent
from skyward.worker.runtime.replies import Replies

pytestmark = pytest.mark.unit


class FakeClient:
    """Substitute for the engine's reference to the client: records the batches in the order in which they were sent."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def tell(self, batch: Batch) -> None:
        self.batches.append(batch)

    def exchange(self) -> Exchange:
        reply_to: Any = self
        return Exchange(first=1, reply_to=reply_to)


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.usefixtures("frequent_switches")
def test_answers_of_many_threads_are_sent_in_order(loop: asyncio.AbstractEventLoop) -> None:
    """Otherwise the client takes the later one for lost, and requests everything again."""
    replies = Replies(loop, Backlog(0, None), lambda: NodeReport((), (), 0))
    client = FakeClient()
    threads, each = 4, 500

    def say() -> None:
        for number in range(each):
            replies.say(Started(number))

    senders = [threading.Thread(target=say) for _ in range(threads)]
    for thread in senders:
        thread.start()
    while any(thread.is_alive() for thread in senders) or replies.outbox.pending:
        replies.park(client.exchange())
        replies.flush()
    next_number = 1
    for batch in client.batches:
        assert batch.first == next_number
        next_number += len(batch.events)
    assert next_number == threads * each + 1


def test_end_of_last_task_is_sent_without_another_thread(loop: asyncio.AbstractEventLoop) -> None:
    """The thread that ran it answers: the engine's thread may be waiting for the GIL."""
    agent = Agent(loop, 0, 1, Backlog(0, None), processes=False)
    client = FakeClient()
    agent.receive(client.exchange())
    agent._finished(Finished(1, "value", Payload(b""), 0.0))
    assert [event.task for batch in client.batches for event in batch.events] == [1]


def test_agent_does_not_declare_its_process_a_node(loop: asyncio.AbstractEventLoop) -> None:
    """Otherwise, cells that later tests run in this process would keep values on a loop that is closed."""
    Agent(loop, 0, 1, Backlog(0, None), processes=False)
    assert current_store() is None


def test_ends_of_tasks_are_batched_while_other_tasks_wait(loop: asyncio.AbstractEventLoop) -> None:
    """A message for each would cost the client too much."""
    agent = Agent(loop, 0, 1, Backlog(0, None), processes=False)
    client = FakeClient()
    agent.receive(client.exchange())
    code = Code(b"c", Payload(b""), "f")
    submitted = Submit(3, 0, b"c", Payload(b""))
    agent.receive(Commands(1, (code, submitted)))
    agent._finished(Finished(1, "value", Payload(b""), 0.0))
    agent._finished(Finished(2, "value", Payload(b""), 0.0))
    assert not client.batches
    loop.call_soon(loop.stop)  # one turn, for the scheduled callbacks
    loop.run_forever()
    assert [[event.task for event in batch.events] for batch in client.batches] == [[1, 2]]
